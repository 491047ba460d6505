//go:build dpdk

package eal

// #include "shim.h"
import "C"

import "fmt"

// Alloc takes n mbufs from the pool to the end of b, or none: it reports which.
//
// Preconditions: 0 <= n <= MaxBurst - b.N.
func (b *Burst) Alloc(n int) bool {
	if n < 0 || n > MaxBurst-b.N {
		panic("eal: allocating beyond a burst")
	}
	if n == 0 {
		return true
	}
	n = int(C.dn_alloc(b.first(b.N), C.uint(n)))
	b.N += n
	return n > 0
}

// Free gives all mbufs of b back to the pool.
func (b *Burst) Free() {
	if b.N > 0 {
		C.dn_free(b.first(0), C.uint(b.N))
		b.N = 0
	}
}

// Queue is a queue pair of a port. Its generation's owner alone uses it.
type Queue struct {
	Port  uint16
	Index uint16
}

// Receive receives behind what is in b, and returns how many packets.
func (q Queue) Receive(b *Burst) int {
	if b.N == MaxBurst {
		return 0
	}
	n := int(C.dn_rx(C.uint16_t(q.Port), C.uint16_t(q.Index), b.first(b.N), C.uint(MaxBurst-b.N)))
	b.N += n
	return n
}

// Send sends what is in b, and returns how many packets the device took. The others
// stay in b.
func (q Queue) Send(b *Burst) int {
	if b.N == 0 {
		return 0
	}
	n := int(C.dn_tx(C.uint16_t(q.Port), C.uint16_t(q.Index), b.first(0), C.uint(b.N)))
	b.drop(n)
	return n
}

// Purpose is what a ring carries.
type Purpose uint32

// The purposes.
const (
	Frames Purpose = iota // that the producer received for the consumer
	Sends                 // that the consumer is to send for the producer
)

// Layout is what the primary made.
type Layout struct {
	Workers  int // of a generation, at most
	RingSize int // a power of two; a ring holds one less
}

// Lcore returns the lcore id of a worker of a slot.
//
// Preconditions: 0 <= slot < Slots, 0 <= worker < l.Workers.
func (l Layout) Lcore(slot, worker int) int {
	if slot < 0 || slot >= Slots || worker < 0 || worker >= l.Workers {
		panic(fmt.Sprintf("eal: no worker %d of slot %d", worker, slot))
	}
	return 1 + slot*l.Workers + worker
}

// Lcores returns how many lcore ids secondaries have: 1 to it.
func (l Layout) Lcores() int { return Slots * l.Workers }

// Ring is one way from a process to another.
type Ring uint32

// Ring returns the ring from one lcore id to another.
//
// Preconditions: both are those of secondaries, 1 .. Lcores().
func (l Layout) Ring(p Purpose, producer, consumer int) Ring {
	n := l.Lcores()
	if p > Sends || producer < 1 || producer > n || consumer < 1 || consumer > n {
		panic(fmt.Sprintf("eal: no ring from lcore %d to %d", producer, consumer))
	}
	return Ring((int(p)*n+producer-1)*n + consumer - 1)
}

// Push puts what is in b into the ring, and returns how much fitted. The rest stays
// in b. Only the ring's producer calls it.
func (r Ring) Push(b *Burst) int {
	if b.N == 0 {
		return 0
	}
	n := int(C.dn_send(C.uint32_t(r), b.first(0), C.uint(b.N)))
	b.drop(n)
	return n
}

// Pull takes what fits behind what is in b, and returns how many. Only the ring's
// consumer calls it; a producer may, once the primary has repaired the ring of a
// consumer that is gone.
func (r Ring) Pull(b *Burst) int {
	if b.N == MaxBurst {
		return 0
	}
	n := int(C.dn_receive(C.uint32_t(r), b.first(b.N), C.uint(MaxBurst-b.N)))
	b.N += n
	return n
}
