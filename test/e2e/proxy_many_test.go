package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// manyFlows is how many flows live at the same time, and who has them.
type manyFlows struct {
	flows, workers int
	table          int           // slots of the flow table: four times the flows
	rate           int           // datagrams/s
	idle           time.Duration // until a flow has expired
}

// The most that a flow may cost a worker: of its memory, each page that several
// share counted once, and of its processor when it expires, most of which is to
// close a socket. nginx takes 10 KiB (bench -only proxy).
const (
	flowMemory = 1 << 10
	expiryCost = 100 * time.Microsecond
)

// Many flows live at once, each with a socket of its own: each keeps its server and
// its port, over a reload too, for the worker that has it pays little, and they
// expire in time at a cost that does not grow with their number.
func TestProxyManyFlows(t *testing.T) {
	c := manyFlows{flows: 20_000, workers: 2, table: 1 << 17, rate: 10_000, idle: 5 * time.Second}
	if *soak {
		c = manyFlows{flows: 200_000, workers: 12, table: 1 << 20, rate: 10_000, idle: time.Minute}
	}
	requireSuite(t)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if each := c.flows/c.workers + 2000; files.Max < uint64(each) {
		t.Skipf("NOT TESTED: %d descriptors are allowed, %d are wanted", files.Max, each)
	}
	var sources []string
	for i := range 10 { // 28,000 ports each
		sources = append(sources, fmt.Sprintf(`"127.0.1.%d"`, i+1))
	}
	s := start(t, settings{
		workers: c.workers, reload: fmt.Sprintf("{udp_idle: %v, flow_table: %d, shutdown_timeout: 5m}", c.idle, c.table),
		top: `backends: [{name: app, servers: [{name: s0, address: "127.0.0.1:9000"}]}]
dns: {tcp_connections: 100}`, // descriptors are for flows
		more: fmt.Sprintf("  - {name: long, address: [\"%v\"], service: udp-proxy, backend: app, udp_proxy: {flows: %d, source: [%s]}}\n",
			long4, c.flows, strings.Join(sources, ", ")),
	}.yaml(), zoneFiles())
	startEcho(t, 0)
	workers := s.workers()
	before, _ := cost(t, workers)
	pins := newPinned(c.flows)
	g := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{long4}, Flows: c.flows, Rate: c.rate, Protocol: pins})
	round := time.Duration(c.flows/c.rate) * time.Second
	s.await(4*round+answerTimeout, "every flow is answered", func() bool { return pins.at(0, c.flows)[0] == c.flows })
	after, _ := cost(t, workers)
	if m := metrics(t); m["dnsapp_proxy_flows_total"] != float64(c.flows) || m["dnsapp_proxy_flows_ended_total"] != 0 {
		t.Errorf("%v flows have begun and %v ended, want %d alive", m["dnsapp_proxy_flows_total"], m["dnsapp_proxy_flows_ended_total"], c.flows)
	}
	perFlow := (after - before) / int64(c.flows)
	t.Logf("%d flows take %d octets each", c.flows, perFlow)
	if perFlow > flowMemory {
		t.Errorf("a flow takes %d octets, of at most %d", perFlow, flowMemory)
	}

	r := s.startReload()
	r.awaitCommit()
	until := g.Report().Answered + 2*uint64(c.flows)
	s.await(4*round+answerTimeout, "every flow is answered after the reload", func() bool { return g.Report().Answered >= until })
	_, began := cost(t, workers)
	report := g.Stop(2 * time.Second)
	last := time.Now()
	t.Logf("%v", report)
	if err := report.Exact(); err != nil {
		t.Error(err)
	}
	if n := pins.moved.Load(); n != 0 {
		t.Errorf("%d answers came by way of another server or port", n)
	}
	used := began
	s.await(c.idle+10*time.Second, "every flow has expired", func() bool {
		if cpu, err := proc.CPU(workers...); err == nil { // else they have ended
			used = cpu
		}
		return int(metrics(t)["dnsapp_proxy_flows_ended_total"]) == c.flows
	})
	took := time.Since(last)
	each := (used - began) / time.Duration(c.flows)
	t.Logf("all were over %v after the last datagram, at %v of CPU each", took, each)
	if took > c.idle+2*time.Second {
		t.Errorf("it took %v until flows with a timeout of %v were over", took, c.idle)
	}
	if each > expiryCost {
		t.Errorf("a flow costs %v to end, of at most %v", each, expiryCost)
	}
	if report := r.wait(); report.Handed != 0 {
		t.Errorf("%d flows were handed over", report.Handed)
	}
	l := s.ledger()
	if n := sum(l.Dropped) + sum(l.RingDropped) + l.KernelDropped; n != 0 || metrics(t)["dnsapp_flows_not_recorded_total"] != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// cost returns the memory of processes and what they have used of processors.
func cost(t *testing.T, pids []int) (memory int64, cpu time.Duration) {
	t.Helper()
	for _, pid := range pids {
		n, err := proc.PSS(pid)
		if err != nil {
			t.Fatal(err)
		}
		memory += n
	}
	cpu, err := proc.CPU(pids...)
	if err != nil {
		t.Fatal(err)
	}
	return memory, cpu
}
