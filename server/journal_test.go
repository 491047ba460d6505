package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/reload"
)

// looping returns a supervisor of which only the loop runs, and what ends it.
func looping(t *testing.T) *Supervisor {
	t.Helper()
	s := &Supervisor{
		log:   slog.New(slog.DiscardHandler),
		cfg:   new(config.Config),
		inbox: make(chan func(), inboxSize), done: make(chan struct{}), exit: make(chan int, 1), exited: make(chan struct{}),
		requests: make(map[uint64]*request),
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(s.done)
		for {
			s.step()
			select {
			case f := <-s.inbox:
				f()
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return s
}

func TestJournalKeepsTheNewest(t *testing.T) {
	var j journal
	if got := j.last(5); len(got) != 0 {
		t.Errorf("a new journal has %d events", len(got))
	}
	for range control.MaxLast + 10 {
		j.add(control.Event{})
	}
	for _, n := range []int{-1, 0, 1, 7, control.MaxLast, control.MaxLast + 1} {
		got := j.last(n)
		if want := min(max(n, 0), control.MaxLast); len(got) != want {
			t.Errorf("last(%d) has %d events", n, len(got))
			continue
		}
		for i, e := range got {
			if want := uint64(control.MaxLast + 10 - len(got) + i + 1); e.Seq != want {
				t.Errorf("last(%d)[%d] is number %d, want %d", n, i, e.Seq, want)
			}
		}
	}
}

// A watcher that does not read delays nobody and sees the hole.
func TestJournalWatcherThatSleeps(t *testing.T) {
	var j journal
	w := newWatcher()
	j.watchers = append(j.watchers, w)
	for range watcherSize + 3 {
		j.add(control.Event{})
	}
	for i := range watcherSize {
		if e := <-w.news; e.Seq != uint64(i+1) {
			t.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
	}
	j.add(control.Event{})
	if e := <-w.news; e.Seq != watcherSize+4 {
		t.Errorf("after the hole comes number %d", e.Seq)
	}
	j.remove(w)
	j.add(control.Event{})
	if len(w.news) != 0 {
		t.Error("a removed watcher is told")
	}
}

// Watch gives the past, then what happens, and ends with the supervisor.
func TestWatch(t *testing.T) {
	s := looping(t)
	add := func() {
		if err := s.ask(t.Context(), func() { s.journal.add(control.Event{}) }); err != nil {
			t.Error(err)
		}
	}
	add()
	add()
	got := make(chan uint64, 10)
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(t.Context(), 1, func(e control.Event) { got <- e.Seq }) }()
	if seq := <-got; seq != 2 {
		t.Errorf("the past begins with number %d, want 2", seq)
	}
	add()
	if seq := <-got; seq != 3 {
		t.Errorf("then comes number %d, want 3", seq)
	}
	close(s.exited)
	if err := <-ended; err != nil {
		t.Errorf("at the end of the supervisor: %v", err)
	}
	if err := s.ask(t.Context(), func() {
		if len(s.journal.watchers) != 0 {
			t.Error("the watcher is still there")
		}
	}); err != nil {
		t.Error(err)
	}
}

// A watcher whose client has gone is not told any more.
func TestWatchHangUp(t *testing.T) {
	s := looping(t)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if err := s.Watch(ctx, 0, func(control.Event) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if err := s.ask(t.Context(), func() {
		if len(s.journal.watchers) != 0 {
			t.Error("the watcher is still there")
		}
	}); err != nil {
		t.Error(err)
	}
}

// Orders that the machine refuses reach whoever gave them, with the reason.
func TestOrdersRefused(t *testing.T) {
	s := looping(t)
	_, err := s.Abort(t.Context())
	wantRefusal(t, err, "refused; nothing was changed: no reload is in progress that could be given up")
	wantRefusal(t, s.Drain(t.Context(), 3, true, func(control.Event) {}), "there is no epoch 3")
	if err := s.ask(t.Context(), func() {
		s.state.Phase = reload.PhaseSteady
		s.state.Active = reload.Generation{Slot: 1, Epoch: 7}
		s.state.Slots[1] = reload.Slot{Stage: reload.StageActive, Epoch: 7, Workers: 1, Up: 1}
	}); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, s.Drain(t.Context(), 7, false, func(control.Event) {}), "epoch 7 does not drain: it is active")
	wantRefusal(t, s.Drain(t.Context(), 8, false, func(control.Event) {}), "there is no epoch 8 (there are 7)")
	if err := s.Drain(t.Context(), 6, true, func(control.Event) {}); err != nil {
		t.Errorf("a generation that is gone: %v", err)
	}
	if err := s.ask(t.Context(), func() {
		if len(s.orders.waiting) != 0 {
			t.Errorf("%d orders wait", len(s.orders.waiting))
		}
	}); err != nil {
		t.Error(err)
	}
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.CodeRefused || e.Message != want {
		t.Errorf("error is %v, want refused: %s", err, want)
	}
}
