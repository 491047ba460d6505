package reload

import "fmt"

// This file is the way back: a generation that had the wire before gets it
// again, by a hand-over in reverse. Like every change of owner it goes through a
// park of the present one, whose flow tables are published, so that what it
// still serves is forwarded to it; then it drains like any other.

// revert undoes a reload whose new generation has the wire and does not serve.
func (m *machine) revert(reason string) {
	if old := m.replaced(); old != nil && old.Up != 0 {
		m.enterReturning(Revert, old, reason)
		return
	}
	m.commit(Failed, reason+", and no older generation can take the wire back")
}

// workersLost has the newest generation that drains take the wire back. In a
// hand-over, its end decides: the news will come again.
func (m *machine) workersLost(e WorkersLost) {
	if e.Gen.Epoch == 0 || e.Gen != m.Active {
		return
	}
	switch m.Phase {
	case PhaseConfirming:
		if m.replaced().Up != 0 {
			m.revert(e.Reason)
		}
	case PhaseSteady:
		if s := m.newestDraining(); s != nil {
			m.enterReturning(TakeBack, s, e.Reason)
		}
	default:
	}
}

// newestDraining returns the newest generation in T3 that has a worker, nil if
// there is none.
func (m *machine) newestDraining() (newest *Slot) {
	for i := range m.Slots {
		s := &m.Slots[i]
		if m.inDrain(s) && s.Up != 0 && (newest == nil || s.Epoch > newest.Epoch) {
			newest = s
		}
	}
	return newest
}

// enterReturning begins to give the wire back to s, whose drain pauses. The
// owner's slot keeps the reason for the report.
func (m *machine) enterReturning(r Return, s *Slot, reason string) {
	if m.Phase == PhaseConfirming {
		m.emit(StopTimer{Timer: TimerConfirm, Gen: m.Active})
	}
	if m.inDrain(s) {
		m.emit(StopTimer{Timer: TimerDrain, Gen: m.generation(s)})
		s.Await = 0
	}
	m.Return, m.Next, m.Lapses = r, m.generation(s), 0
	m.slot(m.Active).Reason = reason
	m.emit(OpenWindow{Gen: m.Active})
	m.enterAsking(reason)
}

// returned: the wire is back. The generation that has lost it drains.
func (m *machine) returned(lost *Slot) {
	s := m.slot(m.Active)
	m.emit(CloseWindow{Gen: m.Active})
	m.emit(Resume{Gen: m.Active})
	undone := m.Request // the reload that is undone: not committed, or not at its end
	if m.Return == TakeBack {
		undone = s.Request
	}
	if undone != 0 {
		m.report(undone, Reverted, lost.Reason)
	}
	m.Return, m.Request = NoReturn, 0
	s.Request, s.Outcome, s.Reason = 0, Done, ""
	lost.Reason = ""
	if m.Stop != NotStopping {
		m.enterStopping()
		return
	}
	m.respawn(s.Workers &^ s.Up)
	m.emit(Commit{Gen: m.Active})
	m.startDrain(lost)
	m.enterSteady(fmt.Sprintf("epoch %d has the wire again", s.Epoch))
}

// giveUpReturn leaves the wire where it is.
func (m *machine) giveUpReturn(reason string) {
	if m.Phase == PhaseParking {
		m.emit(Unpark{})
	}
	undo := m.Return
	m.Return, m.Next = NoReturn, Generation{}
	m.emit(CloseWindow{Gen: m.Active})
	owner := m.slot(m.Active)
	reason = fmt.Sprintf("%s, and the wire could not go back: %s", owner.Reason, reason)
	owner.Reason = ""
	switch {
	case m.Stop != NotStopping:
		m.enterStopping()
		return
	case undo == Revert:
		m.respawn(owner.Workers &^ owner.Up)
		m.commit(Failed, reason)
		return
	}
	m.respawn(owner.Workers &^ owner.Up)
	if s := m.replaced(); s != nil {
		m.startDrain(s)
	}
	m.enterSteady(reason)
}
