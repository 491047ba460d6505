package fragment

import (
	"fmt"
	"hash/maphash"

	"github.com/dnsapp/dnsapp/server/counters"
)

const (
	// Room is the space before a payload that Add returns, for the headers of a
	// caller that needs a whole frame: link header, tag and an IPv6 header.
	Room = 64

	chunkSize    = 2048
	maxChunks    = (maxDatagram + chunkSize - 1) / chunkSize
	maxDatagram  = 65535
	maxFragments = 128 // 65,535 bytes over a path of 552
)

// Config is the limits of a Reassembler.
type Config struct {
	Memory    int   // bytes for fragments in all, a multiple of 2 KiB; at least 64 KiB
	PerSource int   // bytes for those of one source; 2 KiB .. Memory
	Timeout   int64 // nanoseconds from the first fragment that came (RFC 8200 4.5: at most 60 s)
	Done      int   // bytes for datagrams given out and not yet taken; at least 64 KiB + Room
}

// Key names a datagram. Proto is 0 for IPv6, where the identification alone is
// unique (RFC 8200 4.5).
type Key struct {
	Src, Dst [16]byte // IPv4-mapped for IPv4
	ID       uint32
	VLAN     uint16
	Proto    uint8
}

// Part is a fragment. It is not kept.
type Part struct {
	Key
	Offset int
	More   bool   // it is not the last
	Next   uint8  // its protocol; the first fragment's counts
	ECN    uint8  // of its IP header; one that met congestion counts (RFC 3168 5.3)
	Data   []byte // what was fragmented
}

// Result is what became of a fragment.
type Result uint8

// The results. After the last three the caller counts the fragment as dropped;
// all it held and gave up is counted by the Reassembler.
const (
	Held      Result = iota // kept
	Complete                // it was the last one missing
	Odd                     // its length is no multiple of 8 and it is not the last, or it is empty
	TooLong                 // it ends past 65,535 bytes
	Duplicate               // an exact one
	Overlap                 // it overlaps another, or contradicts the datagram's length
	Limit                   // no memory
)

// Datagram is a datagram put together.
type Datagram struct {
	Buf  []byte // Room bytes, then the payload; valid until the next Reset
	Next uint8
	ECN  uint8
}

type span struct{ start, end uint16 } // end is past the last byte; at most 65,535

// Lists that a datagram is in.
const (
	byAge    = iota // of all, oldest first
	bySource        // of one source, oldest first
	numLists
)

type datagram struct {
	key      Key
	deadline int64
	total    int // length, -1 until the last fragment came
	have     int // bytes held
	n        int // spans that are used; sorted, disjoint
	spans    [maxFragments]span
	chunks   [maxChunks]int32 // number in the arena, none where negative
	held     int              // chunks
	charge   int              // of its source: held, at least one
	dead     bool             // condemned: everything that comes is dropped
	ecn      uint8
	next     uint8
	source   int32
	chain    int32 // next in the hash chain or the free list
	links    [numLists]struct{ prev, next int32 }
}

type list struct{ head, tail int32 }

type source struct {
	ip     [16]byte
	charge int
	all    list
	chain  int32 // next in the free list
}

// Reassembler puts fragments together. It is for one goroutine.
type Reassembler struct {
	// Merged counts fragments that were held and left in a datagram. The one that
	// completed it was never held.
	Merged uint64

	cfg     Config
	dropped *[counters.NumReasons]uint64
	seed    maphash.Seed
	pending int

	arena      []byte
	freeChunks []int32
	datagrams  []datagram
	freeGrams  int32
	buckets    []int32
	age        list
	sources    []source
	freeSource int32
	bySource   map[[16]byte]int32

	done []byte // what is given out
	used int    // of done
}

