package querylog

import (
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// Record is one answered query.
type Record struct {
	Time    int64    // Unix time in nanoseconds
	IP      [16]byte // of the client; IPv4 in its IPv4-mapped form
	Port    uint16
	TCP     bool
	Type    uint16
	Class   uint16
	Rcode   uint16 // extended
	Size    uint16 // octets of the answer
	NameLen uint8  // 0: there was no question
	Name    [wire.MaxName]byte
}

// queue is a bounded queue that any number of goroutines fill and one empties.
//
// A slot belongs to whoever its sequence word says: at position p (counted from 0
// without end) it is free for the producer when seq == p, filled when seq == p+1,
// and free again, for position p+len, when seq == p+len. A producer gets a position
// by a CAS on head and then has the slot for itself.
type queue struct {
	slots []slot // a power of two
	mask  uint64
	_     [64 - 32]byte
	head  atomic.Uint64 // next position to fill
	_     [64 - 8]byte
	tail  uint64 // next position to empty. Belongs to the consumer
}

type slot struct {
	seq atomic.Uint64
	Record
}

func newQueue(size int) *queue {
	q := &queue{slots: make([]slot, size), mask: uint64(size - 1)}
	for i := range q.slots {
		q.slots[i].seq.Store(uint64(i))
	}
	return q
}

// begin returns a slot to fill, and its position; nil if the queue is full. The
// slot must be given to commit, and soon: until then nothing behind it gets out.
func (q *queue) begin() (*slot, uint64) {
	for {
		p := q.head.Load()
		s := &q.slots[p&q.mask]
		switch seq := s.seq.Load(); {
		case seq == p:
			if q.head.CompareAndSwap(p, p+1) {
				return s, p
			}
		case seq < p: // still that of a lap ago
			return nil, 0
		} // else somebody was first
	}
}

// commit gives the slot at p to the consumer.
func (q *queue) commit(s *slot, p uint64) { s.seq.Store(p + 1) }

// next calls f with the oldest record, if there is one. f must not keep it.
func (q *queue) next(f func(*Record)) bool {
	s := &q.slots[q.tail&q.mask]
	if s.seq.Load() != q.tail+1 {
		return false
	}
	f(&s.Record)
	s.seq.Store(q.tail + q.mask + 1)
	q.tail++
	return true
}
