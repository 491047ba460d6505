package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is left when ports, or descriptors, run out.

// localPorts makes the kernel give out these ports and no others, until the test
// ends.
func localPorts(t *testing.T, first, last int) {
	t.Helper()
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { set(string(was)) })
	set(fmt.Sprintf("%d\t%d", first, last))
}

const (
	firstPort = 40000
	lastPort  = 40009
	fewPorts  = lastPort - firstPort + 1
)

// manual is a server behind the proxy whose answers the test gives.
type manual struct {
	t    *testing.T
	conn *net.UDPConn
}

func newManual(t *testing.T) manual {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:9000")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return manual{t, c}
}

// asked returns the sources of the next n datagrams, by their text.
func (m manual) asked(n int) map[string]netip.AddrPort {
	m.t.Helper()
	all := map[string]netip.AddrPort{}
	b := make([]byte, 100)
	for range n {
		if err := m.conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			m.t.Fatal(err)
		}
		size, from, err := m.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			m.t.Fatalf("after %d of %d datagrams: %v", len(all), n, err)
		}
		all[string(b[:size])] = from
	}
	return all
}

func (m manual) answer(to netip.AddrPort, text string) {
	m.t.Helper()
	if _, err := m.conn.WriteToUDPAddrPort([]byte(text), to); err != nil {
		m.t.Fatal(err)
	}
}

// someone returns a client of the proxy at long4 with a port beside those of
// localPorts. Each number is another client.
func someone(t *testing.T, number int) *net.UDPConn {
	t.Helper()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, 0, byte(number)}), uint16(30000+number))
	c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(at), net.UDPAddrFromAddrPort(long4))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say has clients first to last send their numbers, and returns them.
func say(t *testing.T, first, last int) (all []*net.UDPConn) {
	t.Helper()
	for i := first; i <= last; i++ {
		c := someone(t, i)
		if _, err := c.Write([]byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// heard returns what a client has had within a moment.
func heard(t *testing.T, c *net.UDPConn) (all []string) {
	t.Helper()
	b := make([]byte, 100)
	for {
		if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b[:n]))
	}
}

// oneProxy returns settings with one lane that proxies to a manual server.
func oneProxy(options string) settings {
	return settings{
		reload: "{udp_idle: 30s}", top: `backends: [{name: app, servers: [{name: a, address: "127.0.0.1:9000"}]}]`,
		more: fmt.Sprintf("  - {name: long, address: [\"%v\"], service: udp-proxy, backend: app, udp_proxy: {%s}}\n", long4, options),
	}
}

// A flow without a port is refused and counted, and the log says what to do about
// it. Each address in source has all ports of its own.
func TestProxyPortsRunOut(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		from    []string
	}{
		"no source":   {"flows: 100", []string{"127.0.0.1"}},
		"two sources": {`flows: 100, source: ["127.0.0.2", "127.0.0.3", "::1"]`, []string{"127.0.0.2", "127.0.0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, oneProxy(c.options).yaml(), zoneFiles())
			m := newManual(t)
			localPorts(t, firstPort, lastPort)
			room := fewPorts * len(c.from)
			const over = 7
			say(t, 1, room+over)
			used := map[string]int{}
			for _, from := range m.asked(room) {
				used[from.Addr().String()]++
			}
			for _, addr := range c.from {
				if used[addr] != fewPorts {
					t.Errorf("%d flows leave from %s, want %d", used[addr], addr, fewPorts)
				}
			}
			s.await(answerTimeout, "what has no port is counted", func() bool { return s.status().Ledger.Dropped["no_port"] == over })
			if n := strings.Count(s.log(), "list more addresses in udp_proxy.source"); n != 1 {
				t.Errorf("the log has the remedy %d times, not once", n)
			}
			l := s.ledger()
			if l.Served != uint64(room) || sum(l.Dropped) != over {
				t.Errorf("ledger %+v", l)
			}
		})
	}
}

// A worker that is out of descriptors refuses new flows, counts them, says what to
// do, and serves those that it has.
func TestProxyDescriptorsRunOut(t *testing.T) {
	config := oneProxy("flows: 100")
	config.top += "\nuser: root" // else nobody may change its limit
	s := start(t, config.yaml(), zoneFiles())
	m := newManual(t)
	old := say(t, 1, 3)
	ports := m.asked(3)
	pid := s.workers()[0]
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 5, Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	const over = 20 // one descriptor may be free
	say(t, 10, 10+over)
	s.await(answerTimeout, "what has no descriptor is counted", func() bool { return s.status().Ledger.Dropped["no_port"] >= over })
	if n := strings.Count(s.log(), "raise the limit of open files"); n != 1 {
		t.Errorf("the log has the remedy %d times, not once", n)
	}
	for i, c := range old {
		m.answer(ports[strconv.Itoa(i+1)], "still here")
		if got := heard(t, c); len(got) != 1 || got[0] != "still here" {
			t.Errorf("client %d has %q", i+1, got)
		}
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	say(t, 50, 50)
	for m.asked(1)["50"] == (netip.AddrPort{}) { // after what had a descriptor
	}
}

// lateAfterKill has a server answer after the worker was killed that had the flows,
// to ports that the next worker may have got. It returns how many of these answers
// others had.
func lateAfterKill(t *testing.T, quarantine time.Duration) (astray int) {
	t.Helper()
	s := start(t, oneProxy(fmt.Sprintf("flows: 100, quarantine: %v", quarantine)).yaml(), zoneFiles())
	m := newManual(t)
	localPorts(t, firstPort, lastPort)
	const olds = fewPorts / 2
	say(t, 1, olds)
	old := m.asked(olds)
	kill(t, s.workers()[0], syscall.SIGKILL)
	n := fewPorts - olds // as many as there are fresh ports for
	if quarantine == 0 {
		n = fewPorts
	}
	news := say(t, olds+1, olds+n)
	m.asked(n)
	say(t, 100, 100) // takes what ports are left
	s.await(answerTimeout, "no port is left", func() bool { return s.status().Ledger.Dropped["no_port"] == 1 })
	for text, port := range old {
		m.answer(port, "late answer to "+text)
	}
	for i, c := range news {
		if got := heard(t, c); len(got) != 0 {
			t.Logf("client %d has %q", olds+1+i, got)
			astray += len(got)
		}
	}
	if n := metrics(t)["dnsapp_proxy_datagrams_late_total"]; int(n)+astray != olds {
		t.Errorf("%v answers were dropped as late, %d went astray, of %d", n, astray, olds)
	}
	return astray
}

// The ports of a worker that was killed rest before another flow has them. Without
// a quarantine answers go astray: the test can fail.
func TestProxyKilledPortsRest(t *testing.T) {
	t.Run("quarantine", func(t *testing.T) {
		if n := lateAfterKill(t, 20*time.Second); n != 0 {
			t.Errorf("%d answers have reached others", n)
		}
	})
	t.Run("none", func(t *testing.T) {
		if lateAfterKill(t, 0) == 0 {
			t.Error("no answer has reached anybody else: the test shows nothing")
		}
	})
}
