package reload

import "fmt"

// Step returns the state after e, and what has to be done. An event that does
// not fit s yields one LogIllegal and leaves s as it is; one that comes late
// yields nothing.
func Step(s State, e Event) (State, []Effect) {
	m := machine{State: s}
	if !m.handle(e) {
		return s, []Effect{LogIllegal{Event: e, Phase: s.Phase}}
	}
	return m.State, m.effects
}

// machine is one Step in progress.
type machine struct {
	State
	effects []Effect
}

// handle reports whether e is legal; if not, it has changed nothing.
func (m *machine) handle(e Event) bool {
	if m.Phase == PhaseExited {
		return true
	}
	switch e := e.(type) {
	case ReloadRequested:
		return m.reloadRequested(e)
	case AbortRequested:
		return m.abortRequested(e)
	case DrainNowRequested:
		return m.drainNowRequested(e)
	case StopRequested:
		return m.stopRequested(e)
	case Adopted:
		return m.adopt(e)
	case WorkerReady:
		return m.workerReady(e)
	case WorkerExited:
		return m.workerExited(e)
	case WorkersLost:
		m.workersLost(e)
		return true
	case ProcessesGone:
		return m.processesGone(e)
	case TimerFired:
		return m.timerFired(e)
	case answer:
		return m.answered(e)
	}
	return false
}

// answered finds who waits for the answer: the phase, a slot or, if it is
// late, nobody.
func (m *machine) answered(e answer) bool {
	order := e.order()
	if order == 0 || order > m.Orders {
		return false
	}
	if order == m.Await {
		return m.phaseAnswered(e)
	}
	for i := range m.Slots {
		if order == m.Slots[i].Await {
			return m.stageAnswered(&m.Slots[i], e)
		}
	}
	return true
}

// phaseAnswered takes the answer that the phase waits for.
func (m *machine) phaseAnswered(e answer) bool {
	switch m.Phase {
	case PhasePreparing:
		switch e := e.(type) {
		case Prepared:
			return m.enterStarting(e)
		case PrepareFailed:
			m.fail(Refused, e.Reason)
			return true
		}
	case PhaseAsking:
		switch e := e.(type) {
		case LanesAnswered:
			m.asked(Workers{})
			return true
		case Unanswered:
			m.asked(e.Silent)
			return true
		}
	case PhaseFencing:
		if e, ok := e.(Fenced); ok {
			m.slot(m.Active).Up &^= e.Workers[m.Active.Slot]
			m.enterParking()
			return true
		}
	case PhaseParking:
		switch e := e.(type) {
		case LanesParked:
			m.enterFlipping(e.Word)
			return true
		case ParkLapsed:
			m.emit(Unpark{})
			m.lapsed()
			return true
		}
	case PhaseFlipping:
		switch e.(type) {
		case Flipped:
			m.flipped()
			return true
		case FlipLost:
			m.flipLost()
			return true
		}
	case PhaseConfirming:
		switch e := e.(type) {
		case LanesAnswered:
			m.commit(Done, "")
			return true
		case Unanswered:
			m.replaceSilent(m.order(), e.Silent)
			m.confirm()
			return true
		}
	default: // the others wait for no answer
	}
	return false
}

// stageAnswered takes the answer that the stage of a slot waits for.
func (m *machine) stageAnswered(s *Slot, e answer) bool {
	switch s.Stage {
	case StageDraining:
		if _, ok := e.(Drained); ok {
			m.drained(s)
			return true
		}
	case StageHanding:
		switch e := e.(type) {
		case LanesAnswered, Fenced:
			m.enterReleasing(s)
			return true
		case Unanswered:
			s.Await = m.order()
			m.replaceSilent(s.Await, e.Silent)
			return true
		}
	case StageReleasing:
		switch e := e.(type) {
		case RingsReleased:
			m.enterReaping(s, SignalQuit)
			return true
		case Unanswered:
			s.Await = m.order()
			m.replaceSilent(s.Await, e.Silent)
			return true
		case Fenced:
			m.enterReleasing(s)
			return true
		}
	default: // the others wait for no answer
	}
	return false
}

// reloadRequested starts a reload, puts it behind the one in progress, or
// refuses it.
func (m *machine) reloadRequested(e ReloadRequested) bool {
	switch {
	case e.ID == 0:
		return false
	case m.Stop != NotStopping:
		m.report(e.ID, Refused, "the server is stopping")
	case m.Phase == PhaseDown:
		m.enterPreparing(e)
	case m.Pending.ID == 0:
		m.Pending = e
		if m.Phase == PhaseSteady {
			m.startPending()
		}
	default:
		m.Pending.Mode, m.Pending.Overlap = e.Mode, e.Overlap
		m.emit(Report{ID: e.ID, Outcome: Joined, Epoch: m.Active.Epoch, Into: m.Pending.ID})
	}
	return true
}

// abortRequested gives up a hand-over that has not flipped, or a reload that
// waits for a slot.
func (m *machine) abortRequested(e AbortRequested) bool {
	switch {
	case e.ID == 0:
		return false
	case m.abortable() && m.Return == NoReturn:
		m.abort("aborted on request")
		m.report(e.ID, Done, "")
	case m.Phase == PhaseSteady && m.Pending.ID != 0:
		m.report(m.Pending.ID, Failed, "aborted on request")
		m.Pending = ReloadRequested{}
		m.report(e.ID, Done, "")
	case m.takingWire() || m.Phase == PhaseConfirming:
		m.report(e.ID, Refused, "too late: the wire is changing hands")
	default:
		m.report(e.ID, Refused, "no reload is in progress that could be given up")
	}
	return true
}

