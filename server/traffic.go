package server

import (
	"context"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
)

// recentEvents is how many events Traffic shows.
const recentEvents = 8

// Traffic implements control.Backend.
func (s *Supervisor) Traffic(ctx context.Context) (*control.Traffic, error) {
	var t *control.Traffic
	if err := s.ask(ctx, func() { t = s.traffic() }); err != nil {
		return nil, err // the loop may still be writing t
	}
	return t, nil
}

func (s *Supervisor) traffic() *control.Traffic {
	now := time.Now()
	snap := s.snapshot()
	t := &control.Traffic{
		Name: s.cfg.Name, Time: now, Uptime: control.Millis(now.Sub(s.started)), Step: s.currentStep(),
		Total: countsOf(snap.Load), Recent: s.journal.last(recentEvents),
	}
	t.Total.KernelDropped = snap.Load(counters.KernelDrops)
	if r := s.underway(); r != nil && r.id != bootRequest {
		t.Reload, t.Elapsed = r.id, control.Millis(now.Sub(r.began))
	}
	for _, g := range s.gens {
		if g != nil {
			t.Generations = append(t.Generations, s.generationTraffic(g))
		}
	}
	slices.SortFunc(t.Generations, func(a, b control.GenerationTraffic) int { return int(b.Epoch) - int(a.Epoch) })
	return t
}

func (s *Supervisor) generationTraffic(g *generation) control.GenerationTraffic {
	state := s.stateOf(g)
	c := control.GenerationTraffic{
		Epoch: g.Epoch, State: state.String(), RxOwner: s.dir.Owner().Epoch() == g.Epoch, Workers: len(g.workers),
	}
	for i, p := range g.workers {
		if p.proc != nil && s.dir.Worker(int(g.Slot), i).IsReady(g.Epoch, p.proc.PID) {
			c.Ready++
		}
	}
	c.Load, _ = s.serving(g)
	if leaves(state) {
		c.Drain = s.drain(g)
	}
	c.Counts = countsOf(func(id counters.ID) (n uint64) {
		for lane := range g.lanes() {
			n += s.counters.Block(int(g.Slot), lane).Load(id)
		}
		return n
	})
	return c
}

// countsOf reads the counts by load.
func countsOf(load func(counters.ID) uint64) control.Counts {
	c := control.Counts{
		Received: load(counters.Received), Served: load(counters.Served), Sibling: load(counters.Sibling),
		Ring: load(counters.ServedRing), Accepted: load(counters.TCPAccepted), Messages: load(counters.TCPQueries),
	}
	for i := range counters.ID(counters.NumSlots) {
		c.Forwarded += load(counters.ForwardedTo + i)
	}
	for r := range counters.ID(counters.NumReasons) {
		c.Dropped += load(counters.Dropped+r) + load(counters.DroppedRing+r)
	}
	return c
}
