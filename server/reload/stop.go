package reload

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/directory"
)

const stopRequested = "stop requested"

// stopRequested begins a stop, after the hand-over in progress if it is too
// late to abort that, or makes the one in progress faster.
func (m *machine) stopRequested(e StopRequested) bool {
	if e.Kind == NotStopping || e.Kind > StopNow {
		return false
	}
	if e.Kind <= m.Stop {
		return true
	}
	if m.Phase == PhaseStopping {
		m.emit(StopTimer{Timer: m.stopTimer()})
	}
	m.Stop = e.Kind
	m.refusePending()
	switch {
	case m.Phase == PhaseDown:
		m.enterExited(0, stopRequested)
	case m.abortable():
		m.abort(stopRequested)
	case m.Phase == PhaseSteady || m.Phase == PhaseConfirming:
		m.enterStopping()
	case m.Phase == PhaseStopping && m.Stop == StopNow:
		m.reapAll(stopRequested)
	case m.Phase == PhaseStopping:
		m.emit(StartTimer{Timer: m.stopTimer()})
	}
	return true
}

// enterStopping tells every generation to end. The rx owner drains like the
// others but goes last.
func (m *machine) enterStopping() {
	if m.Phase == PhaseConfirming {
		m.emit(StopTimer{Timer: TimerConfirm, Gen: m.Active})
	}
	if m.Request != 0 {
		m.report(m.Request, Failed, fmt.Sprintf("%s before the commit; epoch %d owns the wire", stopRequested, m.Active.Epoch))
		m.Request = 0
	}
	m.setPhase(PhaseStopping, m.Stop.String())
	m.emit(Notify{Status: NotifyStopping})
	active := m.slot(m.Active)
	if m.Stop == StopNow || active.Up == 0 {
		m.reapAll(stopRequested)
		return
	}
	m.emit(StartTimer{Timer: m.stopTimer()})
	if old := m.replaced(); old != nil {
		m.startDrain(old)
	}
	m.setStage(active, StageDraining, stopRequested)
	m.emit(Mark{Gen: m.Active, State: directory.Draining})
	m.askDrain(active)
}

// stopTimer returns the timer that bounds the stop in progress, which has a
// drain.
func (m *machine) stopTimer() Timer {
	if m.Stop == StopGraceful {
		return TimerStop
	}
	return TimerStopFast
}

// reapAll ends every generation without further ado. The rx owner is last: as
// long as it counts as live nobody else reads.
func (m *machine) reapAll(reason string) {
	for i := range m.Slots {
		if s := &m.Slots[i]; s.Stage != StageFree && s.Epoch != m.Active.Epoch {
			m.reap(s, reason)
		}
	}
	if s := m.slot(m.Active); s != nil {
		m.reap(s, reason)
	}
}

// reap ends one generation, or hurries the end that it has begun.
func (m *machine) reap(s *Slot, reason string) {
	switch {
	case s.Stage != StageReaping:
		m.explain(s, reason)
		m.enterReaping(s, SignalTerm)
	case s.Signal < SignalTerm:
		m.signal(s, SignalTerm)
	}
}

// stopFurther goes on with a stop when a generation has been freed.
func (m *machine) stopFurther() {
	active := m.slot(m.Active)
	switch {
	case active == nil && m.draining() == 0:
		m.enterExited(0, "")
	case active != nil && active.Stage == StageDraining && m.alone():
		m.askDrain(active)
	}
}

// alone reports whether only one generation is left.
func (m *machine) alone() bool {
	n := 0
	for i := range m.Slots {
		if m.Slots[i].Stage != StageFree {
			n++
		}
	}
	return n == 1
}

func (m *machine) refusePending() {
	if m.Pending.ID != 0 {
		m.report(m.Pending.ID, Refused, "the server is stopping")
		m.Pending = ReloadRequested{}
	}
}

func (m *machine) enterExited(code int, reason string) {
	m.refusePending()
	m.setPhase(PhaseExited, reason)
	m.emit(Exit{Code: code})
}
