package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// openWindow carries out OpenWindow. The generation that is to get the wire
// forwards to the one that has it now, and to those that drain already: each of
// their workers is given the rings.
func (s *Supervisor) openWindow(name reload.Generation) {
	g := s.generation(name)
	if g == nil {
		return
	}
	if s.state.Return == reload.NoReturn {
		s.replaces(g)
	}
	g.window = s.dir.NewWindow()
	s.dir.SetWindow(int(g.Slot), g.window)
	for i := range g.workers {
		s.setHeader(g, i, table.Publishing)
	}
	next := s.generation(s.state.Next)
	if next == nil || s.state.Return != reload.NoReturn { // what it forwards to older ones it did before
		return
	}
	for _, o := range s.gens {
		if o == nil || o == next || next.rings[int(o.Slot)] == nil {
			continue
		}
		for _, p := range o.workers {
			if p.link == nil { // when it is back its manifest has them
				continue
			}
			s.sendWindow(o, p, next)
		}
	}
}

// sendWindow tells a worker of o what it needs of a newer generation: so that it
// takes the flows that are forwarded to it and, if the wire comes back, forwards
// those of the newer one.
func (s *Supervisor) sendWindow(o *generation, p *process, next *generation) {
	err := p.link.SendWindow(worker.Window{
		Slot: int(next.Slot), Epoch: next.Epoch, Wakes: next.wakes,
		From: next.rings[int(o.Slot)].region.Fd(), Table: next.region.Fd(), To: o.rings[int(next.Slot)].region.Fd(),
	})
	s.delivered("opening the window of a worker", o, p, err)
}

// delivered logs why a worker was not told something. Where its process has just ended
// that is no news: workerExited says how it did, and the next one is told everything.
func (s *Supervisor) delivered(what string, g *generation, p *process, err error) {
	if err == nil {
		return
	}
	level := slog.LevelError
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, what, "epoch", g.Epoch, "worker", p.index, "error", err)
}

// sayAgain has a worker that has lost a message know all the same.
func (s *Supervisor) sayAgain(g *generation, p *process) {
	s.log.Warn("a worker has lost a message: everything is said again", "epoch", g.Epoch, "worker", p.index)
	s.tellAll(g, p)
}

// tellAll tells a worker all that it was told since its start and still has to know.
func (s *Supervisor) tellAll(g *generation, p *process) {
	send := func(m worker.Message) {
		s.delivered("telling a worker again", g, p, p.link.Send(m))
	}
	for _, o := range s.gens {
		switch {
		case o == nil || o == g:
		case o.Epoch > g.Epoch && o.rings[int(g.Slot)] != nil && g.rings[int(o.Slot)] != nil:
			s.sendWindow(g, p, o)
		}
	}
	switch {
	case g.drainOrder != 0:
		s.sendDrain(g, p)
	case g.Generation == s.state.Active:
		send(worker.Message{Op: worker.OpResume})
	}
	if slot := &s.state.Slots[g.Slot]; slot.Stage == reload.StageReleasing {
		send(worker.Message{Op: worker.OpRelease, Window: g.window})
	}
	if p.zones.sent != nil || p.zones.has != g.catalog {
		p.zones.sent = nil
		s.sendZones(g, p)
	}
	s.traceAgain(g, p)
	if g.ending {
		send(worker.Message{Op: worker.OpQuit})
	}
}

func (s *Supervisor) setHeader(g *generation, i int, st table.State) {
	if err := g.table.SetHeader(i, st, g.window); err != nil {
		s.log.Error("bug: header of a worker", "epoch", g.Epoch, "worker", i, "error", err)
	}
}

// closeWindow carries out CloseWindow.
func (s *Supervisor) closeWindow(name reload.Generation) {
	g := s.generation(name)
	if g == nil || g.window == 0 {
		return
	}
	for i := range g.workers {
		s.setHeader(g, i, table.None)
	}
	g.window = 0
	s.dir.SetWindow(int(g.Slot), 0)
}

// setHanded carries out SetHanded.
func (s *Supervisor) setHanded(f reload.SetHanded) {
	g := s.generation(f.Gen)
	if g == nil || g.window == 0 {
		return
	}
	for i := range f.Workers.All() {
		if g.table.Header(i).State() != table.Handed {
			s.setHeader(g, i, table.Handed)
		}
	}
	s.dir.Changed()
	s.wakeAll()
}

