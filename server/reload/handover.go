package reload

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/directory"
)

// This file is T0 to T2: from a request to the commit, or to the state before.

// enterPreparing begins T0.
func (m *machine) enterPreparing(r ReloadRequested) {
	m.setPhase(PhasePreparing, "")
	m.Request, m.Mode = r.ID, r.Mode
	if m.booting() {
		m.Mode = Graceful
	} else {
		m.emit(Notify{Status: NotifyReloading})
	}
	m.Await = m.order()
	m.emit(Prepare{Order: m.Await, Request: r.ID, Slot: m.freeSlot(), Mode: m.Mode})
}

// enterStarting begins T1. It reports whether p is fit to start.
func (m *machine) enterStarting(p Prepared) bool {
	if p.Epoch <= m.Active.Epoch || p.Workers < 1 || p.Workers > MaxWorkers {
		return false
	}
	m.Next = Generation{Slot: m.freeSlot(), Epoch: p.Epoch}
	m.setPhase(PhaseStarting, "")
	s := &m.Slots[m.Next.Slot]
	*s = Slot{Epoch: p.Epoch, Workers: AllWorkers(p.Workers)}
	m.setStage(s, StageStarting, "")
	if m.handsOver() {
		m.emit(OpenWindow{Gen: m.Active})
	}
	m.emit(SpawnWorkers{Gen: m.Next, Mode: m.Mode})
	m.emit(StartTimer{Timer: TimerReady, Gen: m.Next})
	return true
}

// started ends T1: every new worker is READY.
func (m *machine) started() {
	m.emit(StopTimer{Timer: TimerReady, Gen: m.Next})
	if m.handsOver() {
		m.enterAsking("every worker is ready")
		return
	}
	m.emit(Mark{Gen: m.Next, State: directory.Active})
	m.emit(SetOwner{Gen: m.Next})
	m.newOwner()
	m.commit(Done, "")
}

// enterAsking begins T2, or begins it again after a lapse. Of the readers only
// those that are up are asked; the others are fenced next. The new lanes are
// asked too: better to find out now than after the flip.
func (m *machine) enterAsking(reason string) {
	m.setPhase(PhaseAsking, reason)
	ask := workers(m.Active, m.slot(m.Active).Up)
	ask[m.Next.Slot] = m.slot(m.Next).Workers
	m.Await = m.order()
	m.emit(Ask{Order: m.Await, Workers: ask})
}

// asked goes on to the park, past a fence around those who cannot be trusted
// to stay away from the wire.
func (m *machine) asked(silent Workers) {
	if set := silent[m.Next.Slot]; set != 0 {
		m.abort(fmt.Sprintf("workers %v of epoch %d do not answer", set, m.Next.Epoch))
		return
	}
	s := m.slot(m.Active)
	s.Up &^= silent[m.Active.Slot]
	if down := s.Workers &^ s.Up; down != 0 {
		m.enterFencing(down)
		return
	}
	m.enterParking()
}

func (m *machine) enterFencing(down WorkerSet) {
	m.setPhase(PhaseFencing, fmt.Sprintf("workers %v are silent or down", down))
	m.Await = m.order()
	m.emit(Fence{Order: m.Await, Workers: workers(m.Active, down)})
}

func (m *machine) enterParking() {
	m.setPhase(PhaseParking, "")
	m.Await = m.order()
	m.emit(Park{Order: m.Await})
}

// enterFlipping orders the flip from the park that was acknowledged. The
// states in the directory change while everybody is parked, so that the first
// packet after the flip is dispatched by them.
func (m *machine) enterFlipping(park directory.Word) {
	m.setPhase(PhaseFlipping, "every lane is parked")
	m.emit(Mark{Gen: m.Next, State: directory.Active})
	m.emit(Mark{Gen: m.Active, State: directory.Draining})
	m.Await = m.order()
	m.emit(Flip{Order: m.Await, Park: park, Gen: m.Next})
}

// flipLost: a lapse was first. Whatever made an abort necessary while the
// outcome was open is done now.
func (m *machine) flipLost() {
	m.emit(Mark{Gen: m.Active, State: directory.Active})
	m.emit(Mark{Gen: m.Next, State: directory.Starting})
	next := m.slot(m.Next)
	switch {
	case m.Stop != NotStopping:
		m.abort(stopRequested)
	case next.Up != next.Workers:
		m.abort(fmt.Sprintf("workers %v of epoch %d died before the flip", next.Workers&^next.Up, next.Epoch))
	default:
		m.lapsed()
	}
}

// lapsed tries again, from the ask on: a lane that did not acknowledge may have
// stopped after it answered.
func (m *machine) lapsed() {
	if m.Lapses++; m.Lapses > MaxRetries {
		m.abort(fmt.Sprintf("%d parks lapsed", m.Lapses))
		return
	}
	m.enterAsking("the park lapsed")
}

// flipped: the new generation owns the wire; there is no way back.
func (m *machine) flipped() {
	old := m.slot(m.Active)
	m.newOwner()
	m.setStage(old, StageDraining, "flipped")
	if dead := old.Workers &^ old.Up; dead != 0 {
		m.emit(SetHanded{Gen: m.generation(old), Workers: dead})
	}
	if m.Stop != NotStopping {
		m.enterStopping()
		return
	}
	m.enterConfirming()
}

