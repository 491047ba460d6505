package server

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// standInAfter is how long the sockets of a dead worker wait for its next process
// before a sibling reads them: several times what that takes.
const standInAfter = 100 * time.Millisecond

// orphan says that worker i of g, whose process is gone, reads nothing, nor stands
// in for anybody, and sees to it that somebody reads its sockets in a while.
func (s *Supervisor) orphan(g *generation, i int) {
	var gone uint64
	for j, p := range g.workers {
		if p.proc == nil {
			gone |= 1 << j
		}
	}
	for j := range g.workers {
		v := s.dir.Worker(int(g.Slot), j)
		if j == i || v.StandsIn(i) {
			v.Orphan(gone)
		}
	}
	g.workers[i].died = time.Now()
	s.standIn() // for those that i stood in for
	time.AfterFunc(standInAfter, func() { s.post(s.standIn) })
}

// standIn has a sibling read the sockets of every worker that is dead, or not ready
// again, for long enough. A worker that is ready gets them back without a word of
// the supervisor.
func (s *Supervisor) standIn() {
	for _, g := range s.gens {
		if g == nil || g.ending || len(g.workers) == 1 || !s.stateOf(g).Live() {
			continue
		}
		for i, p := range g.workers {
			v := s.dir.Worker(int(g.Slot), i)
			if s.ready(g, i) || !v.Orphaned() || time.Since(p.died) < standInAfter || !s.hasToRead(g, i) {
				continue
			}
			if j := s.standInFor(g, i); j >= 0 && v.StandIn(j) {
				s.log.Warn("a sibling reads the sockets of a dead worker", "epoch", g.Epoch, "worker", i, "sibling", j)
				s.wakeAll()
			}
		}
	}
}

// hasToRead reports whether some socket of worker i is its generation's to read: one
// that drains has those only that no newer one has.
func (s *Supervisor) hasToRead(g *generation, i int) bool {
	epoch := s.dir.Owner().Epoch()
	return slices.ContainsFunc(g.uses, func(u use) bool {
		return !u.tcp && g.worker(u.socket) == i && s.dir.Reader(epoch, u.id) == int(g.Slot)
	})
}

// standInFor returns the worker of g that is to read the sockets of worker i: of
// those that serve, the next one in turn; -1 if there is none.
func (s *Supervisor) standInFor(g *generation, i int) int {
	for n := 1; n < len(g.workers); n++ {
		j := (i + n) % len(g.workers)
		if p := g.workers[j]; s.ready(g, j) && p.suspect == nil && s.dir.Worker(int(g.Slot), j).Reader(j) == j {
			return j
		}
	}
	return -1
}

// ready reports whether worker i of g lives and is ready to serve.
func (s *Supervisor) ready(g *generation, i int) bool {
	p := g.workers[i]
	return p.proc != nil && s.dir.Worker(int(g.Slot), i).IsReady(g.Epoch, p.proc.PID)
}

// endUnready ends a process that was started again and has not become ready for
// ready_timeout: the next one may. (In a hand-over the machine decides.)
func (s *Supervisor) endUnready(g *generation, p *process) {
	if time.Since(p.started) < g.cfg.Reload.ReadyTimeout {
		return
	}
	s.log.Warn("worker is not ready in time", "epoch", g.Epoch, "worker", p.index, "pid", p.proc.PID, "started", time.Since(p.started).Round(time.Millisecond))
	s.signal(p, unix.SIGKILL)
}
