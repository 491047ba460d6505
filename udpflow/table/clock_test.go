package table

import (
	"fmt"
	"testing"
	"time"
)

const day = 24 * 60 * 60 * 1000 // milliseconds

// starts are readings of the clock around its wrap and in its middle.
var starts = []uint32{0, 1, 4_999, 5_000, 1 << 31, 1<<31 - 1, 1<<32 - 1, 1<<32 - 4_000, 1 << 30}

// ages says which ages are alive, in milliseconds: from 5 s ahead to idle behind.
func ages(idle int64) map[int64]bool {
	return map[int64]bool{
		0: true, 1: true, idle - 1: true, idle: true, idle + 1: false,
		-1: true, -5: true, -4_999: true, -5_000: true, -5_001: false,
		2 * idle: false, 25 * day: false, 40 * day: false, 24 * day: false, 49 * day: false,
	}
}

// A flow is alive by the signed age of its last packet: a writer 5 ms ahead does
// not make it old, the wrap at 2^32 does not, and 25 or 40 days do, at both bounds
// of the idle time. Every operation agrees.
func TestAgesAreSigned(t *testing.T) {
	for _, idle := range []time.Duration{MinIdle, 10 * time.Second, MaxIdle} {
		for _, stamp := range starts {
			for age, alive := range ages(idle.Milliseconds()) {
				now := stamp + uint32(age)
				name := fmt.Sprintf("idle %v, stamp %d, age %d ms", idle, stamp, age)
				h := home(5, 0)
				fresh := func() *Table {
					tb := newTable(t, 1024, idle)
					tb.Record(h, 1, stamp)
					return tb
				}
				if w, ok := fresh().Find(h, now); ok != alive || ok && w != 1 {
					t.Errorf("%s: Find says %v, worker %d", name, ok, w)
				}
				if ok := fresh().Touch(h, now); ok != alive {
					t.Errorf("%s: Touch says %v", name, ok)
				}
				if ok := fresh().Adopt(h, 1, 2, now); ok != alive {
					t.Errorf("%s: Adopt says %v", name, ok)
				}
				if o, _ := fresh().Refresh(h, 1, now); (o == Mine) != alive {
					t.Errorf("%s: Refresh says %v", name, o)
				}
				if o, _ := fresh().Record(h, 2, now); (o == Sibling) != alive {
					t.Errorf("%s: Record by another worker says %v", name, o)
				}
				if n, _ := fresh().Scan(1, now); (n == 1) != alive {
					t.Errorf("%s: Scan counts %d", name, n)
				}
				if n := fresh().Sweep(now); (n == 0) != alive {
					t.Errorf("%s: the sweep freed %d", name, n)
				}
			}
		}
	}
}

// A slot that was swept stays nobody's however far the clock goes on: also at
// 49.7 days, when its stamp reads as the present.
func TestSweptSlotNeverReturns(t *testing.T) {
	for _, stamp := range starts {
		tb := newTable(t, 1024, time.Hour)
		h := home(5, 0)
		tb.Record(h, 1, stamp)
		tb.slots[6].Hash.Store(home(5, 1))
		tb.slots[6].Entry.Store(uint64(newEntry(stamp, 1) | claimFlag)) // its writer died
		if n := tb.Sweep(stamp + 3_600_001); n != 2 {
			t.Fatalf("the sweep freed %d slots", n)
		}
		for _, h := range []uint64{h, home(5, 1)} {
			if _, ok := tb.Find(h, stamp); ok {
				t.Errorf("stamp %d: alive when the clock has come round", stamp)
			}
		}
		for n := range uint64(probes) {
			if o, _ := tb.Record(home(5, 10+n), 2, stamp); o != Mine {
				t.Errorf("stamp %d: slot %d of the window is lost", stamp, n)
			}
		}
	}
}

// The refreshing clock never moves a stamp backwards, also across the wrap.
func TestRefreshKeepsTheLaterStamp(t *testing.T) {
	for _, stamp := range starts {
		for d := uint32(0); d <= 5; d++ {
			e := newEntry(stamp, 1)
			if got := e.refreshed(stamp - d).last(); got != stamp {
				t.Errorf("stamp %d refreshed %d ms earlier: %d", stamp, d, got)
			}
			if got := e.refreshed(stamp + d).last(); got != stamp+d {
				t.Errorf("stamp %d refreshed %d ms later: %d", stamp, d, got)
			}
		}
	}
}
