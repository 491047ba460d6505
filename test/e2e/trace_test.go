package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

// tracing is a `dnsappctl trace` that runs.
type tracing struct {
	s         *server
	cmd       *exec.Cmd
	file      string
	out, errs bytes.Buffer
}

// startTrace begins a trace and waits until it has begun.
func (s *server) startTrace(args ...string) *tracing {
	s.t.Helper()
	x := &tracing{s: s, file: s.path("trace.pcap")}
	x.cmd = exec.CommandContext(s.t.Context(), filepath.Join(suite.bin, "dnsappctl"),
		append([]string{"--control", s.path("control.sock"), "trace", "-o", "json", "--pcap", x.file}, args...)...)
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.errs
	if err := x.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.await(5*time.Second, "the trace has begun", func() bool {
		info, err := os.Stat(x.file)
		return err == nil && info.Size() > 0
	})
	return x
}

// wait returns the report of a trace that ends.
func (x *tracing) wait() control.TraceReport {
	x.s.t.Helper()
	var l struct{ Report *control.TraceReport }
	if err := x.cmd.Wait(); err != nil || json.Unmarshal(x.out.Bytes(), &l) != nil || l.Report == nil {
		x.s.t.Fatalf("the trace: %v\n%s%s", err, x.out.Bytes(), x.errs.Bytes())
	}
	return *l.Report
}

// stop ends the trace as Ctrl-C does.
func (x *tracing) stop() control.TraceReport {
	x.s.t.Helper()
	if err := x.cmd.Process.Signal(syscall.SIGINT); err != nil {
		x.s.t.Fatal(err)
	}
	return x.wait()
}

// traced is a packet of a trace.
type traced struct {
	iface   string // who had it
	at      time.Time
	src     netip.AddrPort
	dst     netip.AddrPort
	payload []byte
}

// read returns the packets of the file, in its order.
func (x *tracing) read() (list []traced) {
	t := x.s.t
	t.Helper()
	f, err := os.Open(x.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		iface, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if udp == nil {
			t.Fatalf("no UDP: %v", p)
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		from, _ := netip.AddrFromSlice(src.Raw())
		to, _ := netip.AddrFromSlice(dst.Raw())
		list = append(list, traced{
			iface: iface.Name, at: ci.Timestamp, payload: udp.Payload,
			src: netip.AddrPortFrom(from, uint16(udp.SrcPort)), dst: netip.AddrPortFrom(to, uint16(udp.DstPort)),
		})
	}
}

// A trace over three reloads, and over the death of a worker, has every datagram that
// was received and sent, once, under the name of the worker that served it: also what
// was forwarded to a draining generation.
func TestTrace(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{shutdown_timeout: 3s}"}.yaml(), zoneFiles())
	began := time.Now()
	x := s.startTrace("--filter", fmt.Sprintf("udp and (port %d or port %d)", dns4.Port(), who4.Port()))
	if _, errs, code := s.tryCtl("trace", "--pcap", s.path("other"), "--count", "1"); code != 3 || !strings.Contains(string(errs), "a trace runs already") {
		t.Errorf("a second trace: code %d, %s", code, errs)
	}
	p := startProbe(t)
	flows := []*load.UDP{p.who}
	for range 3 {
		s.reload("--wait", "commit")
		flows = append(flows, identify(t, 8, 200)) // of the new generation
		awaitAnswers(t, p.who, 100)
		awaitAnswers(t, p.dns, 100)
	}
	s.awaitSteady()
	dns, who := p.dns.Stop(time.Second), load.Report{Tags: map[load.Tag]uint64{}}
	for _, f := range flows {
		who.Add(f.Stop(time.Second))
	}
	for _, r := range []load.Report{dns, who} {
		if err := r.Exact(); err != nil {
			t.Error(err)
		}
	}
	report := x.stop()
	list := x.read()
	if report.Dropped != 0 || report.Reason != "ended on request" || int(report.Packets) != len(list) || len(list) != int(2*(dns.Sent+who.Sent)) {
		t.Errorf("%+v; the file has %d packets, %d were sent", report, len(list), dns.Sent+who.Sent)
	}
	tags := make(map[load.Tag]uint64)
	balance := make(map[string]int)
	var last time.Time
	for _, one := range list {
		if one.at.Before(began) || one.at.After(time.Now()) || one.at.Before(last.Add(-20*time.Millisecond)) {
			t.Fatalf("a packet of %v after one of %v, in a trace that began %v", one.at, last, began)
		}
		last = one.at
		if one.dst.Port() == who4.Port() {
			balance[one.iface]++
		}
		if one.src.Port() != who4.Port() {
			continue
		}
		balance[one.iface]--
		tag, err := load.ParseTag(one.payload)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("epoch %d worker %d", tag.Epoch, tag.Worker); one.iface != want {
			t.Fatalf("an answer of %s is in the file as of %s", want, one.iface)
		}
		tags[tag]++
	}
	for tag, n := range who.Tags {
		if tags[tag] != n {
			t.Errorf("%+v: %d answers came, the file has %d", tag, n, tags[tag])
		}
	}
	for iface, n := range balance {
		if n != 0 {
			t.Errorf("%s: %+d queries more than answers", iface, n)
		}
	}
	if len(balance) != 8 { // two workers of four generations
		t.Errorf("the file has %v only", balance)
	}
	dump, err := exec.Command("tcpdump", "-n", "-r", x.file, fmt.Sprintf("src port %d", who4.Port())).Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		t.Log("SKIPPED: there is no tcpdump")
	case err != nil || bytes.Count(dump, []byte("\n")) != int(who.Answered):
		t.Errorf("tcpdump reads %d of %d: %v", bytes.Count(dump, []byte("\n")), who.Answered, err)
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Log(string(e.Stderr))
		}
	}
}

