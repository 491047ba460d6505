package grace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waiting is a Wait in a goroutine of its own.
func waiting(ctx context.Context, d *Domain) <-chan error {
	done := make(chan error, 1)
	go func() { done <- d.Wait(ctx) }()
	return done
}

func returned(done <-chan error) bool {
	synctest.Wait()
	select {
	case err := <-done:
		return err == nil
	default:
		return false
	}
}

// Wait waits for every lane to pass a boundary, and wakes those that sleep.
func TestWaitForLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := 0
		d := New(func() { woken++ })
		a, b := d.NewLane(), d.NewLane()
		a.Pass()
		b.Pass()
		done := waiting(t.Context(), d)
		if returned(done) || woken != 1 {
			t.Fatalf("it has waited for nobody, or woken nobody (%d)", woken)
		}
		a.Pass()
		a.Pass()
		if returned(done) {
			t.Fatal("one lane has not passed")
		}
		b.Pass()
		if !returned(done) {
			t.Fatal("both lanes have passed")
		}
	})
}

// Wait waits for the sections that were entered before it, not for later ones.
func TestWaitForSections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		before, too := d.Enter(), d.Enter()
		done := waiting(t.Context(), d)
		if returned(done) {
			t.Fatal("two sections are left")
		}
		after := d.Enter()
		before.Exit()
		if returned(done) {
			t.Fatal("one section is left")
		}
		too.Exit()
		if !returned(done) {
			t.Fatal("only a later section is left")
		}
		done = waiting(t.Context(), d)
		if returned(done) {
			t.Fatal("that later one is before the next Wait")
		}
		after.Exit()
		if !returned(done) {
			t.Fatal("nobody is left")
		}
	})
}

// After a Wait that was given up the next one still waits for everybody.
func TestWaitGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		l, old := d.NewLane(), d.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		l.Pass()
		later := d.Enter()
		done := waiting(t.Context(), d)
		old.Exit()
		if returned(done) {
			t.Fatal("the later section and the lane are before this Wait")
		}
		later.Exit()
		l.Pass()
		if !returned(done) {
			t.Fatal("nobody is left")
		}
	})
}

// Without readers there is nothing to wait for.
func TestWaitForNobody(t *testing.T) {
	d := New(func() {})
	for range 3 {
		if err := d.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// thing is what is replaced; it must not be used once it is taken away.
type thing struct{ gone atomic.Bool }

// Lanes that sleep in between, goroutines, and a writer that replaces as fast as
// it can: nobody uses what is gone.
func TestConcurrent(t *testing.T) {
	var current atomic.Pointer[thing]
	current.Store(new(thing))
	var wakes [2]chan struct{}
	for i := range wakes {
		wakes[i] = make(chan struct{}, 1)
	}
	d := New(func() {
		for _, w := range wakes {
			select {
			case w <- struct{}{}:
			default:
			}
		}
	})
	use := func() {
		p := current.Load()
		for range 10 {
			if p.gone.Load() {
				t.Error("used what is gone")
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for _, wake := range wakes {
		l := d.NewLane()
		readers.Go(func() {
			for ctx.Err() == nil {
				for range 20 {
					l.Pass()
					use()
				}
				l.Pass()
				<-wake
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				s := d.Enter()
				use()
				s.Exit()
			}
		})
	}
	for range 200 {
		old := current.Swap(new(thing))
		if err := d.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		old.gone.Store(true)
	}
	stop()
	d.wake()
	readers.Wait()
}

// A boundary is not the place to allocate.
func TestNoAllocation(t *testing.T) {
	d := New(func() {})
	l := d.NewLane()
	if n := testing.AllocsPerRun(100, func() { l.Pass(); d.Enter().Exit() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPass(b *testing.B) {
	l := New(func() {}).NewLane()
	for b.Loop() {
		l.Pass()
	}
}

func BenchmarkSection(b *testing.B) {
	d := New(func() {})
	for b.Loop() {
		d.Enter().Exit()
	}
}