// New returns an empty Reassembler. Fragments that it held and gave up are counted
// in dropped.
func New(cfg Config, dropped *[counters.NumReasons]uint64) (*Reassembler, error) {
	switch {
	case cfg.Memory < 64<<10 || cfg.Memory%chunkSize != 0:
		return nil, fmt.Errorf("fragment: memory is %d bytes: give a multiple of %d that is at least 65536", cfg.Memory, chunkSize)
	case cfg.PerSource < chunkSize || cfg.PerSource > cfg.Memory:
		return nil, fmt.Errorf("fragment: memory for one source is %d bytes: give %d to %d", cfg.PerSource, chunkSize, cfg.Memory)
	case cfg.Timeout <= 0 || cfg.Timeout > 60e9:
		return nil, fmt.Errorf("fragment: time-out is %d ns: give 1 ns to 60 s (RFC 8200 4.5)", cfg.Timeout)
	case cfg.Done < Room+maxDatagram:
		return nil, fmt.Errorf("fragment: %d bytes for complete datagrams: give at least %d", cfg.Done, Room+maxDatagram)
	}
	n := cfg.Memory / chunkSize
	buckets := 1
	for buckets < 2*n {
		buckets *= 2
	}
	r := &Reassembler{
		cfg: cfg, dropped: dropped, seed: maphash.MakeSeed(),
		arena: make([]byte, cfg.Memory), freeChunks: make([]int32, n),
		datagrams: make([]datagram, n), buckets: make([]int32, buckets), age: list{-1, -1},
		sources: make([]source, n), bySource: make(map[[16]byte]int32, n),
		done: make([]byte, cfg.Done),
	}
	for i := range n {
		r.freeChunks[i] = int32(i)
		r.datagrams[i].chain, r.sources[i].chain = int32(i)+1, int32(i)+1
	}
	r.datagrams[n-1].chain, r.sources[n-1].chain = -1, -1
	for i := range r.buckets {
		r.buckets[i] = -1
	}
	return r, nil
}

// Pending returns the fragments held.
func (r *Reassembler) Pending() int { return r.pending }

// Memory returns the bytes that are taken by fragments.
func (r *Reassembler) Memory() int { return r.cfg.Memory - len(r.freeChunks)*chunkSize }

// Reset takes back the memory of the datagrams given out.
func (r *Reassembler) Reset() { r.used = 0 }

// Expire gives up what is older than the time-out at now.
func (r *Reassembler) Expire(now int64) {
	for r.age.head >= 0 && now >= r.datagrams[r.age.head].deadline {
		r.remove(r.age.head, counters.DropFragTimeout)
	}
}

// Deadline returns when Expire has something to do next; ok is false where it has
// nothing.
func (r *Reassembler) Deadline() (at int64, ok bool) {
	if r.age.head < 0 {
		return 0, false
	}
	return r.datagrams[r.age.head].deadline, true
}

// bucket returns where the hash chain of k begins.
func (r *Reassembler) bucket(k *Key) *int32 {
	return &r.buckets[maphash.Comparable(r.seed, *k)&uint64(len(r.buckets)-1)]
}

// Add takes in a fragment. d is set with Complete.
func (r *Reassembler) Add(p *Part, now int64) (d Datagram, res Result) {
	end := p.Offset + len(p.Data)
	switch {
	case len(p.Data) == 0 || p.More && len(p.Data)%8 != 0:
		return d, Odd
	case end > maxDatagram:
		return d, TooLong
	}
	r.Expire(now)
	bucket := r.bucket(&p.Key)
	i := *bucket
	for i >= 0 && r.datagrams[i].key != p.Key {
		i = r.datagrams[i].chain
	}
	if i < 0 {
		i = r.create(p, bucket, now)
	}
	g := &r.datagrams[i]
	if g.dead {
		return d, Overlap
	}
	at, res := g.place(p, end, r)
	switch res {
	case Overlap:
		r.condemn(i)
		return d, Overlap
	case Held:
	default:
		return d, res
	}
	if !r.store(i, p, end) {
		return d, Limit
	}
	copy(g.spans[at+1:g.n+1], g.spans[at:g.n])
	g.spans[at] = span{uint16(p.Offset), uint16(end)}
	g.n++
	g.have += len(p.Data)
	r.pending++
	if !p.More {
		g.total = end
	}
	if p.Offset == 0 {
		g.next = p.Next
	}
	if p.ECN == 3 || g.n == 1 {
		g.ecn = p.ECN
	}
	if g.have != g.total {
		return d, Held
	}
	return r.complete(i)
}

