package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// Where the proxies of the tests listen: flows of any number of answers, and
// flows that end with their one answer.
var (
	long4  = netip.MustParseAddrPort("127.0.0.1:5000")
	long6  = netip.MustParseAddrPort("[::1]:5000")
	short4 = netip.MustParseAddrPort("127.0.0.1:5001")
)

// echo is a server behind the proxy: it answers each datagram with itself, the
// server's number and the port that it came from. It answers again, echoAgain later,
// if the datagram asks for it.
type echo struct {
	number byte
	conn   *net.UDPConn
}

func startEcho(t *testing.T, number byte) *echo {
	t.Helper()
	e := &echo{number: number}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 9000+uint16(number))
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	e.conn = c
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // an ICMP error of an answer
				continue
			}
			b[n] = e.number
			binary.BigEndian.PutUint16(b[n+1:], from.Port())
			_, _ = c.WriteToUDPAddrPort(b[:n+3], from) // a lost answer shows at the client
			if n == pinnedSize && b[2]&(pinnedTwice>>24) != 0 {
				again := bytes.Clone(b[:n+3])
				time.AfterFunc(echoAgain, func() { _, _ = c.WriteToUDPAddrPort(again, from) }) // it is one too many anyway
			}
		}
	}()
	return e
}

// stop makes e a server that is dead: its port is closed.
func (e *echo) stop() { e.conn.Close() }

// pinned is a protocol that sees whether each flow stays with one port of the
// proxy at one server.
type pinned struct {
	pins  []atomic.Uint32 // by flow: server<<16 | port, 0: not seen yet
	moved atomic.Uint64   // answers by way of another one
	twice uint32          // pinnedTwice: the server is to answer twice; else 0
}

func newPinned(flows int) *pinned { return &pinned{pins: make([]atomic.Uint32, flows)} }

const (
	pinnedSize  = 6       // of a request: its number, and its flow with
	pinnedTwice = 1 << 31 // if it is to be answered again
	echoAgain   = 20 * time.Millisecond
)

func (p *pinned) AppendRequest(b []byte, flow int, seq uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(seq))
	return binary.BigEndian.AppendUint32(b, uint32(flow)|p.twice)
}

func (p *pinned) ID(answer []byte) (uint16, bool) {
	if len(answer) < 2 {
		return 0, true
	}
	return binary.BigEndian.Uint16(answer), true
}

func (p *pinned) Check(answer []byte, flow int, _ uint32) (load.Tag, error) {
	if len(answer) != pinnedSize+3 || binary.BigEndian.Uint32(answer[2:]) != uint32(flow)|p.twice {
		return load.Tag{}, fmt.Errorf("answer % x, which is not for flow %d", answer, flow)
	}
	way := uint32(answer[pinnedSize])<<16 | uint32(binary.BigEndian.Uint16(answer[pinnedSize+1:]))
	if !p.pins[flow].CompareAndSwap(0, way) && p.pins[flow].Load() != way {
		p.moved.Add(1)
	}
	return load.Tag{}, nil
}

func (p *pinned) AppendFrame(b, request []byte) []byte { return append(b, request...) }

func (p *pinned) ReadFrame(*bufio.Reader, []byte) ([]byte, error) {
	return nil, errors.New("UDP only")
}

func (p *pinned) Leave([]byte) bool { return false }

// at counts the flows from first on by their servers.
func (p *pinned) at(first, last int) map[byte]int {
	m := map[byte]int{}
	for i := first; i < last; i++ {
		if way := p.pins[i].Load(); way != 0 {
			m[byte(way>>16)]++
		}
	}
	return m
}

// proxied returns settings with the two proxies in front of servers.
func proxied(reload string, servers ...byte) settings {
	var list []string
	for _, n := range servers {
		list = append(list, fmt.Sprintf(`{name: s%d, address: "127.0.0.1:%d"}`, n, 9000+int(n)))
	}
	return proxiedBy(reload, "", list...)
}

// proxiedBy is proxied with more keys of the backend, and servers as they are to be
// written.
func proxiedBy(reload, keys string, list ...string) settings {
	return settings{
		lanes: 2, reload: reload,
		top: fmt.Sprintf("backends: [{name: app, servers: [%s]%s}]", strings.Join(list, ", "), keys),
		more: fmt.Sprintf(`  - {name: long, address: ["%v", "%v"], service: udp-proxy, backend: app, udp_proxy: {flows: 4000}}
  - {name: short, address: ["%v"], service: udp-proxy, backend: app, udp_proxy: {responses: 1, flows: 4000}}
`, long4, long6, short4),
	}
}

