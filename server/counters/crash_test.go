//go:build explore

package counters

import (
	"errors"
	"testing"

	"github.com/dnsapp/dnsapp/internal/step"
)

var errCrash = errors.New("crash")

// crashAt runs f and ends it before its n-th store, and reports whether it came so far.
func crashAt(n int, f func()) (crashed bool) {
	defer func() {
		step.Hook = nil
		if r := recover(); r == errCrash {
			crashed = true
		} else if r != nil {
			panic(r)
		}
	}()
	step.Hook = func(_ any, write bool) {
		if write {
			if n == 0 {
				panic(errCrash)
			}
			n--
		}
	}
	f()
	return false
}

// A fold that ends anywhere, and one that ends anywhere when it is repeated, loses
// nothing and counts nothing twice: the totals are right at once, and after the fold.
func TestFoldCrashes(t *testing.T) {
	const lanes = 2
	s := newSet(t)
	var want Snapshot
	count := func(slot int) {
		for l := range lanes {
			for id := range numCounters {
				n := uint64(id)*7 + uint64(l) + 1
				s.Block(slot, l).Add(id, n)
				want[id] += n
			}
		}
	}
	check := func(epoch uint32, when string, at int) {
		t.Helper()
		var got Snapshot
		s.Read(&got, []Live{{1, epoch, lanes}, {2, 1, lanes}})
		if got != want {
			t.Fatalf("%s, crash before store %d: the totals are wrong", when, at)
		}
	}
	count(2) // a generation that lives on
	crashes := 0
	for epoch := uint32(2); ; epoch++ {
		at := int(epoch - 2)
		count(1)
		check(epoch, "counted", at)
		fold := func() { s.Fold(1, epoch, lanes) }
		crashed := crashAt(at, fold)
		check(epoch, "crashed", at)
		if crashAt(at/2, fold) {
			check(epoch, "crashed again", at/2)
		}
		s.Block(3, 0).Add(Received, 5) // another generation ends before this fold is repeated
		want[Received] += 5
		s.Fold(3, epoch, 1)
		check(epoch, "another folded", at)
		fold()
		check(epoch, "folded", at)
		check(epoch+1, "folded, slot opened again", at)
		fold()
		check(epoch+1, "folded twice", at)
		if !crashed {
			break
		}
		crashes++
	}
	if want := (1 + lanes) * int(numCounters); crashes < want {
		t.Errorf("%d crashes, of at least %d stores", crashes, want)
	}
}