// place returns where among the spans p belongs, or what keeps it out.
func (g *datagram) place(p *Part, end int, r *Reassembler) (at int, res Result) {
	at = g.n
	for at > 0 && int(g.spans[at-1].start) >= p.Offset {
		at--
	}
	if at < g.n && int(g.spans[at].start) == p.Offset && int(g.spans[at].end) == end && p.More == (end != g.total) && r.same(g, p) {
		return at, Duplicate
	}
	switch {
	case at > 0 && int(g.spans[at-1].end) > p.Offset, at < g.n && int(g.spans[at].start) < end:
		return at, Overlap
	case g.total >= 0 && (end > g.total || !p.More): // past the end, or a second end
		return at, Overlap
	case !p.More && at < g.n:
		return at, Overlap
	case g.n == maxFragments:
		return at, Limit
	}
	return at, Held
}

// pieces calls f with each stretch of p's data and where it lies in the arena.
func (r *Reassembler) pieces(g *datagram, offset int, data []byte, f func(arena, data []byte) bool) bool {
	for len(data) > 0 {
		c, in := g.chunks[offset/chunkSize], offset%chunkSize
		n := min(chunkSize-in, len(data))
		if !f(r.arena[int(c)*chunkSize+in:][:n], data[:n]) {
			return false
		}
		offset, data = offset+n, data[n:]
	}
	return true
}

// same reports whether the bytes of p are those held.
func (r *Reassembler) same(g *datagram, p *Part) bool {
	return r.pieces(g, p.Offset, p.Data, func(arena, data []byte) bool { return string(arena) == string(data) })
}

// store copies p's data into the arena. It makes room by giving up the oldest
// datagrams of the same source, then of any; it is false where i itself is one.
func (r *Reassembler) store(i int32, p *Part, end int) bool {
	g := &r.datagrams[i]
	for c := p.Offset / chunkSize; c <= (end-1)/chunkSize; c++ {
		if g.chunks[c] >= 0 {
			continue
		}
		more := 1
		if g.held == 0 {
			more = 0 // the charge of the datagram itself
		}
		s := &r.sources[g.source]
		for s.charge+more > r.cfg.PerSource/chunkSize {
			if s.all.head == i {
				r.remove(i, counters.DropFragLimit)
				return false
			}
			r.remove(s.all.head, counters.DropFragLimit)
		}
		for len(r.freeChunks) == 0 {
			victim := r.age.head
			r.remove(victim, counters.DropFragLimit)
			if victim == i {
				return false
			}
		}
		last := len(r.freeChunks) - 1
		g.chunks[c] = r.freeChunks[last]
		r.freeChunks = r.freeChunks[:last]
		g.held++
		g.charge += more
		s.charge += more
	}
	return r.pieces(g, p.Offset, p.Data, func(arena, data []byte) bool { copy(arena, data); return true })
}

// complete gives out datagram i.
func (r *Reassembler) complete(i int32) (d Datagram, res Result) {
	g := &r.datagrams[i]
	r.pending-- // the one that completes it is accounted for by the caller
	need := Room + g.total
	if len(r.done)-r.used < need {
		g.n-- // remove counts the others
		r.remove(i, counters.DropFragLimit)
		return d, Limit
	}
	d = Datagram{Buf: r.done[r.used : r.used+need : r.used+need], Next: g.next, ECN: g.ecn}
	r.used += need
	r.pieces(g, 0, d.Buf[Room:], func(arena, data []byte) bool { copy(data, arena); return true })
	r.Merged += uint64(g.n - 1)
	r.pending -= g.n - 1
	g.n = 0
	r.remove(i, counters.NotDropped)
	return d, Complete
}
