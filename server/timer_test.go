package server

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnsapp/dnsapp/server/reload"
)

// A timer by which a worker should have done something waits once more if the
// supervisor stood still meanwhile, and had no ear for it; one that ends a drain
// does not.
func TestTimerOfSupervisorThatStoodStill(t *testing.T) {
	const d = 2 * time.Second
	for _, c := range []struct {
		timer   reload.Timer
		deaf    time.Duration // how long the loop stands still
		further time.Duration // how much later the machine is told
	}{
		{reload.TimerReady, d, 0},
		{reload.TimerReady, d + time.Second, time.Second},
		{reload.TimerConfirm, 4 * d, d}, // no longer than it was meant to be
		{reload.TimerDrain, 4 * d, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Supervisor{inbox: make(chan func(), inboxSize), done: make(chan struct{}), timers: make(map[reload.StartTimer]*time.Timer)}
			f := reload.StartTimer{Timer: c.timer, Gen: reload.Generation{Epoch: 1}}
			s.runTimer(f, d)
			<-time.After(c.deaf)
			heard := time.Now()
			for len(s.events) == 0 {
				(<-s.inbox)()
			}
			if got := time.Since(heard); got != c.further {
				t.Errorf("%v after %v of standing still: the machine is told %v later, want %v", c.timer, c.deaf, got, c.further)
			}
			if want := []reload.Event{reload.TimerFired{Timer: f.Timer, Gen: f.Gen}}; !slices.Equal(s.events, want) || len(s.timers) != 0 {
				t.Errorf("%v: events %v, timers %v", c.timer, s.events, s.timers)
			}
		})
	}
}

// A timer that is stopped while it waits to be heard does not start again.
func TestStoppedTimerStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{inbox: make(chan func(), inboxSize), done: make(chan struct{}), timers: make(map[reload.StartTimer]*time.Timer)}
		f := reload.StartTimer{Timer: reload.TimerReady, Gen: reload.Generation{Epoch: 1}}
		s.runTimer(f, time.Second)
		<-time.After(time.Minute)
		s.stopTimer(reload.StopTimer{Timer: f.Timer, Gen: f.Gen})
		(<-s.inbox)() // the machine ignores what is late
		if len(s.timers) != 0 {
			t.Errorf("timers %v", s.timers)
		}
	})
}
