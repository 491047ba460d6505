package table

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
)

// progress is a flow whose stamp says how far the busy child is.
var progress = home(500, 0)

// busyMs is how far the busy child's stamps go on, half the idle time.
const busyMs = 500

func init() {
	children["busy"] = func(t *Table) {
		for n := uint64(0); ; n++ {
			h := home(n%4, 100+n%37)
			t.Record(h, int(n%7), xNow+uint32(n/16%busyMs)) // over and over
			t.Touch(home(0, n%8), xNow)
			if n%5 == 0 {
				t.Remove(h, int(n%7))
			}
			if n%11 == 0 {
				t.Sweep(xNow)
			}
			t.Record(progress, 1, xNow+uint32(n))
		}
	}
}

// A process killed at any instant of recording, removing and sweeping hurts nobody
// else, and leaves no slot that is not claimable a minute later.
func TestKilledAnywhere(t *testing.T) {
	for range 8 {
		tb, r := sharedTable(t)
		w := newWindow(tb, map[int]entry{1: 0, 6: aged, 9: once, 12: freed, 14: crash})
		c := startChild(t, r, "busy")
		until := xNow + 1 + rand.Uint32N(20_000)
		for deadline := time.Now().Add(time.Minute); tb.slots[500].entry().last() < until; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("the child makes no progress")
			}
		}
		c.Process.Signal(os.Kill)
		if !killed(t, c) {
			t.Fatal("the child was not killed")
		}
		left := 0
		for n := range tb.slots {
			if tb.slots[n].entry().claimed() {
				left++
			}
		}
		if left > 1 {
			t.Errorf("%d slots left under CLAIM by one process", left)
		}
		for _, err := range []error{w.intact(), w.claimableAfter(xNow + busyMs)} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}