// A trace ends after its count, after its time, and with the server; a worker that is
// started again is in it.
func TestTraceEnds(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	p := startProbe(t)
	x := s.startTrace("--count", "100", "--snaplen", "10")
	if r := x.wait(); r.Packets != 100 || len(x.read()) != 100 {
		t.Errorf("%+v", r)
	}
	x = s.startTrace("--for", "300ms", "--filter", "inbound and not inbound")
	if r := x.wait(); r.Packets != 0 || r.Elapsed < control.Millis(300*time.Millisecond) || r.Elapsed > control.Millis(3*time.Second) {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(x.file); err != nil {
		t.Fatal(err)
	}
	x = s.startTrace("--filter", fmt.Sprintf("outbound and port %d", who4.Port()))
	before := s.workers()[0]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await(10*time.Second, "another worker serves", func() bool { return s.workers()[0] != before && allReady(s.status().Generations[0]) })
	awaitAnswers(t, p.who, 200)
	p.stop()
	s.ctl("stop", "--fast")
	if r := x.wait(); r.Reason != "dnsapp has stopped" || r.Dropped != 0 || len(r.Workers) != 2 || r.Workers[1].Packets < 100 {
		t.Errorf("%+v", r)
	}
}

// Of a proxy, all four legs of each exchange are in the file: the client's with its own
// addresses, the server's with the port that the flow has at the proxy.
func TestTraceProxy(t *testing.T) {
	startEcho(t, 1)
	s := start(t, proxied("{}", 1).yaml(), zoneFiles())
	x := s.startTrace("--filter", "udp")
	pins := newPinned(20)
	g := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{long4, long6}, Flows: 20, Rate: 1000, Protocol: pins})
	awaitAnswers(t, g, 500)
	r := g.Stop(time.Second)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	report := x.stop()
	legs := map[string]uint64{}
	for _, one := range x.read() {
		legs[one.src.String()+">"+one.dst.String()]++
	}
	var toProxy, toServer, fromServer, toClient uint64
	for leg, n := range legs {
		src, dst, _ := strings.Cut(leg, ">")
		switch server := "127.0.0.1:9001"; {
		case dst == long4.String() || dst == long6.String():
			toProxy += n
		case src == long4.String() || src == long6.String():
			toClient += n
		case dst == server:
			toServer += n
		case src == server:
			fromServer += n
			if legs[dst+">"+src] == 0 {
				t.Errorf("%s was never asked from %s", src, dst)
			}
		default:
			t.Errorf("%d packets of %s", n, leg)
		}
	}
	if toProxy != r.Sent || toServer != r.Sent || fromServer != r.Sent || toClient != r.Sent || report.Dropped != 0 {
		t.Errorf("%d were sent; the file has %d, %d to the server, %d back, %d to clients; %+v", r.Sent, toProxy, toServer, fromServer, toClient, report)
	}
}

// A reader that takes nothing costs its own trace packets, and the server none.
func TestTraceSlowReader(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	cmd := exec.CommandContext(t.Context(), filepath.Join(suite.bin, "dnsappctl"), "--control", s.path("control.sock"), "trace", "--pcap", "-")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := startDNS(t)
	s.await(20*time.Second, "the load runs", func() bool { return x.udp.Report().Answered > 60_000 })
	for name, r := range x.stop() {
		if err := r.Exact(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
	if n < 1<<20 || strings.Contains(errs.String(), " 0 lost") || !strings.Contains(errs.String(), " lost (ended on request)") {
		t.Errorf("%d octets; %s", n, errs.String())
	}
	t.Logf("%d octets; %s", n, errs.String())
}