// asked is a lane that owes an answer.
type asked struct {
	slot, lane, worker int
	pid                int
	ask                uint64
	cpu                time.Duration // of its process soon after it was asked
}

// askLanes carries out Ask.
func (s *Supervisor) askLanes(f reload.Ask) {
	if s.state.Phase == reload.PhaseAsking {
		s.hasten(hasteHandover)
	}
	var open []asked
	for slot, set := range f.Workers {
		g := s.gens[slot]
		if g == nil {
			continue
		}
		for i := range set.All() {
			p := g.workers[i]
			if p.proc == nil {
				continue
			}
			for l := range g.cfg.Lanes {
				lane := i*g.cfg.Lanes + l
				open = append(open, asked{slot: slot, lane: lane, worker: i, pid: p.proc.PID, ask: s.dir.Ask(slot, lane)})
			}
		}
	}
	s.wakeAll()
	heartbeat := s.heartbeat()
	var began time.Time // when CPU time was taken down; zero: not yet
	look := func() reload.Event {
		rest := open[:0]
		for _, a := range open {
			v := s.dir.Worker(a.slot, a.worker)
			if s.dir.Answer(a.slot, a.lane) < a.ask && !v.IsGone() && v.PID() == a.pid {
				rest = append(rest, a)
			}
		}
		open = rest
		if len(open) == 0 {
			return reload.LanesAnswered{Order: f.Order}
		}
		if began.IsZero() || time.Since(began) < heartbeat {
			return nil
		}
		var silent reload.Workers
		for _, a := range open {
			if stalled(a.pid, a.cpu, heartbeat) {
				silent[a.slot] |= reload.OneWorker(a.worker)
			}
		}
		if silent.Empty() { // starved is not dead
			return nil
		}
		return reload.Unanswered{Order: f.Order, Silent: silent}
	}
	if e := s.attendLanes(askPatience, look); e != nil {
		s.feed(e)
		return
	}
	for i, a := range open { // only now: nearly always everybody has answered
		if i > 0 && open[i-1].pid == a.pid {
			open[i].cpu = open[i-1].cpu
		} else {
			open[i].cpu = cpuTime(a.pid)
		}
	}
	began = time.Now()
	s.watch(f.Order, askInterval, look)
}

func (s *Supervisor) heartbeat() time.Duration { return s.cfg.Reload.HeartbeatTimeout }

// park carries out Park.
func (s *Supervisor) park(order uint32) {
	// Its deadline names the park: it must differ from that of every other one
	// that a lane may still remember.
	deadline := mono.Millis() + uint32(directory.Lease/time.Millisecond)
	if mono.Age(s.lastDeadline, deadline) >= 0 {
		deadline = s.lastDeadline + 1
	}
	s.lastDeadline = deadline
	word, err := s.dir.Park(deadline)
	if err != nil {
		s.log.Error("parking", "error", err)
		s.feed(reload.ParkLapsed{Order: order})
		return
	}
	type reader struct{ slot, lane, worker int }
	var open []reader
	for _, g := range s.gens {
		if g == nil || !s.dir.Generation(int(g.Slot)).State.MayRead() {
			continue // nor woken: its lanes would only be in the way of those that are to park
		}
		g.wake()
		for lane := range g.lanes() {
			open = append(open, reader{int(g.Slot), lane, lane / g.cfg.Lanes})
		}
	}
	look := func() reload.Event {
		rest := open[:0]
		for _, r := range open {
			if s.dir.Ack(r.slot, r.lane) != word && !s.dir.Worker(r.slot, r.worker).IsGone() {
				rest = append(rest, r)
			}
		}
		open = rest
		switch {
		case s.dir.Owner() != word || word.Lapsed(mono.Millis()):
			return reload.ParkLapsed{Order: order}
		case len(open) == 0:
			return reload.LanesParked{Order: order, Word: word}
		}
		return nil
	}
	if e := s.attendLanes(parkPatience, look); e != nil {
		s.feed(e)
		return
	}
	s.watch(order, parkInterval, look)
}

