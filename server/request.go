package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/metrics"
	"github.com/dnsapp/dnsapp/server/reload"
)

// request is one reload, from its request to its report.
type request struct {
	id       uint64
	began    time.Time
	problems []control.Problem
	refusal  metrics.Refusal // of T0; "": it came through, or has not ended

	step   control.Step // entered last; "" before T0
	since  time.Time    // when
	report control.ReloadReport

	old        *generation // the one it replaces
	before     control.Ledger
	drainKnown bool // report.DrainStart is filled in

	joined    []*request         // others that this one does for
	news      chan control.Event // for whoever waits; what does not fit is dropped
	committed chan struct{}      // closed at the commit
	done      chan struct{}      // closed with the report
	outcome   reload.Outcome     // valid once done is closed
}

// newsSize is how many events a slow reader of a reload may lag.
const newsSize = 64

// follow registers a request. Within the loop.
func (s *Supervisor) follow(id uint64) *request {
	r := &request{
		id: id, began: time.Now(), news: make(chan control.Event, newsSize),
		committed: make(chan struct{}), done: make(chan struct{}),
	}
	r.report = control.ReloadReport{ID: id, StartedAt: r.began, Problems: []control.Problem{}, FromEpoch: s.state.Active.Epoch}
	s.requests[id] = r
	return r
}

// requestReload feeds a reload request and returns it. Within the loop.
func (s *Supervisor) requestReload() *request {
	s.nextRequest++
	r := s.follow(s.nextRequest)
	s.feed(s.reloadEvent(r.id))
	return r
}

// reloadEvent returns the request of a reload as the configuration wants it.
func (s *Supervisor) reloadEvent(id uint64) reload.ReloadRequested {
	e := reload.ReloadRequested{ID: id}
	if s.cfg.Reload.Mode == config.Restart {
		e.Mode = reload.Restart
	}
	if s.cfg.Reload.Overlap == config.RefuseOverlap {
		e.Overlap = reload.RefuseOverlap
	}
	return e
}

// tell sends news to whoever waits for r, and to whoever waits for a stop.
func (s *Supervisor) tell(r *request, entered bool, epoch uint32, text string) {
	now := time.Now()
	e := control.Event{Time: now, Step: control.StepSteady, Entered: entered, Epoch: epoch, Text: text}
	if r != nil {
		e.Elapsed = control.Millis(now.Sub(r.began))
		if r.step != "" {
			e.Step = r.step
		}
		for _, to := range append([]*request{r}, r.joined...) {
			select {
			case to.news <- e:
			default:
			}
		}
	}
	for _, w := range s.stopWaiters {
		e.Elapsed = control.Millis(now.Sub(w.began))
		select {
		case w.news <- e:
		default:
		}
	}
}

// enter notes that r has entered a step.
func (s *Supervisor) enter(r *request, step control.Step, epoch uint32, text string) {
	now := time.Now()
	if r.step == step {
		s.tell(r, false, epoch, text)
		return
	}
	r.endStep(now)
	r.step, r.since = step, now
	s.tell(r, true, epoch, text)
}

// endStep records how long the step took that is over.
func (r *request) endStep(now time.Time) {
	if r.step != "" {
		r.report.Steps = append(r.report.Steps, control.StepTime{Step: r.step, Elapsed: control.Millis(now.Sub(r.since))})
	}
}

// transition carries out LogTransition.
func (s *Supervisor) transition(f reload.LogTransition) {
	if f.To == reload.PhasePreparing {
		s.current = s.requests[s.state.Request]
	}
	r := s.current
	var old *generation // which r has replaced, where f is about it
	if _, ok := f.To.(reload.Stage); ok {
		if g := s.generation(f.Gen); g != nil && g.request != nil && g.request.report.ToEpoch != 0 {
			r, old = g.request, g
		}
	}
	args := []any{"from", f.From.String(), "to", f.To.String()}
	if f.Gen.Epoch != 0 {
		args = append(args, "epoch", f.Gen.Epoch)
	}
	if f.Reason != "" {
		args = append(args, "reason", brief(f.Reason))
	}
	if r != nil && r.id != bootRequest {
		args = append(args, "reload", r.id, "elapsed", time.Since(r.began).Round(time.Microsecond))
	}
	text := f.To.String()
	if f.Reason != "" {
		text += ": " + brief(f.Reason)
	}
	switch to := f.To.(type) {
	case reload.Phase:
		s.log.Info("machine", args...)
		switch {
		case r == nil:
			s.tell(nil, false, f.Gen.Epoch, text)
		case to.Step() != "":
			s.enter(r, control.Step(to.Step()), f.Gen.Epoch, text)
		case to != reload.PhaseSteady:
			s.tell(r, false, f.Gen.Epoch, text)
		}
	case reload.Stage:
		s.log.Info("generation", args...)
		switch {
		case old == nil:
			s.tell(r, false, f.Gen.Epoch, fmt.Sprintf("epoch %d %s", f.Gen.Epoch, text))
		case to == reload.StageHanding || to == reload.StageReleasing || to == reload.StageReaping:
			if to != reload.StageReleasing && r.step != control.StepRelease {
				s.noteDrainEnd(r)
			}
			s.enter(r, control.Step(to.Step()), f.Gen.Epoch, text)
		}
	}
}

