package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/reload"
)

// observe puts one step of the machine into the journal: what it was told, and
// what it does about it. Everything that the supervisor does goes through a step,
// so the journal lacks nothing.
func (s *Supervisor) observe(e reload.Event, effects []reload.Effect) {
	if what, ok := s.describeEvent(e); ok {
		s.record(what)
	}
	for _, f := range effects {
		if what, ok := s.describeEffect(f); ok {
			s.record(what)
		}
	}
}

// happening is an event before it has a time and a place in the machine.
type happening struct {
	kind    control.Kind
	gen     reload.Generation // zero: it is about none
	worker  *int              // nil: it is about none
	request uint64            // 0: that of the hand-over, or of the generation
	step    string            // the step that begins here, "" if none
	text    string
}

// record adds a happening to the journal.
func (s *Supervisor) record(h happening) {
	now := time.Now()
	e := control.Event{Time: now, Step: s.currentStep(), Epoch: h.gen.Epoch, Text: h.text, Kind: h.kind, Worker: h.worker}
	if g := s.generation(h.gen); g != nil && h.worker != nil && g.workers[*h.worker].proc != nil {
		e.Text += fmt.Sprintf(", pid %d", g.workers[*h.worker].proc.PID)
	}
	if h.step != "" {
		e.Step, e.Entered = control.Step(h.step), true
	}
	id := h.request
	switch {
	case id != 0:
	case h.gen.Epoch != 0 && s.state.Slots[h.gen.Slot].Epoch == h.gen.Epoch && s.state.Slots[h.gen.Slot].Request != 0:
		id = s.state.Slots[h.gen.Slot].Request
	default:
		id = s.state.Request
	}
	if r := s.requests[id]; r != nil {
		e.Elapsed = control.Millis(now.Sub(r.began))
		if id != bootRequest {
			e.Reload = id
		}
	}
	s.journal.add(e)
}

// describeEvent says what the machine was told, or false where an effect says
// it better.
func (s *Supervisor) describeEvent(e reload.Event) (happening, bool) {
	switch e := e.(type) {
	case reload.ReloadRequested:
		if e.ID == bootRequest {
			return happening{kind: control.KindRequest, request: e.ID, text: "the first generation is wanted"}, true
		}
		return happening{kind: control.KindRequest, request: e.ID, text: fmt.Sprintf("reload %d is wanted (%v)", e.ID, e.Mode)}, true
	case reload.AbortRequested:
		return happening{kind: control.KindRequest, text: "the reload is to be given up"}, true
	case reload.DrainNowRequested:
		return happening{kind: control.KindRequest, text: fmt.Sprintf("the drain of epoch %d is to end", e.Epoch)}, true
	case reload.StopRequested:
		return happening{kind: control.KindRequest, text: fmt.Sprintf("a stop is wanted (%v)", e.Kind)}, true
	case reload.Adopted:
		return happening{kind: control.KindMachine, text: fmt.Sprintf("what another supervisor has left is adopted; epoch %d owns the wire", e.Owner)}, true
	case reload.WorkerReady:
		return happening{kind: control.KindWorker, gen: e.Gen, worker: &e.Worker, text: "is ready"}, true
	case reload.WorkerExited:
		how := ": " + e.Reason
		if rest, ok := strings.CutPrefix(e.Reason, fmt.Sprintf("worker %d ", e.Worker)); ok { // said already
			how = " " + rest
		}
		return happening{kind: control.KindWorker, gen: e.Gen, worker: &e.Worker, text: "has ended" + how}, true
	case reload.WorkersLost:
		return happening{kind: control.KindGeneration, gen: e.Gen, text: "cannot be kept alive: " + e.Reason}, true
	case reload.ProcessesGone:
		return happening{kind: control.KindGeneration, gen: e.Gen, text: "has no process left"}, true
	case reload.Unanswered:
		return happening{kind: control.KindLanes, text: "no sign of life of " + s.workersOf(e.Silent)}, true
	case reload.LanesAnswered:
		return happening{kind: control.KindLanes, text: "every lane has answered"}, true
	case reload.LanesParked:
		return happening{kind: control.KindLanes, text: "every lane has stopped reading"}, true
	case reload.ParkLapsed:
		return happening{kind: control.KindLanes, text: "the stop of the lanes lapsed: not all of them were in time"}, true
	case reload.Fenced:
		return happening{kind: control.KindWorker, text: "no process is left of " + s.workersOf(e.Workers)}, true
	case reload.Flipped:
		return happening{kind: control.KindMachine, text: "the wire has changed hands"}, true
	case reload.FlipLost:
		return happening{kind: control.KindMachine, text: "the old generation took the wire back before the flip"}, true
	case reload.Drained:
		return happening{kind: control.KindDrain, text: "nothing is left to finish"}, true
	case reload.RingsReleased:
		return happening{kind: control.KindDrain, text: "every ring is empty"}, true
	case reload.TimerFired:
		return happening{kind: control.KindMachine, gen: e.Gen, text: fmt.Sprintf("the time for %v is over", e.Timer)}, true
	}
	return happening{}, false
}

