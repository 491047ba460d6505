//go:build dpdk

package eal

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ErrBusy is what Audit returns where a process was inside a section each time.
var ErrBusy = errors.New("the pool was in use at every look")

// Create makes the pool and the rings; of the primary, after Init. mbufs have room
// for so many octets behind their headroom.
func Create(mbufs, room int, l Layout) error {
	if l.Workers < 1 || l.Workers > MaxWorkers {
		return fmt.Errorf("a layout of %d workers: there can be 1 to %d", l.Workers, MaxWorkers)
	}
	rc := C.dn_create(C.uint32_t(mbufs), C.uint32_t(room), C.uint32_t(l.Workers), C.uint32_t(l.RingSize))
	if err := failed(rc); errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("making a pool of %d mbufs and %d rings of %d: %w; raise dpdk.memory and the hugepages, or lower dpdk.mbufs",
			mbufs, 2*l.Lcores()*l.Lcores(), l.RingSize, err)
	} else if err != nil {
		return fmt.Errorf("making the pool and the rings: %w", err)
	}
	return nil
}

// Attach finds what the primary made; of a secondary, after Init with this lcore id.
func Attach(lcore int) (Layout, error) {
	var workers, size C.uint32_t
	switch err := failed(C.dn_attach(C.uint32_t(lcore), &workers, &size)); {
	case errors.Is(err, syscall.ENOENT):
		return Layout{}, errors.New("attaching to the primary: it has made no pool; is it a dnsapp primary?")
	case errors.Is(err, syscall.EPROTO):
		return Layout{}, errors.New("attaching to the primary: its memory has another layout; start a new primary with this binary")
	case err != nil:
		return Layout{}, fmt.Errorf("attaching to the primary as lcore %d: %w", lcore, err)
	}
	return Layout{Workers: int(workers), RingSize: int(size)}, nil
}

// Audit is where the mbufs of the pool are:
//
//	Size = Free + Rings + the sums of Process, Rx and Tx + Astray + Duplicate
type Audit struct {
	Size      int         `json:"size"`
	Free      int         `json:"free"`
	Rings     int         `json:"rings"`
	Process   map[int]int `json:"process"`   // in the hands of live processes, by lcore id
	Rx        map[int]int `json:"rx"`        // with a device to receive into, by port
	Tx        map[int]int `json:"tx"`        // with a device to send, by port
	Astray    int         `json:"astray"`    // left by processes that are gone; given back if mending
	Duplicate int         `json:"duplicate"` // found in two places: always 0
	Stack     int         `json:"stack"`     // elements and counts of the pool's own lists that were lost, and mended likewise
}

// How an audit looks for a quiet moment: some looks without asking for it, then
// with a hold, which ends by itself.
const (
	freeLooks = 20
	holds     = 3
	heldLooks = 20
	holdTime  = 5                      // ms; longer than heldLooks pauses
	lookPause = 200 * time.Microsecond // in which those inside a section leave it
	holdPause = 2 * time.Millisecond   // between two holds
)

// TakeAudit says where all mbufs are at one instant; of the primary. live are the
// lcore ids of the secondaries that live; those of others are taken for gone. With
// mend it gives back what these have left.
//
// Under load it may ask the secondaries for a few pauses of at most 5 ms. ErrBusy means
// that even so there was no instant at which none was in a section: one is stopped
// in the middle of it.
func TakeAudit(live []int, mend bool) (*Audit, error) {
	var alive [MaxLcores]C.bool
	alive[0] = true
	for _, id := range live {
		alive[id] = true
	}
	var a C.struct_dn_audit
	look := func() C.int { return C.dn_audit(&alive[0], &a, C.bool(mend)) }
	const busy = -C.int(syscall.EAGAIN)
	rc := busy
	for try := 0; try < freeLooks && rc == busy; try++ {
		rc = look()
	}
	for hold := 0; hold < holds && rc == busy; hold++ {
		C.dn_hold(holdTime)
		for try := 0; try < heldLooks && rc == busy; try++ {
			time.Sleep(lookPause)
			rc = look()
		}
		C.dn_hold(0)
		if rc == busy {
			time.Sleep(holdPause)
		}
	}
	if rc == busy {
		return nil, ErrBusy
	}
	if err := failed(rc); err != nil {
		return nil, fmt.Errorf("auditing the pool: %w", err)
	}
	out := &Audit{
		Size: int(a.size), Free: int(a.free), Rings: int(a.rings), Astray: int(a.astray), Duplicate: int(a.duplicate),
		Process: sparse(a.process[:]), Rx: sparse(a.rx[:]), Tx: sparse(a.tx[:]),
		Stack: int(a.lost_elements) + abs(int(a.used_short)) + abs(int(a.free_short)),
	}
	return out, nil
}

func abs(n int) int { return max(n, -n) }

// sparse returns what is not 0 in counts, by its index.
func sparse(counts []C.uint32_t) map[int]int {
	m := map[int]int{}
	for i, n := range counts {
		if n > 0 {
			m[i] = int(n)
		}
	}
	return m
}

// RepairRing makes a ring usable again whose ends are gone; of the primary. What was
// not published by the producer is astray afterwards, what was not published as
// taken by the consumer is in the ring.
func RepairRing(r Ring, producerGone, consumerGone bool) {
	C.dn_repair_ring(C.uint32_t(r), C.bool(producerGone), C.bool(consumerGone))
}
