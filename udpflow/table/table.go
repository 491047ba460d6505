package table

import (
	"fmt"
	"time"

	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

// Table is the flow table of one generation. Its methods may be called from any
// goroutine of any process that maps the region; none of them blocks, allocates
// or makes a system call.
type Table struct {
	slots   []slot // length is a power of two
	mask    uint64 // len(slots)-1
	idle    uint32 // milliseconds
	secret  flow.Secret
	workers []workerWord // MaxWorkers
}

// Format makes r, of at least RegionSize(slots) bytes, an empty table: fresh
// memory or the table of a generation that is gone. slots is a power of two
// within MinSlots..MaxSlots; idle is within MinIdle..MaxIdle and counts in whole
// milliseconds. The secret must be that of every other generation's table.
//
// A process that attached before must attach again.
func Format(r *shm.Region, slots int, idle time.Duration, secret flow.Secret) (*Table, error) {
	if err := validate(uint64(max(slots, 0)), uint64(max(idle.Milliseconds(), 0)), r.Size()); err != nil {
		return nil, fmt.Errorf("formatting flow table: %w", err)
	}
	r.Format(shm.KindFlowTable, Layout)
	ws := shm.ViewSlice[workerWord](r, workersOffset, MaxWorkers)
	for i := range ws { // first, so that nobody follows an entry on its way out
		ws[i].Header.Store(0)
	}
	ss := shm.ViewSlice[slot](r, slotsOffset, slots)
	for i := range ss {
		ss[i].Entry.Store(0)
		ss[i].Hash.Store(0)
	}
	h := shm.View[top](r, topOffset)
	h.Slots.Store(uint64(slots))
	h.IdleMs.Store(uint64(idle.Milliseconds()))
	h.Secret[0].Store(secret[0])
	h.Secret[1].Store(secret[1])
	r.Publish()
	return Attach(r)
}

// Attach returns the table in r. Its errors match shm.ErrLayout.
func Attach(r *shm.Region) (*Table, error) {
	if err := r.Check(shm.KindFlowTable, Layout); err != nil {
		return nil, fmt.Errorf("attaching flow table: %w", err)
	}
	if r.Size() < slotsOffset {
		return nil, fmt.Errorf("attaching flow table: region has %d bytes, its headers take %d: %w", r.Size(), slotsOffset, shm.ErrLayout)
	}
	if err := r.ExcludeFromDumps(); err != nil { // the secret is in it
		return nil, fmt.Errorf("attaching flow table: %w", err)
	}
	h := shm.View[top](r, topOffset)
	slots, idle := h.Slots.Load(), h.IdleMs.Load() // once: another process may rewrite them
	if err := validate(slots, idle, r.Size()); err != nil {
		return nil, fmt.Errorf("attaching flow table: %w", err)
	}
	return &Table{
		slots:   shm.ViewSlice[slot](r, slotsOffset, int(slots)),
		mask:    slots - 1,
		idle:    uint32(idle),
		secret:  flow.Secret{h.Secret[0].Load(), h.Secret[1].Load()},
		workers: shm.ViewSlice[workerWord](r, workersOffset, MaxWorkers),
	}, nil
}

func validate(slots, idleMs uint64, size int) error {
	switch {
	case slots < MinSlots || slots > MaxSlots || slots&(slots-1) != 0:
		return fmt.Errorf("%d slots: not a power of two within %d..%d: %w", slots, MinSlots, MaxSlots, shm.ErrLayout)
	case idleMs < uint64(MinIdle.Milliseconds()) || idleMs > uint64(MaxIdle.Milliseconds()):
		return fmt.Errorf("idle time of %d ms: not within %v..%v: %w", idleMs, MinIdle, MaxIdle, shm.ErrLayout)
	case size < RegionSize(int(slots)):
		return fmt.Errorf("region has %d bytes, %d slots take %d: %w", size, slots, RegionSize(int(slots)), shm.ErrLayout)
	}
	return nil
}

// Slots returns the number of slots.
func (t *Table) Slots() int { return len(t.slots) }

// Idle returns how long after its last packet a flow is alive.
func (t *Table) Idle() time.Duration { return time.Duration(t.idle) * time.Millisecond }

// Secret returns the key of the hashes.
func (t *Table) Secret() flow.Secret { return t.secret }
