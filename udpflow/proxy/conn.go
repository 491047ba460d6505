package proxy

import (
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
)

// state is what a conn is good for.
type state uint8

const (
	closed  state = iota // no socket; in the free list
	active               // has a flow; in the wheel
	resting              // has a socket and no flow; in a queue of its pool
)

// none ends lists of conns.
const none int32 = -1

// conn is a socket towards a server, with its flow while it has one.
type conn struct {
	hash atomic.Uint64 // of the flow; other lanes read it. 0: not in the index
	same atomic.Int32  // next in the bucket of the index; other lanes read it

	claim      backend.Claim // of its port; none if that is the client's
	fd         int32
	next, prev int32 // in a slot of the wheel (active), in a queue (resting), in the free list (closed)
	ready      int32 // next of those that may have received something; valid iff queued

	remote, local burst.Endpoint
	socket        uint32 // id of the client's side
	ifIndex       uint32

	last     uint32 // mono.Millis of the last datagram in either direction; of the end, when resting
	touched  uint32 // mono.Millis when the flow table was told last
	requests uint32 // datagrams of the client, saturating
	answers  uint32 // of the server, saturating

	member   int32  // of the backend
	listener uint16 // by configuration
	head     uint8  // first packet of the burst at hand
	tail     uint8  // last one
	state    state
	queued   bool // in the list of those that are ready
	bound    bool // in the index: the client's next datagram is for it
	inBurst  bool // head and tail are valid
	counted  bool // in the census. Valid iff active
	opened   bool // the server has had its first datagram
	clean    bool // every answer has come. Valid iff resting
}

// chunkSize conns are allocated at a time. They never move.
const (
	chunkBits = 10
	chunkSize = 1 << chunkBits
)

type chunk [chunkSize]conn

// slab is all conns of a lane, by number.
type slab struct {
	chunks []atomic.Pointer[chunk] // other lanes read them
	used   int32                   // numbers given out so far
	free   int32
}

func newSlab(most int) slab {
	return slab{chunks: make([]atomic.Pointer[chunk], (most+chunkSize-1)/chunkSize), free: none}
}

// at returns conn i, nil if there is none. It is safe in other lanes.
func (s *slab) at(i int32) *conn {
	if i < 0 || int(i>>chunkBits) >= len(s.chunks) {
		return nil
	}
	c := s.chunks[i>>chunkBits].Load()
	if c == nil {
		return nil
	}
	return &c[i&(chunkSize-1)]
}

// take returns a closed conn, or reports that there are too many.
func (s *slab) take() (int32, bool) {
	if i := s.free; i != none {
		s.free = s.at(i).next
		return i, true
	}
	i := s.used
	if int(i>>chunkBits) >= len(s.chunks) {
		return none, false
	}
	if i&(chunkSize-1) == 0 {
		s.chunks[i>>chunkBits].Store(new(chunk))
	}
	s.used++
	return i, true
}

// give takes conn i back.
func (s *slab) give(i int32) {
	c := s.at(i)
	c.state, c.fd, c.next = closed, -1, s.free
	s.free = i
}

// index finds the conn of a flow. Only its lane changes it; others may look.
type index struct {
	buckets []atomic.Int32
}

func newIndex(most int) index {
	n := 1 << 8
	for n < most && n < 1<<20 {
		n *= 2
	}
	x := index{make([]atomic.Int32, n)}
	for i := range x.buckets {
		x.buckets[i].Store(none)
	}
	return x
}

func (x *index) bucket(hash uint64) *atomic.Int32 { return &x.buckets[hash&uint64(len(x.buckets)-1)] }

// find returns the conn of the flow, none if there is none.
func (x *index) find(s *slab, hash uint64, p *burst.Packet) int32 {
	for i := x.bucket(hash).Load(); i != none; {
		c := s.at(i)
		if c.hash.Load() == hash && c.remote == p.Remote && c.local == p.Local {
			return i
		}
		i = c.same.Load()
	}
	return none
}

// searchMax bounds what another lane looks at while the index changes under it.
const searchMax = 64

// has reports whether a flow has a conn, for another lane. It may miss one that is
// just being added or removed.
func (x *index) has(s *slab, hash uint64) bool {
	i := x.bucket(hash).Load()
	for range searchMax {
		c := s.at(i)
		if c == nil {
			return false
		}
		if c.hash.Load() == hash {
			return true
		}
		i = c.same.Load()
	}
	return false
}

func (x *index) add(s *slab, i int32, hash uint64) {
	b, c := x.bucket(hash), s.at(i)
	c.same.Store(b.Load())
	c.hash.Store(hash)
	b.Store(i)
}

func (x *index) remove(s *slab, i int32) {
	c := s.at(i)
	at := x.bucket(c.hash.Load())
	for at.Load() != i {
		at = &s.at(at.Load()).same
	}
	at.Store(c.same.Load())
	c.hash.Store(0)
}