// describeEffect says what the machine has ordered, or false where another
// effect or event says it better.
func (s *Supervisor) describeEffect(f reload.Effect) (happening, bool) {
	switch f := f.(type) {
	case reload.LogTransition:
		return describeTransition(f), true
	case reload.SpawnWorkers:
		return happening{kind: control.KindWorker, gen: f.Gen, text: "all workers are started"}, true
	case reload.RespawnWorker:
		return happening{kind: control.KindWorker, gen: f.Gen, worker: &f.Worker, text: "is started again"}, true
	case reload.Fence:
		return happening{kind: control.KindWorker, text: "to be killed, should they live: " + s.workersOf(f.Workers)}, true
	case reload.SignalWorkers:
		return happening{kind: control.KindWorker, gen: f.Gen, text: fmt.Sprintf("all workers are told to end (%v)", f.Signal)}, true
	case reload.OpenWindow:
		return happening{kind: control.KindGeneration, gen: f.Gen, text: "publishes its flows"}, true
	case reload.CloseWindow:
		return happening{kind: control.KindGeneration, gen: f.Gen, text: "publishes its flows no more; it serves on"}, true
	case reload.SetHanded:
		return happening{kind: control.KindGeneration, gen: f.Gen, text: fmt.Sprintf("the flows of its workers %v are handed over", f.Workers)}, true
	case reload.Ask:
		return happening{kind: control.KindLanes, text: "asked for a sign of life: " + s.workersOf(f.Workers)}, true
	case reload.Park:
		return happening{kind: control.KindLanes, text: "every lane is told to stop reading"}, true
	case reload.Unpark:
		return happening{kind: control.KindLanes, text: "the lanes read on"}, true
	case reload.SetOwner:
		return happening{kind: control.KindMachine, gen: f.Gen, text: "the wire is given to it"}, true
	case reload.AskDrain:
		return happening{kind: control.KindDrain, gen: f.Gen, text: "is asked what it still serves"}, true
	case reload.Resume:
		return happening{kind: control.KindGeneration, gen: f.Gen, text: "takes new work again"}, true
	case reload.Notify:
		return happening{kind: control.KindManager, text: f.Status.String()}, true
	case reload.Report:
		return describeReport(f), true
	case reload.LogIllegal:
		return happening{kind: control.KindBug, text: fmt.Sprintf("%T%+v does not fit %v", f.Event, f.Event, f.Phase)}, true
	}
	return happening{}, false
}

// workersOf names a set of workers: "epoch 1 workers {0,1}, epoch 2 workers {0}".
func (s *Supervisor) workersOf(w reload.Workers) string {
	var parts []string
	for slot, set := range w {
		if set != 0 {
			parts = append(parts, fmt.Sprintf("epoch %d workers %v", s.state.Slots[slot].Epoch, set))
		}
	}
	if parts == nil {
		return "nobody"
	}
	return strings.Join(parts, ", ")
}

func describeTransition(f reload.LogTransition) happening {
	h := happening{gen: f.Gen, text: fmt.Sprintf("%v -> %v", f.From, f.To)}
	if f.Reason != "" {
		h.text += ": " + brief(f.Reason)
	}
	step := func(v any) string {
		if s, ok := v.(interface{ Step() string }); ok {
			return s.Step()
		}
		return ""
	}
	if to := step(f.To); to != step(f.From) {
		h.step = to
	}
	h.kind = control.KindMachine
	if _, ok := f.To.(reload.Stage); ok {
		h.kind = control.KindGeneration
	}
	return h
}

func describeReport(f reload.Report) happening {
	h := happening{kind: control.KindReport, request: f.ID, text: f.Outcome.String()}
	switch {
	case f.Outcome == reload.Joined:
		h.text = fmt.Sprintf("reload %d does for it, too", f.Into)
	case f.Reason != "":
		h.text += ": " + strings.ReplaceAll(f.Reason, "\n", "; ")
	}
	return h
}
