package table

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// While lanes record new flows as fast as they can, a sweeper sweeps and readers
// look, in one crowded window, no established flow is lost or changes hands.
func TestConcurrent(t *testing.T) {
	const (
		lanes  = 4
		own    = 3 // established flows of each
		rounds = 3_000
	)
	tb := newTable(t, MinSlots, time.Hour)
	// Eight rounds are a millisecond: the clock wraps within the test, and nobody
	// who is preempted wakes up in another age.
	var ticks atomic.Uint64
	ticks.Store(8<<32 - rounds)
	read := func(ticks uint64) uint32 { return uint32(ticks / 8) }
	now := func() uint32 { return read(ticks.Load()) }
	established := func(lane, i int) uint64 { return home(MinSlots-7, uint64(lane*own+i)) }
	for l := range lanes {
		for i := range own {
			for range 2 {
				if o, _ := tb.Record(established(l, i), l, now()); o != Mine {
					t.Fatalf("setting up: %v", o)
				}
			}
		}
	}
	var busy, idle sync.WaitGroup
	var done atomic.Bool
	for l := range lanes {
		busy.Go(func() {
			for r := range rounds {
				now := read(ticks.Add(1))
				h := established(l, r%own)
				if o, w := tb.Record(h, l, now); o != Mine || w != l {
					t.Errorf("lane %d, round %d: its flow is %v, worker %d", l, r, o, w)
					return
				}
				tb.Record(home(MinSlots-7, uint64(1000+l*rounds+r)), l, now) // one of many passing by
				other := (l + 1) % lanes
				if o, w := tb.Record(established(other, r%own), l, now); o != Sibling || w != other {
					t.Errorf("lane %d, round %d: the flow of %d is %v, worker %d", l, r, other, o, w)
					return
				}
				if !tb.Touch(established(other, r%own), now) {
					t.Errorf("lane %d, round %d: the flow of %d is not alive", l, r, other)
					return
				}
			}
		})
	}
	for range 2 {
		idle.Go(func() {
			for i := 0; !done.Load(); i++ {
				l := i % lanes
				if w, ok := tb.Find(established(l, i%own), now()); !ok || w != l {
					t.Errorf("the flow of lane %d is found %v, at %d", l, ok, w)
					return
				}
				if n, _ := tb.Scan(l, now()); n < own {
					t.Errorf("lane %d has %d flows", l, n)
					return
				}
				tb.Sweep(now())
			}
		})
	}
	busy.Wait()
	done.Store(true)
	idle.Wait()
	for i := range tb.slots {
		if tb.slots[i].entry().claimed() {
			t.Errorf("slot %d is left under CLAIM", i)
		}
	}
}

// Of lanes that all want to record the same flow, or to adopt it, one does.
func TestConcurrentSameFlow(t *testing.T) {
	const lanes = 4
	tb := newTable(t, MinSlots, time.Second)
	for round := range uint32(500) {
		now := round * 1500 // the flow of the last round has aged
		h := home(9, uint64(round%5))
		var outcomes [lanes]Outcome
		var adopted atomic.Int32
		var wg sync.WaitGroup
		for l := range lanes {
			wg.Go(func() { outcomes[l], _ = tb.Record(h, l, now) })
		}
		wg.Wait()
		w, ok := tb.Find(h, now)
		if !ok || outcomes[w] != Mine {
			t.Fatalf("round %d: found %v at %d, outcomes %v", round, ok, w, outcomes)
		}
		for l := range lanes {
			wg.Go(func() {
				if tb.Adopt(h, w, lanes+l, now) {
					adopted.Add(1)
				}
			})
		}
		wg.Wait()
		if n := adopted.Load(); n != 1 {
			t.Fatalf("round %d: adopted %d times", round, n)
		}
	}
}