// drainNowRequested ends the drain of one generation.
func (m *machine) drainNowRequested(e DrainNowRequested) bool {
	if e.ID == 0 {
		return false
	}
	for i := range m.Slots {
		s := &m.Slots[i]
		if s.Epoch == e.Epoch && m.inDrain(s) {
			m.enterHanding(s, "ended on request")
			m.report(e.ID, Done, "")
			return true
		}
	}
	m.report(e.ID, Refused, fmt.Sprintf("epoch %d is not draining", e.Epoch))
	return true
}

// workerReady notes that a worker is up, which may complete T1 or let a
// question be asked that waited for it.
func (m *machine) workerReady(e WorkerReady) bool {
	s := m.slot(e.Gen)
	if s == nil {
		return true
	}
	if e.Worker < 0 || !s.Workers.Has(e.Worker) {
		return false
	}
	s.Up |= OneWorker(e.Worker)
	switch {
	case e.Gen == m.Next && m.Phase == PhaseStarting && s.Up == s.Workers:
		m.started()
	case e.Gen == m.Active && m.Phase == PhaseAsking:
		m.enterAsking("a worker is back")
	case e.Gen == m.Active && m.Phase == PhaseConfirming:
		m.confirm()
	}
	return true
}

// workerExited notes that a worker is down. What follows depends on whose it
// was.
func (m *machine) workerExited(e WorkerExited) bool {
	s := m.slot(e.Gen)
	if s == nil {
		return true
	}
	if e.Worker < 0 || !s.Workers.Has(e.Worker) {
		return false
	}
	wasUp := s.Up.Has(e.Worker)
	s.Up &^= OneWorker(e.Worker)
	switch s.Stage {
	case StageStarting:
		if m.abortable() { // in PhaseFlipping its outcome decides
			m.abort(fmt.Sprintf("worker %d of epoch %d: %s", e.Worker, s.Epoch, e.Reason))
		}
	case StageActive:
		// While the wire is being taken from this generation nobody may join its
		// readers; an abort respawns it. One that was not up is being respawned
		// already.
		if wasUp && !m.takingWire() {
			m.respawn(OneWorker(e.Worker))
			if m.Phase == PhaseConfirming {
				m.confirm()
			}
		}
	case StageDraining:
		m.drainingWorkerExited(s, OneWorker(e.Worker))
	default: // T4 and T5 look for themselves who is left
	}
	return true
}

// timerFired takes the time-out that a timer stands for, if the state that it
// was started for still lasts.
func (m *machine) timerFired(e TimerFired) bool {
	s := m.slot(e.Gen)
	switch e.Timer {
	case TimerReady:
		if m.Phase == PhaseStarting && e.Gen == m.Next {
			m.abort(fmt.Sprintf("workers %v of epoch %d were not ready in time", s.Workers&^s.Up, s.Epoch))
		}
	case TimerConfirm:
		if m.Phase == PhaseConfirming && e.Gen == m.Active {
			m.revert(fmt.Sprintf("the lanes of epoch %d did not answer in time", s.Epoch))
		}
	case TimerDrain:
		if m.inDrain(s) {
			m.enterHanding(s, "deadline")
		}
	case TimerQuit:
		if s != nil && s.Stage == StageReaping && s.Signal == SignalQuit {
			m.signal(s, SignalTerm)
		}
	case TimerTerm:
		if s != nil && s.Stage == StageReaping && s.Signal == SignalTerm {
			m.signal(s, SignalKill)
		}
	case TimerStop, TimerStopFast:
		if m.Phase == PhaseStopping && e.Timer == m.stopTimer() {
			m.reapAll("deadline")
		}
	default:
		return false
	}
	return true
}

// abortable reports whether there is a hand-over that can be given up.
func (m *machine) abortable() bool {
	return m.Phase >= PhasePreparing && m.Phase <= PhaseParking
}

// takingWire reports whether the wire is being taken from the active generation.
func (m *machine) takingWire() bool {
	return m.Phase >= PhaseAsking && m.Phase <= PhaseFlipping
}

// slot returns the slot of g, nil if g has been freed.
func (m *machine) slot(g Generation) *Slot {
	if g.Epoch == 0 || g.Slot >= MaxSlots || m.Slots[g.Slot].Epoch != g.Epoch {
		return nil
	}
	return &m.Slots[g.Slot]
}

// generation returns the name of the generation in s, a slot of m.
func (m *machine) generation(s *Slot) Generation {
	for i := range m.Slots {
		if s == &m.Slots[i] {
			return Generation{Slot: uint8(i), Epoch: s.Epoch}
		}
	}
	panic("reload: not a slot of this machine")
}

// workers returns a set of workers of g, as Ask and Fence want it.
func workers(g Generation, set WorkerSet) (w Workers) {
	w[g.Slot] = set
	return w
}

func (m *machine) emit(e Effect) { m.effects = append(m.effects, e) }

// order returns a new order number.
func (m *machine) order() uint32 {
	m.Orders++
	return m.Orders
}

func (m *machine) report(id uint64, o Outcome, reason string) {
	m.emit(Report{ID: id, Outcome: o, Epoch: m.Active.Epoch, Reason: reason})
}

// setPhase moves the machine; whatever the old phase waited for is late now.
func (m *machine) setPhase(p Phase, reason string) {
	g := m.Next
	if g.Epoch == 0 {
		g = m.Active
	}
	m.emit(LogTransition{Gen: g, From: m.Phase, To: p, Reason: reason})
	m.Phase, m.Await = p, 0
}

// setStage moves one generation; whatever the old stage waited for is late now.
func (m *machine) setStage(s *Slot, st Stage, reason string) {
	m.emit(LogTransition{Gen: m.generation(s), From: s.Stage, To: st, Reason: reason})
	s.Stage, s.Await = st, 0
}
