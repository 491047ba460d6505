package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Raise ends a wait on the same word in another mapping, as another process has it. (A
// signal of the runtime ends one, too: so it is tried until it meets one.)
func TestRaiseEndsAwait(t *testing.T) {
	for name, r := range backings(t, 4096) {
		other := r
		if name == "memfd" {
			fd, err := unix.Dup(r.Fd())
			if err != nil {
				t.Fatal(err)
			}
			if other, err = Map(fd); err != nil {
				t.Fatal(err)
			}
			defer other.Close()
		}
		var over atomic.Bool
		var waiter sync.WaitGroup
		waiter.Go(func() {
			for word := View[atomic.Uint32](r, HeaderSize); !over.Load(); {
				Await(word, word.Load(), time.Minute)
			}
		})
		word := View[atomic.Uint32](other, HeaderSize)
		for deadline := time.Now().Add(10 * time.Second); Raise(word) == 0; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Errorf("%s: nobody was woken", name)
				break
			}
		}
		over.Store(true)
		Raise(word)
		waiter.Wait()
	}
}

// Await returns at once where the word has moved, and after its time where it has not.
func TestAwaitEnds(t *testing.T) {
	word := View[atomic.Uint32](Heap(4096), HeaderSize)
	began := time.Now()
	Await(word, word.Load()+1, time.Minute)
	Await(word, word.Load(), 0)
	Await(word, word.Load(), -time.Second)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("waited %v where there was nothing to wait for", took)
	}
	began = time.Now()
	for time.Since(began) < 3*time.Millisecond {
		Await(word, word.Load(), 3*time.Millisecond-time.Since(began))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("waited %v instead of 3 ms", took)
	}
}