// newOwner makes Next the active generation.
func (m *machine) newOwner() {
	m.Active, m.Next = m.Next, Generation{}
	m.setStage(m.slot(m.Active), StageActive, "owns the wire")
}

// enterConfirming asks the new owner for a sign of life.
func (m *machine) enterConfirming() {
	m.setPhase(PhaseConfirming, "flipped")
	m.emit(StartTimer{Timer: TimerConfirm, Gen: m.Active})
	s := m.slot(m.Active)
	m.respawn(s.Workers &^ s.Up)
	m.confirm()
}

// confirm asks, once every worker is up: a dead one counts as answered, and
// must not commit for the living.
func (m *machine) confirm() {
	m.Await = 0
	if s := m.slot(m.Active); s.Up == s.Workers {
		m.Await = m.order()
		m.emit(Ask{Order: m.Await, Workers: workers(m.Active, s.Up)})
	}
}

// commit ends T2. The outcome is what the reload reports when the old
// generation is gone.
func (m *machine) commit(o Outcome, reason string) {
	if m.Phase == PhaseConfirming {
		m.emit(StopTimer{Timer: TimerConfirm, Gen: m.Active})
	}
	m.emit(Commit{Gen: m.Active, Request: m.Request})
	if old := m.replaced(); old != nil {
		old.Request, old.Outcome, old.Reason = m.Request, o, reason
		if m.Mode == Restart {
			old.Reason = "restart"
			m.enterReaping(old, SignalTerm)
		} else {
			m.startDrain(old)
		}
	} else {
		m.report(m.Request, o, reason)
	}
	m.Request = 0
	m.enterSteady("committed")
}

// enterSteady begins the time between hand-overs, which is over at once if a
// reload is pending and may start.
func (m *machine) enterSteady(reason string) {
	m.setPhase(PhaseSteady, reason)
	m.Mode, m.Lapses = Graceful, 0
	m.emit(Notify{Status: NotifyReady})
	m.startPending()
}

func (m *machine) startPending() {
	if m.Pending.ID != 0 && m.draining() < MaxDraining {
		r := m.Pending
		m.Pending = ReloadRequested{}
		m.enterPreparing(r)
	}
}

// abort gives the hand-over up, before the flip. The service of the old
// generation is restored first.
func (m *machine) abort(reason string) {
	if m.Phase == PhasePreparing {
		m.emit(CancelPrepare{Order: m.Await})
		m.fail(Failed, reason)
		return
	}
	if m.Phase == PhaseStarting {
		m.emit(StopTimer{Timer: TimerReady, Gen: m.Next})
	}
	if m.Phase == PhaseParking {
		m.emit(Unpark{})
	}
	m.enterAborting(reason)
}

// enterAborting ends the new generation. Its slot takes the report along.
func (m *machine) enterAborting(reason string) {
	m.setPhase(PhaseAborting, reason)
	if m.handsOver() {
		m.emit(CloseWindow{Gen: m.Active})
	}
	if !m.booting() {
		s := m.slot(m.Active)
		m.respawn(s.Workers &^ s.Up)
	}
	next := m.slot(m.Next)
	next.Request, next.Outcome, next.Reason = m.Request, Failed, reason
	m.Request = 0
	m.enterReaping(next, SignalKill)
}

// fail reports a reload that ended in T0.
func (m *machine) fail(o Outcome, reason string) {
	m.report(m.Request, o, reason)
	m.Request = 0
	m.resume(reason)
}

// resume goes on after a failure as if the reload had not been asked for;
// without a generation that serves, the failure was the boot's.
func (m *machine) resume(reason string) {
	m.Next = Generation{}
	switch {
	case m.booting() && m.Stop != NotStopping:
		m.enterExited(0, reason)
	case m.booting():
		m.enterExited(1, reason)
	case m.Stop != NotStopping:
		m.enterStopping()
	default:
		m.enterSteady(reason)
	}
}

// respawn brings workers of the active generation back.
func (m *machine) respawn(set WorkerSet) {
	for i := range set.All() {
		m.emit(RespawnWorker{Gen: m.Active, Worker: i})
	}
}

// replaceSilent fences workers of the active generation that do not answer,
// and brings them back unless all is being stopped.
func (m *machine) replaceSilent(order uint32, silent Workers) {
	s := m.slot(m.Active)
	set := silent[m.Active.Slot] & s.Workers
	s.Up &^= set
	m.emit(Fence{Order: order, Workers: workers(m.Active, set)})
	if m.Phase != PhaseStopping {
		m.respawn(set)
	}
}

// booting reports whether there is no generation that owns the wire.
func (m *machine) booting() bool { return m.Active == Generation{} }

// handsOver reports whether the hand-over in progress has a window.
func (m *machine) handsOver() bool { return m.Mode == Graceful && !m.booting() }

// replaced returns the generation that has lost the wire and is not draining
// yet, nil if there is none.
func (m *machine) replaced() *Slot {
	for i := range m.Slots {
		s := &m.Slots[i]
		if s.Epoch != m.Active.Epoch && (s.Stage == StageActive || s.Stage == StageDraining && s.Await == 0) {
			return s
		}
	}
	return nil
}

// freeSlot returns the first free slot. There is one: MaxDraining leaves room
// for the active generation and the next.
func (m *machine) freeSlot() uint8 {
	for i := range m.Slots {
		if m.Slots[i].Stage == StageFree {
			return uint8(i)
		}
	}
	panic("reload: no free slot")
}
