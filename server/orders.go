package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/reload"
)

// orders are requests of an operator that the machine answers with a Report at
// once: to abort a reload, to end a drain. They belong to the loop. Their ids
// stay clear of those of reloads, which people see and count.
type orders struct {
	last    uint64
	waiting map[uint64]chan reload.Report
}

// firstOrder is above every id that a reload can get.
const firstOrder = 1 << 63

// new returns the id of a new order, and where its report will be.
func (o *orders) new() (uint64, <-chan reload.Report) {
	o.last++
	id := firstOrder + o.last
	if o.waiting == nil {
		o.waiting = make(map[uint64]chan reload.Report)
	}
	o.waiting[id] = make(chan reload.Report, 1)
	return id, o.waiting[id]
}

// settle passes a report on.
func (o *orders) settle(f reload.Report) {
	if c := o.waiting[f.ID]; c != nil {
		delete(o.waiting, f.ID)
		c <- f
	}
}

var errStopped = errors.New("dnsapp has stopped")

// give feeds the machine an order, and returns its report. The order counts
// even if ctx ends first.
func (s *Supervisor) give(ctx context.Context, order func(id uint64) reload.Event) (reload.Report, error) {
	var report <-chan reload.Report
	if err := s.ask(ctx, func() {
		var id uint64
		id, report = s.orders.new()
		s.feed(order(id))
	}); err != nil {
		return reload.Report{}, err
	}
	select {
	case r := <-report:
		if r.Outcome != reload.Done {
			return r, control.Refuse("refused; nothing was changed: %s", r.Reason)
		}
		return r, nil
	case <-s.exited:
		return reload.Report{}, errStopped
	case <-ctx.Done():
		return reload.Report{}, ctx.Err()
	}
}

// Abort implements control.Backend.
func (s *Supervisor) Abort(ctx context.Context) (*control.Aborted, error) {
	r, err := s.give(ctx, func(id uint64) reload.Event { return reload.AbortRequested{ID: id} })
	if err != nil {
		return nil, err
	}
	return &control.Aborted{Epoch: r.Epoch}, nil
}

// Drain implements control.Backend.
func (s *Supervisor) Drain(ctx context.Context, epoch uint32, now bool, emit func(control.Event)) error {
	began := time.Now()
	w := newWatcher()
	defer s.post(func() { s.journal.remove(w) })
	var d draining
	if err := s.ask(ctx, func() {
		if d = s.draining(epoch); d.err == nil && !d.gone {
			s.journal.watchers = append(s.journal.watchers, w)
		}
	}); err != nil {
		return err
	}
	if now && d.stage == reload.StageDraining {
		if _, err := s.give(ctx, func(id uint64) reload.Event { return reload.DrainNowRequested{ID: id, Epoch: epoch} }); err != nil {
			return err
		}
	}
	tell := func(e control.Event) {
		e.Elapsed, e.Seq, e.Kind, e.Reload, e.Worker = control.Millis(time.Since(began)), 0, "", 0, nil
		emit(e)
	}
	tick := time.NewTicker(drainNewsInterval)
	defer tick.Stop()
	for d.err == nil && !d.gone {
		if d.stage == reload.StageDraining {
			tell(control.Event{Time: time.Now(), Step: control.StepDrain, Epoch: epoch, Text: d.reason})
		}
		if err := s.nextOfDrain(ctx, epoch, w, tick.C, tell); err != nil {
			return err
		}
		if err := s.ask(ctx, func() { d = s.draining(epoch) }); err != nil {
			return err
		}
	}
	return d.err
}

// nextOfDrain passes on what is told of the generation until it has moved, or
// news of its drain are due.
func (s *Supervisor) nextOfDrain(ctx context.Context, epoch uint32, w *watcher, due <-chan time.Time, tell func(control.Event)) error {
	for {
		select {
		case e := <-w.news:
			if e.Epoch != epoch || e.Kind != control.KindGeneration {
				continue
			}
			tell(e)
			return nil
		case <-due:
			return nil
		case <-s.exited:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// draining is how far the end of a generation has come.
type draining struct {
	stage  reload.Stage
	reason string // what it waits for. Valid iff StageDraining
	gone   bool
	err    error // there is nothing to follow
}

// draining looks at the generation with this epoch. Within the loop.
func (s *Supervisor) draining(epoch uint32) draining {
	for i := range s.state.Slots {
		slot := &s.state.Slots[i]
		if slot.Epoch != epoch {
			continue
		}
		d := draining{stage: slot.Stage}
		switch {
		case slot.Stage < reload.StageDraining:
			d.err = control.Refuse("epoch %d does not drain: it is %v", epoch, slot.Stage)
		case slot.Stage == reload.StageDraining && s.gens[i] != nil:
			d.reason = s.drain(s.gens[i]).Reason
		}
		return d
	}
	if epoch > s.state.Active.Epoch {
		return draining{err: control.Refuse("there is no epoch %d%s", epoch, s.liveEpochs())}
	}
	return draining{gone: true}
}

// liveEpochs lists the generations there are: " (there are 7, 8)".
func (s *Supervisor) liveEpochs() string {
	text := ""
	for _, slot := range s.state.Slots {
		if slot.Epoch != 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprint(slot.Epoch)
		}
	}
	if text == "" {
		return ""
	}
	return " (there are " + text + ")"
}