// replaces notes that the reload in progress is about to replace old, and where
// the counters stand.
func (s *Supervisor) replaces(old *generation) {
	if r := s.current; r != nil {
		old.request, r.old = r, old
		r.before = s.ledger()
	}
}

// underway returns the latest reload that has not ended, nil if there is none.
func (s *Supervisor) underway() *request {
	r := s.current
	for _, g := range s.gens {
		if g != nil && g.request != nil && (r == nil || g.request.began.After(r.began)) {
			r = g.request
		}
	}
	return r
}

// commitRequest notes the commit of r.
func (s *Supervisor) commitRequest(r *request) {
	r.report.ToEpoch = s.state.Active.Epoch
	r.report.Commit = control.Millis(time.Since(r.began))
	r.report.Gap = control.Millis(s.dir.Gap()) // the next reload has its own
	s.current = nil
	close(r.committed)
	if r.old != nil {
		s.enter(r, control.StepDrain, r.old.Epoch, fmt.Sprintf("committed: epoch %d owns the wire", r.report.ToEpoch))
	}
}

// noteDrainStart fills in what the old generation had when its drain began:
// its first reports are complete.
func (s *Supervisor) noteDrainStart(g *generation) {
	if r := g.request; r != nil && !r.drainKnown {
		r.drainKnown = true
		r.report.DrainStart = s.load(g)
	}
}

// drainNewsInterval is how often a drain that goes on is news.
const drainNewsInterval = time.Second

// noteDrain tells what the drain of g waits for.
func (s *Supervisor) noteDrain(g *generation) {
	told := &s.drainTold[g.Slot]
	if time.Since(*told) < drainNewsInterval {
		return
	}
	*told = time.Now()
	d := s.drain(g)
	s.log.Info("draining", "epoch", g.Epoch, "waits_for", d.Reason)
	s.record(happening{kind: control.KindDrain, gen: g.Generation, text: d.Reason})
	s.tell(g.request, false, g.Epoch, d.Reason)
	s.manager.say(s.statusText())
}

func (s *Supervisor) noteDrainEnd(r *request) {
	r.report.DrainEnd = s.load(r.old)
	r.report.Handed = r.report.DrainEnd.Flows
}

// load sums the last drain reports of a generation's live workers.
func (s *Supervisor) load(g *generation) control.Load {
	var l control.Load
	for i, p := range g.workers {
		if p.proc == nil {
			continue
		}
		r := s.dir.Worker(int(g.Slot), i).Report()
		l.Flows += int(r.Flows)
		l.TCP += int(r.TCP)
		l.Queries += int(r.Queries)
	}
	return l
}

// reported carries out Report.
func (s *Supervisor) reported(f reload.Report) {
	r := s.requests[f.ID]
	if r == nil {
		s.orders.settle(f)
		return
	}
	delete(s.requests, f.ID)
	if f.Outcome == reload.Joined {
		if into := s.requests[f.Into]; into != nil {
			into.joined = append(into.joined, r)
			return
		}
	}
	if s.current == r {
		s.current = nil
	}
	for _, g := range s.gens {
		if g != nil && g.request == r {
			g.request = nil
		}
	}
	r.finish(s, f)
	for _, j := range r.joined {
		own := j.report.ID
		j.report = r.report
		j.report.ID = own
		j.outcome = r.outcome
		close(j.done)
	}
}

