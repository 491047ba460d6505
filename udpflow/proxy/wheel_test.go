package proxy

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/mono"
)

// The wheel gives out every conn, none before its time, none more than a tick
// late if it is asked that often, also over the wrap of the clock.
func TestWheel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		start := rapid.SampledFrom([]uint32{0, 1, 1 << 20, 1<<32 - 1000, 1<<32 - 1}).Draw(rt, "start")
		s := newSlab(1 << 16)
		w := newWheel(start)
		now := start
		due := map[int32]uint32{}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				i, ok := s.take()
				if !ok {
					rt.Skip()
				}
				due[i] = now + uint32(rapid.IntRange(0, 40_000).Draw(rt, "in"))
				w.add(&s, i, due[i], now)
			},
			"remove": func(rt *rapid.T) {
				for i := range due {
					w.remove(&s, i)
					delete(due, i)
					s.give(i)
					break
				}
			},
			"wait": func(rt *rapid.T) {
				ms, any := w.wait(now)
				if any != (len(due) > 0) {
					rt.Fatalf("wait says %v, and there are %d", any, len(due))
				}
				step := uint32(rapid.IntRange(0, 5000).Draw(rt, "step"))
				if any && rapid.Bool().Draw(rt, "as it says") {
					step = uint32(ms)
				}
				now += step
				for i := w.due(&s, now); i != none; i = w.due(&s, now) {
					at, known := due[i]
					if !known {
						rt.Fatalf("conn %d is not in the wheel", i)
					}
					if int32(at-now) > 0 { // once around: it goes on
						w.add(&s, i, at, now)
						continue
					}
					delete(due, i)
					s.give(i)
				}
				for i, at := range due {
					if int32(now-at) > 2<<tickBits {
						rt.Fatalf("conn %d is %d ms late", i, now-at)
					}
				}
			},
		})
	})
}

// A lane does not wake at every tick at which a flow may be due: it may end late by
// slack.
func TestWaitHasSlack(t *testing.T) {
	for _, slack := range []int32{0, 200} {
		now := mono.Millis()
		l := &Lane{slab: newSlab(1), wheel: newWheel(now), slack: slack, sockets: 1, trimmed: now}
		i, _ := l.slab.take()
		l.wheel.add(&l.slab, i, now+1, now)
		wait, ok := l.Wait()
		if late := wait >= 190*time.Millisecond; !ok || late != (slack > 0) {
			t.Errorf("with %d ms of slack it sleeps for %v, %v", slack, wait, ok)
		}
	}
}

// A budget is a burst at once, and one a millisecond.
func TestBudget(t *testing.T) {
	b := budget{left: refusalBurst, at: 1<<32 - 5}
	count := func(now uint32) (n int) {
		for b.take(now) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		now  uint32
		want int
	}{{1<<32 - 5, refusalBurst}, {1<<32 - 5, 0}, {5, 10}, {4, 0}, {1_000_000, refusalBurst}} {
		if got := count(c.now); got != c.want {
			t.Errorf("at %d: %d, want %d", c.now, got, c.want)
		}
	}
}
