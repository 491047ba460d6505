package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Every count of a generation is the sum over its lanes, and the total counts
// those that are gone, too.
func TestTraffic(t *testing.T) {
	s := twoGenerations(t)
	var err error
	if s.counters, err = counters.Format(shm.Heap(counters.RegionSize)); err != nil {
		t.Fatal(err)
	}
	s.cfg = s.gens[1].cfg
	s.state.Phase = reload.PhaseSteady
	count := func(slot, lane int, n uint64) {
		b := s.counters.Block(slot, lane)
		b.Add(counters.Received, 7*n)
		b.Add(counters.Served, n)
		b.Add(counters.Sibling, n)
		b.Add(counters.ForwardedTo, n)
		b.Add(counters.ForwardedTo+3, n)
		b.Add(counters.Dropped+counters.ID(counters.DropShort), n)
		b.Add(counters.Dropped+counters.ID(counters.DropLimit), 2*n)
		b.Add(counters.DroppedRing+counters.ID(counters.DropSend), 3*n)
		b.Add(counters.ServedRing, 4*n)
		b.Add(counters.TCPAccepted, 5*n)
		b.Add(counters.TCPClosed, 4*n)
		b.Add(counters.TCPQueries, 6*n)
	}
	counts := func(n uint64) control.Counts {
		return control.Counts{
			Received: 7 * n, Served: n, Sibling: n, Forwarded: 2 * n, Dropped: 6 * n, Ring: 4 * n, Accepted: 5 * n, Messages: 6 * n,
		}
	}
	count(2, 0, 1000) // of a generation that is gone
	s.counters.Fold(2, 5, 2)
	count(0, 0, 1)
	count(0, 1, 2)
	count(1, 1, 10)
	record(s, s.gens[0], 1, who, mono.Millis())

	got, err := s.Traffic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(counts(1013), got.Total); d != "" {
		t.Errorf("total differs (-want +got):\n%s", d)
	}
	if len(got.Generations) != 2 {
		t.Fatalf("%d generations", len(got.Generations))
	}
	for i, want := range []control.GenerationTraffic{
		{Epoch: 7, State: "active", RxOwner: true, Workers: 2, Load: &control.Load{TCP: 10}, Counts: counts(10)},
		{Epoch: 6, State: "draining", Workers: 2, Load: &control.Load{Flows: 1, TCP: 3}, Counts: counts(3)},
	} {
		g := got.Generations[i]
		if (g.Drain != nil) != (want.State == "draining") {
			t.Errorf("epoch %d has the drain %+v", g.Epoch, g.Drain)
		}
		g.Drain = nil
		if d := cmp.Diff(want, g); d != "" {
			t.Errorf("epoch %d differs (-want +got):\n%s", g.Epoch, d)
		}
	}
}