// flip carries out Flip.
func (s *Supervisor) flip(f reload.Flip) {
	if err := s.dir.Flip(f.Park, f.Gen.Epoch); err != nil {
		s.log.Warn("the flip came too late", "error", err)
		s.feed(reload.FlipLost{Order: f.Order})
		return // a lane has taken the wire back: they are awake
	}
	if g := s.generation(f.Gen); g != nil {
		g.wake() // nobody reads until it does; the others look every millisecond
	}
	s.feed(reload.Flipped{Order: f.Order})
}

// commit carries out Commit.
func (s *Supervisor) commit(f reload.Commit) {
	g := s.generation(f.Gen)
	if g == nil {
		return
	}
	s.sockets.closeIdle()
	err := errors.Join(s.settleTAPs(g), s.sockets.listen(g.uses))
	if g.cfg.Reload.Mode == config.Graceful {
		err = errors.Join(err, s.sockets.join(g.uses, g.lanes()))
	}
	if err != nil {
		// The generation serves all the same, by the sockets that it has.
		s.log.Error("sockets after the commit", "epoch", g.Epoch, "error", err)
	}
	s.commitZones(g)
	s.backends.commit(g.cfg)
	s.checkServers(g.cfg)
	s.cfg, s.loadedAt = g.cfg, time.Now()
	s.writePIDFile()
	s.keeper.open = true
	s.save()
	if r := s.requests[f.Request]; r != nil {
		s.commitRequest(r)
	}
}

// askDrain carries out AskDrain.
func (s *Supervisor) askDrain(f reload.AskDrain) {
	g := s.generation(f.Gen)
	if g == nil {
		return
	}
	g.drainOrder = f.Order
	g.drainAsked = make([]uint32, len(g.workers))
	for i, p := range g.workers {
		g.drainAsked[i] = s.dir.Worker(int(g.Slot), i).AskDrain()
		if p.link == nil {
			continue
		}
		s.sendDrain(g, p)
	}
	if f.Gen == s.state.Active {
		s.sockets.closeUDP(g.uses)
	}
	s.checkDrained(g)
}

// sendDrain tells a worker to drain; one of the owner of the wire, which drains
// only in a stop, to take no new work as well: nobody takes the wire over.
func (s *Supervisor) sendDrain(g *generation, p *process) {
	if g.Generation == s.state.Active {
		s.delivered("stopping a worker", g, p, p.link.Send(worker.Message{Op: worker.OpStop}))
	}
	s.delivered("draining a worker", g, p, p.link.Send(worker.Message{Op: worker.OpDrain}))
}

// resume carries out Resume.
func (s *Supervisor) resume(name reload.Generation) {
	g := s.generation(name)
	if g == nil {
		return
	}
	g.drainOrder = 0
	s.dir.SetDeadline(int(g.Slot), 0)
	for _, p := range g.workers {
		if p.link != nil {
			s.delivered("resuming a worker", g, p, p.link.Send(worker.Message{Op: worker.OpResume}))
		}
	}
}

// checkDrained answers AskDrain when every live worker serves nothing.
func (s *Supervisor) checkDrained(g *generation) {
	if g.drainOrder == 0 || s.gens[g.Slot] != g {
		return
	}
	empty := true
	for i, p := range g.workers {
		if p.proc == nil {
			continue
		}
		r := s.dir.Worker(int(g.Slot), i).Report()
		if r.Asked < g.drainAsked[i] {
			return
		}
		empty = empty && r.Empty()
	}
	empty = empty && s.unaccepted(g) == 0
	s.noteDrainStart(g)
	if !empty {
		s.noteDrain(g)
		return
	}
	order := g.drainOrder
	g.drainOrder = 0
	s.feed(reload.Drained{Order: order})
}

// unaccepted returns how many connections wait on listeners that g reads although
// it does not own the wire: those that the owner lacks.
func (s *Supervisor) unaccepted(g *generation) (n int) {
	if g.Generation == s.state.Active {
		return 0
	}
	epoch := s.dir.Owner().Epoch()
	for _, u := range g.uses {
		if u.tcp && u.listening && u.fd >= 0 && s.dir.Reader(epoch, u.id) == int(g.Slot) {
			if waiting, err := netio.Unaccepted(u.fd); err == nil {
				n += waiting
			}
		}
	}
	return n
}

