package server

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/netio"
)

// How often the supervisor looks whether traffic waits for a worker that does
// not move: more often while there is traffic. It asks a worker only when some
// waits: an idle one is left alone.
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
	s.lookAtWorkers()
	next := monitorIdle
	if time.Since(s.lastTraffic) < busyFor {
		next = monitorBusy
	}
	time.AfterFunc(next, func() { s.post(s.monitor) })
}

// lookAtWorkers asks the workers that traffic waits for, and ends those that
// have not answered for heartbeat_timeout and will not: the machine has them
// replaced.
func (s *Supervisor) lookAtWorkers() {
	if s.dir.Owner().IsPark() {
		return
	}
	for _, g := range s.gens {
		if g == nil || g.ending || !s.stateOf(g).Live() {
			continue
		}
		waiting := s.waiting(g)
		for i, p := range g.workers {
			switch {
			case p.proc == nil:
				p.suspect = nil
			case p.suspect != nil && p.suspect.pid == p.proc.PID:
				s.judge(g, p)
			case waiting[i]:
				s.suspect(g, p)
			}
		}
	}
}

// waiting says for which workers of g traffic waits that they had time to take:
// on a socket of a lane that has received nothing since the last look, or in a
// ring.
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
		if u.tcp || u.fd < 0 || u.lane >= len(idle) || !idle[u.lane] || s.dir.Reader(epoch, u.id) != int(g.Slot) {
			continue
		}
		if n, err := netio.Queued(u.fd); err == nil && n > 0 {
			waiting[u.lane/g.cfg.Lanes] = true
			s.lastTraffic = time.Now()
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

// suspect asks every lane of p for a sign of life.
func (s *Supervisor) suspect(g *generation, p *process) {
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
	s.signal(p, unix.SIGKILL)
}