// finish completes the report.
func (r *request) finish(s *Supervisor, f reload.Report) {
	now := time.Now()
	r.endStep(now)
	p := &r.report
	p.Elapsed = control.Millis(now.Sub(r.began))
	p.Reason = f.Reason
	p.OK = f.Outcome == reload.Done
	p.Problems = append(p.Problems, r.problems...)
	if r.old != nil {
		p.Window = s.ledger().Since(r.before)
		if p.Gap == 0 { // the first receive call had not come by the commit
			p.Gap = control.Millis(s.dir.Gap())
		}
	}
	switch {
	case f.Outcome == reload.Done:
		p.Outcome = control.OutcomeDone
	case f.Outcome == reload.Refused:
		p.Outcome = control.OutcomeRefused
	case f.Outcome == reload.Reverted:
		p.Outcome = control.OutcomeReverted
	case p.ToEpoch == 0:
		p.Outcome = control.OutcomeAborted
	default:
		p.Outcome = control.OutcomeFailed
	}
	r.outcome = f.Outcome
	defer close(r.done)
	if r.id == bootRequest {
		if p.OK {
			s.log.Info("serving", "epoch", p.ToEpoch, "elapsed", p.Elapsed.Duration().Round(time.Microsecond))
		} else if s.state.Active.Epoch != 0 {
			s.log.Error("what was adopted serves on: the configuration could not be loaded", "epoch", s.state.Active.Epoch, "reason", p.Reason)
		}
		return
	}
	s.outcomes[p.Outcome]++
	if f.Outcome == reload.Refused {
		s.refusals[s.refusal(r)]++
	}
	s.lastReport = p
	if f.Outcome == reload.Done {
		s.log.Info("reload done", "reload", r.id, "epoch", p.ToEpoch, "elapsed", p.Elapsed.Duration().Round(time.Microsecond),
			"gap", p.Gap.Duration().Round(time.Microsecond), "handed", p.Handed, "reason", p.Reason)
		return
	}
	level := slog.LevelError
	if p.Outcome == control.OutcomeRefused { // nothing was touched
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "reload "+string(p.Outcome), "reload", r.id, "reason", strings.ReplaceAll(p.Reason, "\n", "; "))
}

// Reload implements control.Backend.
func (s *Supervisor) Reload(ctx context.Context, opts control.ReloadOptions, emit func(control.Event)) (*control.ReloadReport, error) {
	var r *request
	var refused error
	if err := s.ask(ctx, func() {
		if s.standby != nil {
			refused = s.standby.refusal("a reload")
			return
		}
		r = s.requestReload()
	}); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	committed := r.committed
	if opts.Wait != control.WaitCommit {
		committed = nil
	}
	for {
		select {
		case e := <-r.news:
			emit(e)
		case <-committed:
			var report control.ReloadReport
			if err := s.ask(ctx, func() { report = r.report }); err != nil {
				return nil, err
			}
			drainNews(r.news, emit)
			report.OK, report.Outcome = true, control.OutcomeCommitted
			report.Elapsed = control.Millis(time.Since(r.began))
			report.Gap = control.Millis(s.dir.Gap())
			return &report, nil
		case <-r.done:
			drainNews(r.news, emit)
			return &r.report, r.err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func drainNews(news <-chan control.Event, emit func(control.Event)) {
	for {
		select {
		case e := <-news:
			emit(e)
		default:
			return
		}
	}
}

// err is what the sender of a finished request is told.
func (r *request) err() error {
	switch r.outcome {
	case reload.Done:
		return nil
	case reload.Refused:
		return &control.Error{Code: control.CodeRefused, Message: refusal(r), Problems: r.problems}
	}
	return &control.Error{Code: control.CodeFailed, Message: "reload failed: " + r.report.Reason, Problems: r.problems}
}

func refusal(r *request) string {
	if len(r.problems) > 0 {
		return "reload refused; nothing was changed"
	}
	return "reload refused; nothing was changed: " + r.report.Reason
}

// stopWaiter is somebody who waits for the end.
type stopWaiter struct {
	began time.Time
	news  chan control.Event
}

var stopKinds = map[control.StopKind]reload.StopKind{
	control.StopGraceful: reload.StopGraceful,
	control.StopFast:     reload.StopFast,
	control.StopNow:      reload.StopNow,
}

// Stop implements control.Backend.
func (s *Supervisor) Stop(ctx context.Context, kind control.StopKind, emit func(control.Event)) error {
	w := &stopWaiter{began: time.Now(), news: make(chan control.Event, newsSize)}
	err := s.ask(ctx, func() {
		s.stopWaiters = append(s.stopWaiters, w)
		s.feed(reload.StopRequested{Kind: stopKinds[kind]})
	})
	if err != nil {
		return err
	}
	// After the exit there is nobody to ask, nor anything left to take back.
	defer s.post(func() { s.stopWaiters = slices.DeleteFunc(s.stopWaiters, func(o *stopWaiter) bool { return o == w }) })
	for {
		select {
		case e := <-w.news:
			emit(e)
		case <-s.exited:
			drainNews(w.news, emit)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// snapshot sums the counters. Within the loop.
func (s *Supervisor) snapshot() *counters.Snapshot {
	var live []counters.Live
	for _, g := range s.gens {
		if g != nil {
			live = append(live, counters.Live{Slot: int(g.Slot), Epoch: g.Epoch, Lanes: g.lanes()})
		}
	}
	snap := new(counters.Snapshot)
	s.counters.Read(snap, live)
	snap[counters.KernelDrops] = s.sockets.kernelDrops()
	return snap
}

func (s *Supervisor) ledger() control.Ledger { return control.LedgerOf(s.snapshot()) }

// stateOf names the state of a generation, from the directory.
func (s *Supervisor) stateOf(g *generation) directory.State {
	return s.dir.Generation(int(g.Slot)).State
}
