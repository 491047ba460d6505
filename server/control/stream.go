package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// maxPending is how many events wait for a client that reads slowly: all
	// past ones at once and as many again. A reload makes some hundred events.
	maxPending = 2 * MaxLast

	// writeTimeout is how long a client may refuse to take a line.
	writeTimeout = 10 * time.Second
)

// stream sends lines to a client at the client's pace.
type stream struct {
	rc  *http.ResponseController
	enc *json.Encoder

	mu      sync.Mutex
	pending []Event // at most maxPending
	missed  int     // events left out before pending
	last    Event   // the newest event; zero before the first
	closed  bool
	changed *sync.Cond // pending or closed

	done chan struct{} // closed when the writer has ended
	err  error         // why it ended early; valid once done is closed
}

// newStream answers 200 and starts the writer, which calls gone when the client
// no longer takes anything. The caller must call finish.
func newStream(w http.ResponseWriter, gone func()) *stream {
	s := &stream{rc: http.NewResponseController(w), enc: json.NewEncoder(w), done: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	s.enc.SetEscapeHTML(false) // people read it, too
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	go func() {
		defer close(s.done)
		if s.err = s.writeAll(); s.err != nil {
			gone()
		}
	}()
	return s
}

// emit queues an event. It never blocks: the oldest events give way.
func (s *stream) emit(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == maxPending {
		s.pending = append(s.pending[:0], s.pending[1:]...)
		s.missed++
	}
	s.pending = append(s.pending, e)
	s.last = e
	s.changed.Signal()
}

// newest returns the last event given to emit.
func (s *stream) newest() Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// finish sends what is pending and then the last line.
func (s *stream) finish(l Line) {
	s.mu.Lock()
	s.closed = true
	s.changed.Signal()
	s.mu.Unlock()
	<-s.done
	if s.err == nil {
		l.Done = true
		_ = s.write(l) // a client that has gone needs no last line
	}
}

// writeAll writes events until finish and none is left.
func (s *stream) writeAll() error {
	// The header goes out at once: the client learns that it was understood.
	if err := s.flush(); err != nil {
		return err
	}
	for {
		events, missed, ok := s.take()
		if !ok {
			return nil
		}
		if missed > 0 {
			e := Event{Time: events[0].Time, Elapsed: events[0].Elapsed, Step: events[0].Step}
			e.Text = fmt.Sprintf("%d events left out: the reader was too slow", missed)
			events = append([]Event{e}, events...)
		}
		for i := range events {
			if err := s.write(Line{Event: &events[i]}); err != nil {
				return err
			}
		}
	}
}

// take waits for events and returns them, false when there will be none.
func (s *stream) take() (events []Event, missed int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) == 0 && !s.closed {
		s.changed.Wait()
	}
	events, s.pending = s.pending, nil
	missed, s.missed = s.missed, 0
	return events, missed, len(events) > 0
}

// write writes and flushes one line.
func (s *stream) write(l Line) error {
	if err := s.enc.Encode(l); err != nil {
		return err
	}
	return s.flush()
}

func (s *stream) flush() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return s.rc.Flush()
}