func startFlows(t *testing.T, c load.UDPConfig) *load.UDP {
	t.Helper()
	c.Sources = []netip.Prefix{clients6}
	g, err := load.StartUDP(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

const (
	proxyIdle   = 2 * time.Second
	proxyFlows  = 1000
	proxyRate   = 4000 // datagrams/s of the old flows
	proxyFresh  = 500  // new flows a second
	proxyReload = 5
)

// proxyRun is what reloads under load came to.
type proxyRun struct {
	old, fresh load.Report
	moved      uint64
	first      *reloading // the one that ends when the old flows have
	last       time.Time  // of the old flows' last datagram
}

// reloadProxy changes the servers by five reloads while old flows go on and new
// ones begin. settled tells what to wait for after a reload.
func reloadProxy(t *testing.T, s *server, reload string, settled func(r *reloading, n int)) (run proxyRun) {
	t.Helper()
	for n := range byte(4) {
		startEcho(t, n)
	}
	oldPins, newPins := newPinned(proxyFlows), newPinned(60*proxyFresh)
	old := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{long4, long6}, Flows: proxyFlows, Rate: proxyRate, Protocol: oldPins})
	awaitAnswers(t, old, 2*proxyFlows)
	fresh := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{short4}, Flows: len(newPins.pins), Rate: proxyFresh, Once: true, Protocol: newPins})
	awaitAnswers(t, fresh, 100)
	for n := range proxyReload {
		now := []byte{byte(1 + n%3)} // never server 0, which the old flows share
		s.write("dnsapp.yaml", proxied(reload, now...).yaml())
		r := s.startReload()
		r.awaitCommit()
		if n == 0 {
			run.first = r
		}
		settled(r, n)
		before := int(fresh.Report().Sent)
		awaitAnswers(t, fresh, 150)
		sent := int(fresh.Report().Sent)
		if at := newPins.at(before, sent); at[now[0]] == 0 || len(at) != 1 {
			t.Errorf("reload %d to server %d: new flows went to %v", n+1, now[0], at)
		}
	}
	run.fresh = fresh.Stop(time.Second)
	run.old = old.Stop(time.Second)
	run.last = time.Now()
	run.moved = oldPins.moved.Load() + newPins.moved.Load()
	t.Logf("old flows: %v\nnew flows: %v\nmoved %d", run.old, run.fresh, run.moved)
	return run
}

// Old flows keep their server and their port over five reloads that change the
// servers; new flows are at the new ones; nothing is lost; the drain ends when
// the old flows do.
func TestProxyReload(t *testing.T) {
	reload := "{udp_idle: 2s}"
	s := start(t, proxied(reload, 0).yaml(), zoneFiles())
	run := reloadProxy(t, s, reload, func(r *reloading, n int) {
		if n > 0 { // the first one's drain takes as long as the old flows
			r.wait()
		}
	})
	if err := errors.Join(run.old.Exact(), run.fresh.Exact()); err != nil {
		t.Error(err)
	}
	if run.moved != 0 {
		t.Errorf("%d answers came by way of another server or port", run.moved)
	}
	report := run.first.wait()
	if took := run.first.ended.Sub(run.last); took > proxyIdle+2*time.Second {
		t.Errorf("the drain ended %v after the last datagram", took)
	}
	if report.Handed != 0 {
		t.Errorf("%d flows were handed over", report.Handed)
	}
	l := s.ledger()
	if n := sum(l.Dropped); n != 0 {
		t.Errorf("dropped %v", l.Dropped)
	}
}

// Restarting moves the old flows: the test above can fail.
func TestProxyRestartMoves(t *testing.T) {
	reload := "{udp_idle: 2s, mode: restart}"
	s := start(t, proxied(reload, 0).yaml(), zoneFiles())
	run := reloadProxy(t, s, reload, func(r *reloading, _ int) { r.wait() })
	if run.moved == 0 {
		t.Error("with mode: restart no flow has moved: the test of the reload shows nothing")
	}
}

// A client is told by ICMP that the server it was given to does not listen, as
// without a proxy.
func TestProxyRefuses(t *testing.T) {
	start(t, proxied("{}", 3).yaml(), zoneFiles()) // nobody is there
	for _, target := range []netip.AddrPort{long4, long6} {
		c, err := net.Dial("udp", target.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("anybody there?")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v: %v, want a refusal", target, err)
		}
	}
}
