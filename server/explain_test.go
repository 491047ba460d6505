package server

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

var (
	client = netip.MustParseAddrPort("192.0.2.7:40001")
	who    = netip.MustParseAddrPort("127.0.0.1:5399")
	dns    = netip.MustParseAddrPort("127.0.0.1:5353")
	wild   = netip.MustParseAddrPort("[::]:5400")
)

// twoGenerations returns a running loop with epoch 7, which reads the wire, and
// epoch 6, which drains in window 3. Each has two workers; worker 1 of epoch 7 is
// dead.
func twoGenerations(t *testing.T) *Supervisor {
	t.Helper()
	s := looping(t)
	s.secret = flow.Secret{5, 6}
	var err error
	if s.dir, err = directory.Format(shm.Heap(directory.RegionSize)); err != nil {
		t.Fatal(err)
	}
	s.sockets = newSockets()
	cfg := &config.Config{Lanes: 1, Workers: 2, Listeners: []config.Listener{
		{Name: "who", Service: config.ServiceIdentify, Affinity: config.AffinityFlow},
		{Name: "dns", Service: config.ServiceDNS, Affinity: config.AffinityNone},
		{Name: "wild", Service: config.ServiceIdentify, Affinity: config.AffinityFlow},
	}}
	s.cfg = cfg
	var uses []use
	for i, ap := range []netip.AddrPort{who, dns, wild} {
		k := &socket{socketKey: socketKey{address: ap}, id: uint32(i), fd: 100 + i}
		s.sockets.byID[k.id] = k
		uses = append(uses, use{socket: k, listener: i})
	}
	for slot, state := range []directory.State{directory.Draining, directory.Active} {
		g := &generation{cfg: cfg, uses: uses}
		g.Slot, g.Epoch = uint8(slot), uint32(6+slot)
		if g.table, err = table.Format(shm.Heap(table.RegionSize(1024)), 1024, 10*time.Second, s.secret); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			g.workers = append(g.workers, &process{index: i, proc: &spawn.Process{PID: 10*int(g.Epoch) + i}})
		}
		if err := s.dir.Open(slot, g.Epoch, 2, 1, []uint32{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
		s.dir.SetState(slot, state)
		s.gens[slot] = g
	}
	s.gens[1].workers[1].proc = nil
	s.dir.SetOwner(7)
	s.gens[0].window = 3
	for i := range 2 {
		if err := s.gens[0].table.SetHeader(i, table.Publishing, 3); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// record makes the client's flow to local one of worker in g.
func record(s *Supervisor, g *generation, worker int, local netip.AddrPort, now uint32) {
	l, r := burst.EndpointOf(local), burst.EndpointOf(client)
	g.table.Record(flow.Hash(&s.secret, flow.UDP, &l, &r), worker, now)
}

func explain(t *testing.T, s *Supervisor, q control.FlowQuery) string {
	t.Helper()
	a, err := s.ExplainFlow(t.Context(), q)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, f := range a.Flows {
		fmt.Fprintf(&b, "%v %s: %s", f.Local, f.Listener, f.Verdict)
		if f.Owner != nil {
			fmt.Fprintf(&b, " [epoch %d %s worker %d pid %d, %d packets]", f.Owner.Epoch, f.Owner.State, f.Owner.Worker, f.Owner.PID, f.Owner.Packets)
		}
		for _, r := range f.Rules {
			mark := "-"
			if r.Decides {
				mark = "="
			}
			if !r.Reached {
				mark = "?"
			}
			fmt.Fprintf(&b, " %s%d", mark, r.Rule)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}

// Each state of the tables gets the verdict that udpflow/dispatch would give.
func TestExplainFlow(t *testing.T) {
	const fresh = "127.0.0.1:5399 who: a new flow: served, and recorded, by whichever worker of epoch 7 reads it -1 -2 -3 =4"
	now := mono.Millis()
	for name, c := range map[string]struct {
		set  func(s *Supervisor, old, own *generation)
		want string
	}{
		"unknown": {func(*Supervisor, *generation, *generation) {}, fresh},
		"own": {func(s *Supervisor, _, own *generation) { record(s, own, 0, who, now) },
			"127.0.0.1:5399 who: served by worker 0 of epoch 7, whoever reads it [epoch 7 active worker 0 pid 70, 1 packets] -1 =2 ?3 ?4"},
		"of a dead sibling": {func(s *Supervisor, _, own *generation) { record(s, own, 1, who, now) },
			"127.0.0.1:5399 who: worker 1 of epoch 7 is dead: whoever reads it serves it and takes the flow over [epoch 7 active worker 1 pid 0, 1 packets] -1 =2 ?3 ?4"},
		"draining": {func(s *Supervisor, old, _ *generation) { record(s, old, 1, who, now); record(s, old, 1, who, now) },
			"127.0.0.1:5399 who: forwarded to worker 1 of epoch 6 [epoch 6 draining worker 1 pid 61, 2 packets] -1 -2 =3 ?4"},
		"in both": {func(s *Supervisor, old, own *generation) { record(s, old, 1, who, now); record(s, own, 0, who, now) },
			"127.0.0.1:5399 who: served by worker 0 of epoch 7, whoever reads it [epoch 7 active worker 0 pid 70, 1 packets] -1 =2 ?3 ?4"},
		"over": {func(s *Supervisor, old, _ *generation) { record(s, old, 1, who, now-10_500) }, fresh},
		"handed": {func(s *Supervisor, old, _ *generation) {
			record(s, old, 1, who, now)
			_ = old.table.SetHeader(1, table.Handed, 3)
		}, fresh},
		"of another window": {func(s *Supervisor, old, _ *generation) {
			record(s, old, 1, who, now)
			old.window = 4
		}, fresh},
		"to another address": {func(s *Supervisor, _, own *generation) { record(s, own, 0, dns, now) }, fresh},
	} {
		s := twoGenerations(t)
		if err := s.ask(t.Context(), func() { c.set(s, s.gens[0], s.gens[1]) }); err != nil {
			t.Fatal(err)
		}
		if got := explain(t, s, control.FlowQuery{Transport: "udp", Remote: client, Local: who}); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// Without a local address all that are served are tried, and those where the
// client is known are shown.
func TestExplainFlowEverywhere(t *testing.T) {
	s := twoGenerations(t)
	q := control.FlowQuery{Transport: "udp", Remote: client}
	got := explain(t, s, q)
	for _, want := range []string{
		"127.0.0.1:5353 dns: served by whichever worker of epoch 7 reads it =0",
		"127.0.0.1:5399 who: a new flow",
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "wild") {
			t.Errorf("unknown client, want %s:\n%s", want, got)
		}
	}
	record(s, s.gens[1], 0, who, mono.Millis())
	if got := explain(t, s, q); strings.Contains(got, "\n") || !strings.HasPrefix(got, "127.0.0.1:5399 who: served by worker 0") {
		t.Errorf("known client:\n%s", got)
	}
	if got := explain(t, s, control.FlowQuery{Transport: "udp", Remote: client, Local: netip.MustParseAddrPort("127.0.0.1:9")}); got != "nothing serves udp 127.0.0.1:9; dnsappctl status lists the listeners" {
		t.Error(got)
	}
	six := control.FlowQuery{Transport: "udp", Remote: netip.MustParseAddrPort("[::1]:40001"), Local: netip.MustParseAddrPort("[::1]:5400")}
	if got := explain(t, s, six); !strings.HasPrefix(got, "[::1]:5400 wild: a new flow") {
		t.Errorf("at the address of a socket for all addresses: %s", got)
	}
}

func TestEndpointOf(t *testing.T) {
	e, err := endpointOf(netip.MustParseAddrPort("[fe80::1%17]:53"))
	if err != nil || e.Scope != 17 || e.Port != 53 {
		t.Errorf("%+v, %v", e, err)
	}
	var refused *control.Error
	if _, err := endpointOf(netip.MustParseAddrPort("[fe80::1%nosuch0]:53")); !errors.As(err, &refused) {
		t.Errorf("an interface that is not there: %v", err)
	}
	if e, err := endpointOf(client); err != nil || e != burst.EndpointOf(client) {
		t.Errorf("%+v, %v", e, err)
	}
}
