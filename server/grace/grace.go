package grace

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/internal/step"
)

// lineSize keeps words that different processors write off one cache line.
const lineSize = 64

// Domain is a set of readers. Its zero value is not ready; use New.
type Domain struct {
	epoch atomic.Uint64 // written by Wait only
	_     [lineSize - 8]byte

	// inside counts those who have entered, by the parity of the epoch they did it
	// in. At most two epochs have anybody in them: Wait begins a third only when
	// the first is empty.
	inside [2]struct {
		n atomic.Uint64
		_ [lineSize - 8]byte
	}

	wake  func()
	moved chan struct{} // capacity 1: a reader has done what Wait may be waiting for

	mu    sync.Mutex // held by Wait
	lanes []*Lane    // guarded by mu
}

// New returns a domain without readers. wake makes every lane pass a boundary
// soon, also one that sleeps.
func New(wake func()) *Domain { return &Domain{wake: wake, moved: make(chan struct{}, 1)} }

// Lane is a reader that holds nothing at its boundaries. It belongs to one
// goroutine.
type Lane struct {
	d    *Domain
	mine uint64
	seen atomic.Uint64 // mine, for Wait
	_    [lineSize - 24]byte
}

// NewLane adds a lane. A Wait in progress does not wait for it, so it must not
// have got hold of anything yet.
func (d *Domain) NewLane() *Lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &Lane{d: d, mine: d.epoch.Load()}
	l.seen.Store(l.mine)
	d.lanes = append(d.lanes, l)
	return l
}

// Pass says that the lane is at a boundary.
func (l *Lane) Pass() {
	step.Read(&l.d.epoch)
	if e := l.d.epoch.Load(); e != l.mine {
		l.pass(e)
	}
}

func (l *Lane) pass(e uint64) {
	l.mine = e
	step.Write(&l.seen)
	l.seen.Store(e)
	l.d.notify()
}

// Section is one use by a reader that is no lane.
type Section struct {
	d     *Domain
	epoch uint64
}

// Enter begins a section. It does not block.
func (d *Domain) Enter() Section {
	for {
		step.Read(&d.epoch)
		e := d.epoch.Load()
		in := &d.inside[e&1].n
		step.Write(in)
		in.Add(1)
		// Only now does Wait see us. If the epoch is still that one, the Wait that
		// ends it will find us here.
		step.Read(&d.epoch)
		if d.epoch.Load() == e {
			return Section{d, e}
		}
		step.Write(in)
		in.Add(^uint64(0))
		d.notify()
	}
}

// Exit ends the section. It is called once.
func (s Section) Exit() {
	in := &s.d.inside[s.epoch&1].n
	step.Write(in)
	if in.Add(^uint64(0)) != 0 {
		return
	}
	step.Read(&s.d.epoch)
	if s.d.epoch.Load() != s.epoch {
		s.d.notify()
	}
}

func (d *Domain) notify() {
	select {
	case d.moved <- struct{}{}:
	default:
	}
}

// Wait returns when no reader can have anything from before the call, or with
// an error when ctx ends. One call waits at a time; others queue.
func (d *Domain) Wait(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	// One that was given up may have left readers in the epoch before.
	if err := d.settle(ctx); err != nil {
		return err
	}
	d.begin()
	d.wake()
	return d.settle(ctx)
}

// begin begins a new epoch.
func (d *Domain) begin() {
	step.Write(&d.epoch)
	d.epoch.Add(1)
}

// settle waits until nobody is left in the epoch before the present one.
func (d *Domain) settle(ctx context.Context) error {
	for !d.quiet() {
		select {
		case <-d.moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for readers: %w", context.Cause(ctx))
		}
	}
	return nil
}

// quiet reports whether every reader is in the present epoch.
func (d *Domain) quiet() bool {
	e := d.epoch.Load()
	in := &d.inside[(e+1)&1].n // the other parity
	step.Read(in)
	if in.Load() != 0 {
		return false
	}
	for _, l := range d.lanes {
		step.Read(&l.seen)
		if l.seen.Load() != e {
			return false
		}
	}
	return true
}
