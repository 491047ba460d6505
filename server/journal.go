package server

import (
	"context"
	"slices"

	"github.com/dnsapp/dnsapp/server/control"
)

// journal is the last events of the supervisor, and those who watch for more.
// It belongs to the loop.
type journal struct {
	seq      uint64 // of the newest event
	past     [control.MaxLast]control.Event
	watchers []*watcher
}

// watcher is somebody who is told of every event.
type watcher struct {
	news chan control.Event // what does not fit is dropped; the hole in Seq shows it
}

// watcherSize is how many events a watcher may lag. They are taken on at once
// by the control server, which has a queue of its own.
const watcherSize = 64

func newWatcher() *watcher { return &watcher{news: make(chan control.Event, watcherSize)} }

// add numbers e, keeps it and tells it. It never waits.
func (j *journal) add(e control.Event) {
	j.seq++
	e.Seq = j.seq
	j.past[e.Seq%control.MaxLast] = e
	for _, w := range j.watchers {
		select {
		case w.news <- e:
		default:
		}
	}
}

// last returns the last n events, oldest first, or as many as there are.
func (j *journal) last(n int) []control.Event {
	have := min(j.seq, control.MaxLast, uint64(max(n, 0)))
	events := make([]control.Event, 0, have)
	for seq := j.seq - have + 1; seq <= j.seq; seq++ {
		events = append(events, j.past[seq%control.MaxLast])
	}
	return events
}

func (j *journal) remove(w *watcher) {
	j.watchers = slices.DeleteFunc(j.watchers, func(o *watcher) bool { return o == w })
}

// Watch implements control.Backend.
func (s *Supervisor) Watch(ctx context.Context, last int, emit func(control.Event)) error {
	w := newWatcher()
	// Should ctx end before the loop comes to it, the removal still follows.
	defer s.post(func() { s.journal.remove(w) })
	var past []control.Event
	err := s.ask(ctx, func() {
		past = s.journal.last(last)
		s.journal.watchers = append(s.journal.watchers, w)
	})
	if err != nil {
		return err
	}
	for _, e := range past {
		emit(e)
	}
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
