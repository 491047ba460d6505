package server

import (
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/worker"
)

// unreleased is a Release under way.
type unreleased struct {
	reload.Release
	g     *generation
	began time.Time
	cpu   map[int]time.Duration // of every worker process when it began, by pid
}

// release carries out Release.
func (s *Supervisor) release(f reload.Release) {
	g := s.generation(f.Gen)
	if g == nil {
		return
	}
	r := &unreleased{Release: f, g: g, began: time.Now(), cpu: make(map[int]time.Duration)}
	for _, o := range s.gens {
		if o == nil {
			continue
		}
		for _, p := range o.workers {
			if p.proc != nil {
				r.cpu[p.proc.PID] = cpuTime(p.proc.PID)
			}
		}
	}
	for _, p := range g.workers {
		if p.link != nil {
			s.delivered("releasing a worker", g, p, p.link.Send(worker.Message{Op: worker.OpRelease, Window: g.window}))
		}
	}
	s.wakeAll()
	s.poll(f.Order, drainInterval, func() (e reload.Event, over bool) {
		if s.generation(f.Gen) != g { // cut off: its rings are no more
			return nil, true
		}
		return s.released(r), false
	})
}

// released returns the answer to r, nil as long as there is none.
func (s *Supervisor) released(r *unreleased) reload.Event {
	if s.dir.Owner().IsPark() { // nobody reads now, nor empties what it leaves
		return nil
	}
	owing := s.owing(r.g)
	s.emptyLeftovers(r.g, &owing)
	if owing.Empty() {
		return reload.RingsReleased{Order: r.Order}
	}
	limit := s.heartbeat()
	if time.Since(r.began) < limit {
		return nil
	}
	silent := s.silentOf(owing, r.cpu, limit)
	if silent.Empty() {
		return nil
	}
	return reload.Unanswered{Order: r.Order, Silent: silent}
}

// silentOf returns those of the workers that will not do what they owe.
func (s *Supervisor) silentOf(owing reload.Workers, cpu map[int]time.Duration, limit time.Duration) (silent reload.Workers) {
	for slot, set := range owing {
		for i := range set.All() {
			p := s.gens[slot].workers[i]
			if p.proc == nil {
				continue
			}
			if before, known := cpu[p.proc.PID]; known && stalled(p.proc.PID, before, limit) {
				silent[slot] |= reload.OneWorker(i)
			}
		}
	}
	return silent
}

// owing returns the workers that still have to empty rings to g, a HANDED
// generation, or from it.
func (s *Supervisor) owing(g *generation) (owing reload.Workers) {
	for i, p := range g.workers {
		if p.proc != nil && s.dir.Worker(int(g.Slot), i).Released() != g.window {
			owing[g.Slot] |= reload.OneWorker(i)
		}
	}
	for _, o := range s.gens {
		if o == nil || o == g {
			continue
		}
		if r := o.rings[int(g.Slot)]; r != nil {
			s.owingOf(&owing, r, o, g)
		}
		if r := g.rings[int(o.Slot)]; r != nil {
			s.owingOf(&owing, r, g, o)
		}
	}
	return owing
}

// owingOf adds the workers that have to empty the rings in r: the consumer of
// each or, if that is dead for good, its producer, who takes back what lies
// there. What both have died over is lost.
func (s *Supervisor) owingOf(owing *reload.Workers, r *ringRegion, from, to *generation) {
	for lane := range r.rings.Lanes() {
		producer := lane / from.cfg.Lanes
		for i := range r.rings.Workers() {
			switch {
			case r.rings.Consumer(lane, i).Empty():
			case s.serves(to, i):
				owing[to.Slot] |= reload.OneWorker(i)
			case s.serves(from, producer):
				owing[from.Slot] |= reload.OneWorker(producer)
			}
		}
	}
}

// emptyLeftovers has siblings empty the sockets that the dead workers of g, a HANDED
// generation, had to themselves: nobody reads those after g, and what waits there
// would be lost. It adds the siblings that have not begun.
func (s *Supervisor) emptyLeftovers(g *generation, owing *reload.Workers) {
	for i, p := range g.workers {
		if p.proc != nil || !s.abandons(g, i) {
			continue
		}
		v := s.dir.Worker(int(g.Slot), i)
		if j := s.standInFor(g, i); v.Orphaned() && j >= 0 && v.StandIn(j) {
			s.log.Warn("a sibling empties the sockets of a dead worker", "epoch", g.Epoch, "worker", i, "sibling", j)
			s.wakeAll()
		}
		// A lane that has joined empties its sockets before it does anything else.
		if j, lanes := v.Joined(); j >= 0 && lanes < g.cfg.Lanes {
			owing[g.Slot] |= reload.OneWorker(j)
		}
	}
}

// abandons reports whether datagrams wait on a socket of worker i of g that no
// generation reads any more.
func (s *Supervisor) abandons(g *generation, i int) bool {
	epoch := s.dir.Owner().Epoch()
	return slices.ContainsFunc(g.uses, func(u use) bool {
		if u.tcp || u.fd < 0 || g.worker(u.socket) != i || !s.dir.Leftover(epoch, u.id, int(g.Slot)) {
			return false
		}
		n, err := netio.Queued(u.fd)
		return err == nil && n > 0
	})
}

// serves reports whether worker i of g lives, or will again.
func (s *Supervisor) serves(g *generation, i int) bool {
	return g.workers[i].proc != nil || g.Generation == s.state.Active
}

// empty reports whether nothing is left in the rings to a worker.
func (r *ringRegion) empty(w int) bool {
	for lane := range r.rings.Lanes() {
		if !r.rings.Consumer(lane, w).Empty() {
			return false
		}
	}
	return true
}
