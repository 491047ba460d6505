package reload

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/directory"
)

// This file is T0 to T2: from a request to the commit, or to the state before.
// What it does from PhaseAsking to PhaseFlipping serves a return as well.

// enterPreparing begins T0.
func (m *machine) enterPreparing(r ReloadRequested) {
	m.setPhase(PhasePreparing, "")
	m.Request, m.Mode = r.ID, r.Mode
	if m.booting() {
		m.Mode = Graceful
	} else {
		m.emit(Notify{Status: NotifyReloading})
	}
	slot, free := m.freeSlot()
	if !free {
		panic("reload: no free slot")
	}
	m.Next = Generation{Slot: slot}
	m.Await = m.order()
	m.emit(Prepare{Order: m.Await, Request: r.ID, Slot: slot, Mode: m.Mode})
}

// enterStarting begins T1. It reports whether p is fit to start.
func (m *machine) enterStarting(p Prepared) bool {
	if p.Workers < 1 || p.Workers > MaxWorkers {
		return false
	}
	for i := range m.Slots {
		if p.Epoch <= m.Slots[i].Epoch || p.Epoch == 0 {
			return false
		}
	}
	m.Next.Epoch = p.Epoch
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

// enterAsking begins T2, or begins it again after a lapse. Whoever may read is
// asked, an older generation too, for it may have a listener to itself; of the
// owner only those workers that are up, the others are fenced next. The new
// lanes are asked as well: better to find out now than after the flip.
func (m *machine) enterAsking(reason string) {
	m.setPhase(PhaseAsking, reason)
	var ask Workers
	for i := range m.Slots {
		switch s := &m.Slots[i]; s.Stage {
		case StageStarting, StageActive, StageDraining, StageHanding:
			ask[i] = s.Up
		default: // the others read nothing
		}
	}
	m.Await = m.order()
	m.emit(Ask{Order: m.Await, Workers: ask})
}

// asked goes on to the park, past a fence around those who cannot be trusted
// to stay away from the wire.
func (m *machine) asked(silent Workers) {
	if set := silent[m.Next.Slot]; set != 0 && m.Return == NoReturn {
		m.abort(fmt.Sprintf("workers %v of epoch %d do not answer", set, m.Next.Epoch))
		return
	}
	s := m.slot(m.Active)
	s.Up &^= silent[m.Active.Slot]
	down := silent
	down[m.Active.Slot] = s.Workers &^ s.Up
	if !down.Empty() {
		m.enterFencing(down)
		return
	}
	m.enterParking()
}

func (m *machine) enterFencing(down Workers) {
	m.setPhase(PhaseFencing, fmt.Sprintf("workers %v are silent or down", down))
	m.Await = m.order()
	m.emit(Fence{Order: m.Await, Workers: down})
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
	next := m.slot(m.Next)
	if m.Return != NoReturn {
		m.emit(Mark{Gen: m.Next, State: directory.Draining})
		m.handDead(next)
	} else {
		m.emit(Mark{Gen: m.Next, State: directory.Starting})
	}
	switch {
	case m.Stop != NotStopping:
		m.abort(stopRequested)
	case m.Return != NoReturn && next.Up == 0:
		m.abort(workersDead)
	case m.Return == NoReturn && next.Up != next.Workers:
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

// flipped: Next owns the wire.
func (m *machine) flipped() {
	old := m.slot(m.Active)
	m.newOwner()
	m.setStage(old, StageDraining, "flipped")
	m.handDead(old)
	switch {
	case m.Return != NoReturn:
		m.returned(old)
	case m.Stop != NotStopping:
		m.enterStopping()
	default:
		m.enterConfirming()
	}
}

// handDead sees to it that nothing is forwarded to the dead workers of s.
func (m *machine) handDead(s *Slot) {
	if dead := s.Workers &^ s.Up; dead != 0 {
		m.emit(SetHanded{Gen: m.generation(s), Workers: dead})
	}
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

// startPending starts the reload that is pending, if there is one and a slot
// for it. Else the generation that keeps the slot is asked to finish.
func (m *machine) startPending() {
	r := m.Pending
	if r.ID == 0 {
		return
	}
	if _, free := m.freeSlot(); free {
		m.Pending = ReloadRequested{}
		m.enterPreparing(r)
		return
	}
	oldest := m.oldest()
	switch {
	case r.Overlap == RefuseOverlap:
		m.Pending = ReloadRequested{}
		m.report(r.ID, Refused, fmt.Sprintf("reload.overlap: epoch %d is still %v, and %d generations are the most",
			oldest.Epoch, oldest.Stage, MaxSlots))
	case m.inDrain(oldest):
		m.enterHanding(oldest, "finished for a newer generation")
	}
}

// abort gives the hand-over up, before the flip. The service of the owner is
// restored first.
func (m *machine) abort(reason string) {
	if m.Return != NoReturn {
		m.giveUpReturn(reason)
		return
	}
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

// replaceSilent fences workers that do not answer, and brings those of the
// active generation back, unless all is being stopped or the wire is being taken
// from it.
func (m *machine) replaceSilent(order uint32, silent Workers) {
	s := m.slot(m.Active)
	set := silent[m.Active.Slot] & s.Workers
	s.Up &^= set
	m.emit(Fence{Order: order, Workers: silent})
	if m.Phase != PhaseStopping && !m.takingWire() {
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

// freeSlot returns the first free slot, if there is one.
func (m *machine) freeSlot() (slot uint8, free bool) {
	for i := range m.Slots {
		if m.Slots[i].Stage == StageFree {
			return uint8(i), true
		}
	}
	return 0, false
}
