package server

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/netio"
)

// How often the supervisor looks whether traffic waits for a worker that does
// not move: more often while there is traffic, or an answer is owed. It asks a
// worker only when some waits, or may wait where only the worker sees it, in its
// connections: an idle one is left alone.
const (
	monitorBusy = 50 * time.Millisecond
	monitorIdle = 500 * time.Millisecond
	busyFor     = time.Second // after the last burst
)

// suspect is a worker that has been asked for a sign of life because traffic
// waits for it.
type suspect struct {
	pid   int
	cpu   time.Duration // of the process when it was asked
	since time.Time
	lanes []asked
}

// monitor looks at the workers, now and then, until the supervisor ends. Within
// the loop.
func (s *Supervisor) monitor() {
	if s.away {
		return
	}
	s.standIn()
	owed := s.lookAtWorkers()
	next := monitorIdle
	if owed || time.Since(s.lastTraffic) < busyFor {
		next = monitorBusy
	}
	time.AfterFunc(next, func() { s.post(s.monitor) })
}

// lookAtWorkers asks the workers that traffic waits for, and ends those that
// have not answered for heartbeat_timeout and will not: the machine has them
// replaced. It reports whether an answer is owed.
func (s *Supervisor) lookAtWorkers() (owed bool) {
	if s.dir.Owner().IsPark() {
		return false
	}
	for _, g := range s.gens {
		if g == nil || g.ending || !s.stateOf(g).Live() {
			continue
		}
		waiting := s.waiting(g)
		for i, p := range g.workers {
			if p.suspect != nil && (p.proc == nil || p.suspect.pid != p.proc.PID) {
				p.suspect = nil // it has ended
			}
			switch {
			case p.proc == nil:
			case !s.ready(g, i):
				s.endUnready(g, p)
			case p.suspect != nil:
				s.judge(g, p)
			case waiting[i]:
				s.suspect(g, p)
			}
			owed = owed || p.suspect != nil
		}
	}
	return owed
}

// waiting says for which workers of g traffic waits, or may wait, that they had
// time to take: on a socket of a lane that has received nothing since the last
// look, in the queue of a listener, in a ring or, for all that is known here, on a
// connection.
func (s *Supervisor) waiting(g *generation) []bool {
	waiting := make([]bool, len(g.workers))
	epoch := s.dir.Owner().Epoch()
	idle := make([]bool, g.lanes())
	for lane := range idle {
		n := s.counters.Block(int(g.Slot), lane).Load(counters.Bursts)
		idle[lane] = n == g.bursts[lane]
		if !idle[lane] {
			s.lastTraffic = time.Now()
		}
		g.bursts[lane] = n
	}
	for _, u := range g.uses {
		switch {
		case u.isQueue(): // nobody sees from here whether something waits in it
			w := g.worker(u.socket)
			waiting[w] = waiting[w] || idle[w]
		case u.fd < 0 || s.dir.Reader(epoch, u.id) != int(g.Slot):
		case u.tcp && u.listening:
			if n, err := netio.Unaccepted(u.fd); err == nil && n > 0 { // any lane may take them
				for lane, is := range idle {
					waiting[lane/g.cfg.Lanes] = waiting[lane/g.cfg.Lanes] || is
				}
			}
		case !u.tcp && u.lane < len(idle):
			// Of a dead worker a sibling may read it, by the lane with the same number.
			w := u.lane / g.cfg.Lanes
			r := s.dir.Worker(int(g.Slot), w).Reader(w)
			if r < 0 || r >= len(waiting) || !idle[r*g.cfg.Lanes+u.lane%g.cfg.Lanes] {
				continue
			}
			if n, err := netio.Queued(u.fd); err == nil && n > 0 {
				waiting[r] = true
				s.lastTraffic = time.Now()
			}
		}
	}
	for i, p := range g.workers {
		if time.Since(p.asked) >= monitorIdle && s.connections(g, i) > 0 {
			for _, is := range idle[i*g.cfg.Lanes : (i+1)*g.cfg.Lanes] {
				waiting[i] = waiting[i] || is
			}
		}
	}
	for _, o := range s.gens {
		if o == nil || o.rings[int(g.Slot)] == nil {
			continue
		}
		r := o.rings[int(g.Slot)]
		for w := range r.rings.Workers() {
			waiting[w] = waiting[w] || !r.empty(w)
		}
	}
	return waiting
}

// connections returns how many connections worker i of g has open.
func (s *Supervisor) connections(g *generation, i int) (n uint64) {
	for lane := i * g.cfg.Lanes; lane < (i+1)*g.cfg.Lanes; lane++ {
		b := s.counters.Block(int(g.Slot), lane)
		closed := b.Load(counters.TCPClosed) // first: whatever is closed was accepted
		n += b.Load(counters.TCPAccepted) - closed
	}
	return n
}

// closeConnections counts the connections of a dead worker as closed: the kernel
// has closed them, and there is nobody else who counts for its lanes.
func (s *Supervisor) closeConnections(g *generation, i int) {
	for lane := i * g.cfg.Lanes; lane < (i+1)*g.cfg.Lanes; lane++ {
		b := s.counters.Block(int(g.Slot), lane)
		b.Add(counters.TCPClosed, b.Load(counters.TCPAccepted)-b.Load(counters.TCPClosed))
	}
}

// suspect asks every lane of p for a sign of life.
func (s *Supervisor) suspect(g *generation, p *process) {
	p.asked = time.Now()
	x := &suspect{pid: p.proc.PID, cpu: cpuTime(p.proc.PID), since: time.Now()}
	for l := range g.cfg.Lanes {
		lane := p.index*g.cfg.Lanes + l
		x.lanes = append(x.lanes, asked{slot: int(g.Slot), lane: lane, worker: p.index, ask: s.dir.Ask(int(g.Slot), lane)})
		netio.Wake(g.wakes[lane])
	}
	p.suspect = x
}

// judge clears a suspect that has answered, and ends one that will not.
func (s *Supervisor) judge(g *generation, p *process) {
	x := p.suspect
	open := false
	for _, a := range x.lanes {
		open = open || s.dir.Answer(a.slot, a.lane) < a.ask
	}
	if !open {
		p.suspect = nil
		return
	}
	limit := s.heartbeat()
	if time.Since(x.since) < limit || !stalled(x.pid, x.cpu, limit) {
		return
	}
	s.log.Warn("worker does not answer while traffic waits for it", "epoch", g.Epoch, "worker", p.index, "pid", x.pid, "asked", time.Since(x.since).Round(time.Millisecond))
	p.suspect = nil
	s.fenced++
	s.signal(p, unix.SIGKILL)
}
