package counters

import (
	"fmt"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Layout is the layout number of the counters region. Raise it with every
// change of a block's content or of the region's shape.
const Layout = 7

// MaxLanes is the most lanes of one generation, over all its workers.
const MaxLanes = 256

// head follows the region header.
type head struct {
	// Seq counts folds: carry block Seq%2 is the one that counts.
	Seq atomic.Uint64
	// Folded is, per slot, the epoch whose blocks are already in the carry.
	// Guard: written before Seq for the incoming carry, see Fold.
	Folded [2][NumSlots]atomic.Uint32
	_      [4096 - 64 - 8 - 2*NumSlots*4]byte
}

const (
	headOffset  = shm.HeaderSize
	carryOffset = 4096
	blockOffset = carryOffset + 2*BlockSize

	// RegionSize is the size of the counters region in bytes. Unused blocks
	// take no memory.
	RegionSize = blockOffset + NumSlots*MaxLanes*BlockSize
)

// Set is the counters region.
type Set struct {
	region *shm.Region
	head   *head
}

// Format makes r, a zeroed region of RegionSize, a counters region.
func Format(r *shm.Region) (*Set, error) {
	r.Format(shm.KindCounters, Layout)
	r.Publish()
	return Attach(r)
}

// Attach returns the Set in r. Its errors match shm.ErrLayout.
func Attach(r *shm.Region) (*Set, error) {
	if err := r.Check(shm.KindCounters, Layout); err != nil {
		return nil, fmt.Errorf("attaching counters: %w", err)
	}
	if r.Size() < RegionSize {
		return nil, fmt.Errorf("attaching counters: region has %d bytes, needs %d: %w", r.Size(), RegionSize, shm.ErrLayout)
	}
	return &Set{region: r, head: shm.View[head](r, headOffset)}, nil
}

// Block returns the counters of lane (0 .. MaxLanes-1, over all workers) of
// the generation in slot.
func (s *Set) Block(slot, lane int) *Block {
	if slot < 0 || slot >= NumSlots || lane < 0 || lane >= MaxLanes {
		panic(fmt.Sprintf("counters: no block for slot %d lane %d", slot, lane))
	}
	return shm.View[Block](s.region, blockOffset+(slot*MaxLanes+lane)*BlockSize)
}

func (s *Set) carry(i uint64) *Block {
	return shm.View[Block](s.region, carryOffset+int(i%2)*BlockSize)
}

// Fold moves the blocks of the generation in slot, which ran under epoch, into
// the carry and clears them. Every process of that generation must be gone. It
// may be repeated after a crash at any point; only one process may call it.
func (s *Set) Fold(slot int, epoch uint32, lanes int) {
	seq := s.head.Seq.Load()
	if s.head.Folded[seq%2][slot].Load() != epoch {
		from, to := s.carry(seq), s.carry(seq+1)
		for id := range numCounters {
			v := from.Load(id)
			for l := range lanes {
				v += s.Block(slot, l).Load(id)
			}
			store(&to.w[id], v)
		}
		for i := range s.head.Folded[0] {
			step.Write(&s.head.Folded[(seq+1)%2][i])
			s.head.Folded[(seq+1)%2][i].Store(s.head.Folded[seq%2][i].Load())
		}
		step.Write(&s.head.Folded[(seq+1)%2][slot])
		s.head.Folded[(seq+1)%2][slot].Store(epoch)
		store(&s.head.Seq, seq+1) // from here on the blocks no longer count
	}
	for l := range lanes {
		b := s.Block(slot, l)
		for id := range numCounters {
			store(&b.w[id], 0)
		}
	}
}

// store stores v, where a test may end the fold.
func store(w *atomic.Uint64, v uint64) {
	step.Write(w)
	w.Store(v)
}

// Live names a generation whose blocks count beside the carry.
type Live struct {
	Slot  int
	Epoch uint32
	Lanes int // over all its workers
}

// Snapshot is the sum of the carry and of all live blocks.
type Snapshot [numCounters]uint64

// Load returns one counter of the snapshot.
func (s *Snapshot) Load(id ID) uint64 { return s[id] }

// Read sums the carry and the live generations into dst. It must not run
// beside Fold (the caller serialises them).
func (s *Set) Read(dst *Snapshot, live []Live) {
	seq := s.head.Seq.Load()
	c := s.carry(seq)
	for id := range numCounters {
		dst[id] = c.Load(id)
	}
	for _, g := range live {
		if s.head.Folded[seq%2][g.Slot].Load() == g.Epoch {
			continue
		}
		for l := range g.Lanes {
			b := s.Block(g.Slot, l)
			for id := range numCounters {
				dst[id] += b.Load(id)
			}
		}
	}
}

// InHand is the datagrams that were read but not accounted for: zero, unless a
// process was killed with a burst in hand (or is in the middle of one).
func (s *Snapshot) InHand() int64 {
	out := s[Served] + s[Sibling]
	for i := range ID(NumSlots) {
		out += s[ForwardedTo+i]
	}
	for i := range ID(NumReasons) {
		out += s[Dropped+i]
	}
	return int64(s[Received] - out)
}
