package server

import (
	"context"
	"time"

	"github.com/dnsapp/dnsapp/server/reload"
)

// This file is how the supervisor waits for what workers write into the directory.

// How often a watcher looks. Within a park every microsecond is one in which
// nobody reads.
const (
	parkInterval  = 50 * time.Microsecond
	askInterval   = 200 * time.Microsecond
	drainInterval = time.Millisecond
)

// How long the loop itself waits for signs of lanes, and does nothing else, before a
// watcher does: lanes give them within a burst, unless they wait for a processor, or
// stand still.
const (
	parkPatience = 10 * time.Millisecond
	askPatience  = 2 * time.Millisecond
)

// attendLanes calls look whenever a lane has given a sign, until it returns an event, for
// as long as patience at most; then it returns nil. Whoever gives the sign wakes the
// loop: no timer, and no other goroutine, has to run before.
func (s *Supervisor) attendLanes(patience time.Duration, look func() reload.Event) reload.Event {
	for began := time.Now(); ; {
		signs := s.dir.Signs()
		if e := look(); e != nil {
			return e
		}
		left := patience - time.Since(began)
		if left <= 0 {
			return nil
		}
		s.dir.AwaitSign(signs, left)
	}
}

// watch calls look, beside the loop, every interval until it returns an event,
// which is fed. A watch whose answer is late is ignored by the machine; it ends
// when the supervisor does.
func (s *Supervisor) watch(order uint32, interval time.Duration, look func() reload.Event) {
	if e := look(); e != nil {
		s.feed(e)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.watches[order] = cancel
	s.jobs.Add(1) // what it looks at is unmapped when no job is left
	go func() {
		e := s.lookUntil(ctx, interval, look)
		s.jobs.Done() // before it waits for the loop, whose end waits for jobs
		if e != nil {
			s.post(func() {
				delete(s.watches, order)
				cancel()
				s.feed(e)
			})
		}
	}()
}

// lookUntil calls look every interval until it returns an event, ctx ends, or the
// supervisor does: then it returns nil.
func (s *Supervisor) lookUntil(ctx context.Context, interval time.Duration, look func() reload.Event) reload.Event {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.done:
			return nil
		case <-tick.C:
		}
		if e := look(); e != nil {
			return e
		}
	}
}

// poll is watch with its looks in the loop, for what the loop may take away
// meanwhile. look says, too, that there is nothing more to look at.
func (s *Supervisor) poll(order uint32, interval time.Duration, look func() (e reload.Event, over bool)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.watches[order] = cancel
	once := func() {
		if ctx.Err() != nil {
			return
		}
		e, over := look()
		if e != nil {
			s.feed(e)
		}
		if e != nil || over {
			delete(s.watches, order)
			cancel()
		}
	}
	once()
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.done:
				return
			case <-tick.C:
				s.post(once)
			}
		}
	}()
}
