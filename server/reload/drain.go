package reload

import "github.com/dnsapp/dnsapp/server/directory"

// This file is T3 to T5: how a generation that lost the wire ends.

// startDrain begins T3 of a generation that is in StageDraining since the flip.
func (m *machine) startDrain(s *Slot) {
	if s.Up == 0 {
		m.enterHanding(s, workersDead)
		return
	}
	m.emit(StartTimer{Timer: TimerDrain, Gen: m.generation(s)})
	m.askDrain(s)
}

func (m *machine) askDrain(s *Slot) {
	s.Await = m.order()
	m.emit(AskDrain{Order: s.Await, Gen: m.generation(s)})
}

const workersDead = "its workers are dead"

// inDrain reports whether s, nil for none, is in T3: asked to drain, and not
// the rx owner in a stop.
func (m *machine) inDrain(s *Slot) bool {
	return s != nil && s.Stage == StageDraining && s.Await != 0 && s.Epoch != m.Active.Epoch
}

// drained: the generation serves nothing any more. The rx owner, when all is
// being stopped, stays while others may still forward through it; it is asked
// again when it is the last.
func (m *machine) drained(s *Slot) {
	switch {
	case s.Epoch != m.Active.Epoch:
		m.enterHanding(s, "drained")
	case m.alone():
		s.Reason = "drained"
		m.enterReaping(s, SignalQuit)
	default:
		s.Await = 0
	}
}

// drainingWorkerExited: nothing is forwarded to a dead worker, and it has
// nothing to drain.
func (m *machine) drainingWorkerExited(s *Slot, worker WorkerSet) {
	if s.Epoch == m.Active.Epoch {
		if s.Up == 0 {
			m.reapAll(workersDead)
		}
		return
	}
	next := m.generation(s) == m.Next
	if next && m.Phase == PhaseFlipping { // it may own the wire already: the outcome decides
		return
	}
	m.emit(SetHanded{Gen: m.generation(s), Workers: worker})
	switch {
	case s.Up != 0:
	case next:
		m.abort(workersDead)
	case m.inDrain(s):
		m.enterHanding(s, workersDead)
	}
}

// enterHanding begins T4. Headers and mark first, then the question to all
// lanes: a lane stores its answer before it loads them, so after the answer
// nobody forwards to this generation any more, and it reads nothing itself.
// Every worker is asked, not only those that are up: the lanes of one that has
// just come back read before the machine knows. So may those of the next
// generation, once a flip has been ordered.
func (m *machine) enterHanding(s *Slot, reason string) {
	g := m.generation(s)
	if m.inDrain(s) {
		m.emit(StopTimer{Timer: TimerDrain, Gen: g})
	}
	m.setStage(s, StageHanding, reason)
	m.explain(s, reason)
	m.emit(SetHanded{Gen: g, Workers: s.Workers})
	m.emit(Mark{Gen: g, State: directory.Leaving})
	var ask Workers
	for i := range m.Slots {
		if o := &m.Slots[i]; o.Stage != StageStarting || m.takingWire() {
			ask[i] = o.Workers
		}
	}
	s.Await = m.order()
	m.emit(Ask{Order: s.Await, Workers: ask})
}

// enterReleasing goes on with T4, again after each fence. The sockets that no
// newer generation lists pass on to an older one now that nobody here reads
// them.
func (m *machine) enterReleasing(s *Slot) {
	if s.Stage == StageHanding {
		m.emit(Mark{Gen: m.generation(s), State: directory.Left})
	}
	m.setStage(s, StageReleasing, "")
	s.Await = m.order()
	m.emit(Release{Order: s.Await, Gen: m.generation(s)})
}

// enterReaping begins T5, from any stage: what the generation still had is
// cut off.
func (m *machine) enterReaping(s *Slot, sig Signal) {
	g := m.generation(s)
	if m.inDrain(s) {
		m.emit(StopTimer{Timer: TimerDrain, Gen: g})
	}
	if s.Stage == StageDraining && g != m.Active {
		m.emit(SetHanded{Gen: g, Workers: s.Workers})
	}
	marked := s.Stage == StageHanding || s.Stage == StageReleasing
	m.setStage(s, StageReaping, s.Reason)
	if !marked {
		m.emit(Mark{Gen: g, State: directory.Leaving})
	}
	m.signal(s, sig)
}

// signal sends a stronger signal to a generation in T5 than it had.
func (m *machine) signal(s *Slot, sig Signal) {
	g := m.generation(s)
	m.stopSignalTimer(s)
	s.Signal = sig
	m.emit(SignalWorkers{Gen: g, Signal: sig})
	if t, ok := sig.timer(); ok {
		m.emit(StartTimer{Timer: t, Gen: g})
	}
}

func (m *machine) stopSignalTimer(s *Slot) {
	if t, ok := s.Signal.timer(); ok {
		m.emit(StopTimer{Timer: t, Gen: m.generation(s)})
	}
}

// timer returns the timer that gives a generation time to obey the signal.
func (s Signal) timer() (t Timer, ok bool) {
	switch s {
	case SignalQuit:
		return TimerQuit, true
	case SignalTerm:
		return TimerTerm, true
	default:
		return 0, false
	}
}

// processesGone ends T5 and with it the generation.
func (m *machine) processesGone(e ProcessesGone) bool {
	s := m.slot(e.Gen)
	if s == nil {
		return true
	}
	if s.Stage != StageReaping {
		return false
	}
	m.stopSignalTimer(s)
	m.emit(FoldAndFree{Gen: e.Gen})
	m.setStage(s, StageFree, s.Reason)
	reason := s.Reason
	if s.Request != 0 {
		m.report(s.Request, s.Outcome, reason)
	}
	*s = Slot{}
	switch {
	case m.Phase == PhaseAborting && e.Gen == m.Next:
		m.resume(reason)
	case m.Phase == PhaseSteady:
		m.startPending()
	case m.Phase == PhaseStopping:
		m.stopFurther()
	}
	return true
}

// explain records how the drain ended, unless the reload has worse to tell.
func (m *machine) explain(s *Slot, reason string) {
	if s.Outcome == Done {
		s.Reason = reason
	}
}

// draining returns the number of generations in T3 to T5.
func (m *machine) draining() (n int) {
	for i := range m.Slots {
		if m.Slots[i].Stage >= StageDraining {
			n++
		}
	}
	return n
}

// oldest returns the oldest generation in T3 to T5. There is one.
func (m *machine) oldest() (oldest *Slot) {
	for i := range m.Slots {
		s := &m.Slots[i]
		if s.Stage >= StageDraining && (oldest == nil || s.Epoch < oldest.Epoch) {
			oldest = s
		}
	}
	return oldest
}