// The spans of the timers that are no configuration.
const (
	quitTime     = 2 * time.Second // from QUIT to TERM
	termTime     = 2 * time.Second // from TERM to KILL
	stopFastTime = 2 * time.Second
)

// startTimer carries out StartTimer. During a stop no timer runs past the
// stop's end.
func (s *Supervisor) startTimer(f reload.StartTimer) {
	var d time.Duration
	r := s.cfg.Reload
	if g := s.gens[f.Gen.Slot]; g != nil && g.Epoch == f.Gen.Epoch && f.Timer == reload.TimerReady {
		r = g.cfg.Reload
	}
	switch f.Timer {
	case reload.TimerReady, reload.TimerConfirm:
		d = r.ReadyTimeout
	case reload.TimerDrain:
		d = r.ShutdownTimeout
	case reload.TimerQuit:
		d = quitTime
	case reload.TimerTerm:
		d = termTime
	case reload.TimerStop:
		d = r.ShutdownTimeout
		s.stopDeadline = time.Now().Add(d)
	case reload.TimerStopFast:
		d = stopFastTime
		if !s.stopDeadline.IsZero() { // one budget, from the first request
			d = min(d, max(time.Until(s.stopDeadline), 0))
		}
		s.stopDeadline = time.Now().Add(d)
	}
	if f.Timer == reload.TimerDrain {
		if g := s.generation(f.Gen); g != nil {
			if g.drainEnd != 0 { // its time goes on
				d, g.drainEnd = max(mono.Until(g.drainEnd), 0), 0
			}
			g.deadline = time.Now().Add(d)
			s.dir.SetDeadline(int(g.Slot), mono.Millis()+uint32(min(d, 24*time.Hour)/time.Millisecond))
		}
		if !s.stopDeadline.IsZero() {
			d = min(d, max(time.Until(s.stopDeadline), 0))
		}
	}
	s.runTimer(f, d)
}

// oversleeps is how late a timer may be before the supervisor itself must have
// stood still.
const oversleeps = 10 * time.Millisecond

// runTimer has a timer fire after d. What workers do meanwhile is heard only
// while the supervisor runs, so that time in which it was stopped, or got no
// CPU, does not count against them: they get it once more.
func (s *Supervisor) runTimer(f reload.StartTimer, d time.Duration) {
	due := time.Now().Add(d)
	s.timers[f] = time.AfterFunc(d, func() {
		s.post(func() {
			late := time.Since(due)
			patient := f.Timer == reload.TimerReady || f.Timer == reload.TimerConfirm
			if _, running := s.timers[f]; patient && running && late > oversleeps {
				s.runTimer(f, min(late, d))
				return
			}
			delete(s.timers, f)
			s.feed(reload.TimerFired{Timer: f.Timer, Gen: f.Gen})
		})
	})
}

// stopTimer carries out StopTimer.
func (s *Supervisor) stopTimer(f reload.StopTimer) {
	key := reload.StartTimer{Timer: f.Timer, Gen: f.Gen}
	if t := s.timers[key]; t != nil {
		t.Stop()
		delete(s.timers, key)
	}
}

// handleSignal translates the signals of design section 8.
func (s *Supervisor) handleSignal(sig interface{ String() string }) {
	s.log.Info("signal", "signal", sig.String())
	if s.away {
		s.passOn(sig)
		return
	}
	switch sig {
	case unix.SIGHUP:
		if s.standby != nil {
			s.log.Error("reload refused", "reason", s.standby.refusal("a reload"))
			break
		}
		s.requestReload()
	case unix.SIGUSR2:
		s.upgradeBySignal(control.UpgradeStart)
	case unix.SIGWINCH:
		s.upgradeBySignal(control.UpgradeDrainOld)
	case unix.SIGQUIT:
		s.feed(reload.StopRequested{Kind: reload.StopGraceful})
	case unix.SIGTERM:
		s.feed(reload.StopRequested{Kind: reload.StopFast})
	case unix.SIGINT:
		s.feed(reload.StopRequested{Kind: reload.StopNow})
	default:
		s.log.Warn("this signal does nothing here", "signal", sig.String())
	}
}
