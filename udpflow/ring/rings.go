package ring

import (
	"fmt"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Rings is a matrix of rings: from each lane of one generation to each worker of
// one generation (the same, for siblings, or another).
type Rings struct {
	region  *shm.Region
	lanes   int
	workers int
	bytes   int
}

// Format makes r, fresh memory of at least RegionSize bytes, a matrix of empty
// rings: lanes 1..MaxLanes, workers 1..MaxWorkers, bytes a power of two within
// MinBytes..MaxBytes. A ring of fewer than 256 KiB does not take the largest
// datagram: see Producer.MaxPayload.
func Format(r *shm.Region, lanes, workers, bytes int) (*Rings, error) {
	if err := validate(uint64(max(lanes, 0)), uint64(max(workers, 0)), uint64(max(bytes, 0)), r.Size()); err != nil {
		return nil, fmt.Errorf("formatting rings: %w", err)
	}
	r.Format(shm.KindRings, Layout)
	h := shm.View[top](r, topOffset)
	h.Lanes.Store(uint64(lanes))
	h.Workers.Store(uint64(workers))
	h.Bytes.Store(uint64(bytes))
	r.Publish()
	return Attach(r)
}

// Attach returns the rings in r. Its errors match shm.ErrLayout.
func Attach(r *shm.Region) (*Rings, error) {
	if err := r.Check(shm.KindRings, Layout); err != nil {
		return nil, fmt.Errorf("attaching rings: %w", err)
	}
	if r.Size() < wakeOffset {
		return nil, fmt.Errorf("attaching rings: region has %d bytes, its headers take %d: %w", r.Size(), wakeOffset, shm.ErrLayout)
	}
	h := shm.View[top](r, topOffset)
	lanes, workers, bytes := h.Lanes.Load(), h.Workers.Load(), h.Bytes.Load() // once: another process may rewrite them
	if err := validate(lanes, workers, bytes, r.Size()); err != nil {
		return nil, fmt.Errorf("attaching rings: %w", err)
	}
	return &Rings{region: r, lanes: int(lanes), workers: int(workers), bytes: int(bytes)}, nil
}

func validate(lanes, workers, bytes uint64, size int) error {
	switch {
	case lanes < 1 || lanes > MaxLanes:
		return fmt.Errorf("%d lanes: not within 1..%d: %w", lanes, MaxLanes, shm.ErrLayout)
	case workers < 1 || workers > MaxWorkers:
		return fmt.Errorf("%d workers: not within 1..%d: %w", workers, MaxWorkers, shm.ErrLayout)
	case bytes < MinBytes || bytes > MaxBytes || bytes&(bytes-1) != 0:
		return fmt.Errorf("rings of %d bytes: not a power of two within %d..%d: %w", bytes, MinBytes, MaxBytes, shm.ErrLayout)
	}
	if want := RegionSize(int(lanes), int(workers), int(bytes)); size < want {
		return fmt.Errorf("region has %d bytes, %d x %d rings of %d bytes take %d: %w", size, lanes, workers, bytes, want, shm.ErrLayout)
	}
	return nil
}

// Lanes returns the number of producing lanes.
func (r *Rings) Lanes() int { return r.lanes }

// Workers returns the number of consuming workers.
func (r *Rings) Workers() int { return r.workers }

// Bytes returns the size of each ring.
func (r *Rings) Bytes() int { return r.bytes }

// Fill returns how full the fullest ring to a worker is, from 0 to 1.
func (r *Rings) Fill(worker int) float64 {
	var most uint64
	for lane := range r.lanes {
		v := r.view(lane, worker)
		head := v.head() // first: the tail is never behind it
		most = max(most, min(v.tail()-head, v.size()))
	}
	return float64(most) / float64(r.bytes)
}

// Producer returns the sending end of the ring from lane to worker, for the one
// process that is lane. It goes on where the last producer published.
func (r *Rings) Producer(lane, worker int) *Producer {
	v := r.view(lane, worker)
	tail := v.tail()
	return &Producer{view: v, pos: tail, published: tail, head: v.head(), sleeping: r.sleeping(worker)}
}

// Consumer returns the receiving end of the ring from lane to worker, for the one
// process that is worker. It goes on where the last consumer released.
func (r *Rings) Consumer(lane, worker int) *Consumer { return newConsumer(r.view(lane, worker)) }

// view is what both ends of a ring know of it.
type view struct {
	ctl  *control
	data []byte // length is a power of two
}

func (r *Rings) view(lane, worker int) view {
	if lane < 0 || lane >= r.lanes || worker < 0 || worker >= r.workers {
		panic(fmt.Sprintf("ring: no ring from lane %d to worker %d in a matrix of %d x %d", lane, worker, r.lanes, r.workers))
	}
	i := lane*r.workers + worker
	off := dataOffset(r.lanes, r.workers) + i*r.bytes
	return view{
		ctl:  shm.View[control](r.region, controlOffset(r.workers)+i*128),
		data: r.region.Bytes()[off : off+r.bytes : off+r.bytes],
	}
}

func (r *Rings) sleeping(worker int) *atomic.Uint64 {
	return &shm.View[wake](r.region, wakeOffset+worker*64).Sleeping
}

func (v *view) size() uint64 { return uint64(len(v.data)) }

func (v *view) tail() uint64 {
	step.Read(&v.ctl.Tail)
	return v.ctl.Tail.Load() &^ (align - 1)
}

func (v *view) head() uint64 {
	step.Read(&v.ctl.Head)
	return v.ctl.Head.Load() &^ (align - 1)
}
