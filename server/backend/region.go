package backend

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/shm"
)

// Layout is the layout number of the region. Raise it with every change of what
// is below.
const Layout = 2

// Limits of the layout.
const (
	MaxServers = 1024 // over all live generations
	numSlots   = 4    // generations
	maxLanes   = 256  // of a generation, over all its workers
)

// Order is what an operator has said about a server.
type Order uint32

// The orders.
const (
	Enabled  Order = iota
	Draining       // it gets no new flow
	Disabled       // nor another datagram of a client: its flows move
)

var orderNames = [...]string{"enabled", "draining", "disabled"}

// String returns the order as status and commands name it.
func (o Order) String() string {
	if int(o) < len(orderNames) {
		return orderNames[o]
	}
	return "unknown"
}

// MarshalText returns the name of the order.
func (o Order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads the name of an order.
func (o *Order) UnmarshalText(name []byte) error {
	i := slices.Index(orderNames[:], string(name))
	if i < 0 {
		return fmt.Errorf("there is no order %q for a server", name)
	}
	*o = Order(i)
	return nil
}

// Server is the words of one server. Its methods are safe for concurrent use.
type Server struct {
	// The supervisor's line.
	order  atomic.Uint32
	down   atomic.Uint32 // 1: the checks say so
	weight atomic.Uint32
	upAt   atomic.Uint32 // mono.Millis when it came up again; 0: it was never down
	_      [48]byte

	// The lanes' line.
	failures atomic.Uint32 // failed flows in a row
	outUntil atomic.Uint32 // mono.Millis; 0: it is not out
	refused  atomic.Uint64 // ICMP errors
	silent   atomic.Uint64 // flows without one of the answers that were expected
	flows    atomic.Uint64 // begun
	to       atomic.Uint64 // datagrams to it
	from     atomic.Uint64 // datagrams from it
	_        [16]byte
}

// head follows the region header.
type head struct {
	lanes  [numSlots]atomic.Uint32 // lanes of the generation in each slot, whose rows count
	planes atomic.Uint32           // of the ports
	_      [44]byte
}

// Row is how many flows one lane has at each server. Its lane alone writes it.
type Row [MaxServers]atomic.Uint32

const (
	headOffset   = shm.HeaderSize
	serverOffset = 4096
	rowOffset    = serverOffset + MaxServers*serverSize
	portOffset   = rowOffset + numSlots*maxLanes*rowSize

	// RegionSize is the size of the region in bytes. Unused rows and planes take no
	// memory.
	RegionSize = portOffset + portPlanes*numPorts*4
)

// Region is what is known of all servers.
type Region struct {
	region *shm.Region
	head   *head
}

// Format makes r, a zeroed region of RegionSize, a region of servers.
func Format(r *shm.Region) (*Region, error) {
	r.Format(shm.KindBackends, Layout)
	r.Publish()
	return Attach(r)
}

// Attach returns the servers in r. Its errors match shm.ErrLayout.
func Attach(r *shm.Region) (*Region, error) {
	if err := r.Check(shm.KindBackends, Layout); err != nil {
		return nil, fmt.Errorf("attaching the servers of backends: %w", err)
	}
	if r.Size() < RegionSize {
		return nil, fmt.Errorf("attaching the servers of backends: region has %d bytes, needs %d: %w", r.Size(), RegionSize, shm.ErrLayout)
	}
	return &Region{region: r, head: shm.View[head](r, headOffset)}, nil
}

// Server returns the words of server id (0 .. MaxServers-1).
func (r *Region) Server(id int) *Server {
	if id < 0 || id >= MaxServers {
		panic(fmt.Sprintf("backend: no server %d", id))
	}
	return shm.View[Server](r.region, serverOffset+id*serverSize)
}

// Row returns the flows of a lane (over all workers) of the generation in slot.
func (r *Region) Row(slot, lane int) *Row {
	if slot < 0 || slot >= numSlots || lane < 0 || lane >= maxLanes {
		panic(fmt.Sprintf("backend: no row for slot %d lane %d", slot, lane))
	}
	return shm.View[Row](r.region, rowOffset+(slot*maxLanes+lane)*rowSize)
}

// Open makes the rows of the generation in slot count. They are empty. Nobody
// may write them yet.
func (r *Region) Open(slot, lanes int) {
	for lane := range lanes {
		r.Row(slot, lane).Clear()
	}
	r.head.lanes[slot].Store(uint32(lanes))
}

// Close makes the rows of the generation in slot count no more. Its processes are
// gone.
func (r *Region) Close(slot int) { r.head.lanes[slot].Store(0) }

// Clear empties the row: the process that wrote it is gone.
func (r *Row) Clear() {
	for i := range r {
		r[i].Store(0)
	}
}

// Flows returns how many flows a server has in all lanes.
func (r *Region) Flows(id int) int {
	n := 0
	for slot := range numSlots {
		for lane := range min(int(r.head.lanes[slot].Load()), maxLanes) {
			n += int(r.Row(slot, lane)[id].Load())
		}
	}
	return n
}

// Reset makes s a server of which nothing is known.
func (s *Server) Reset(weight int) {
	s.order.Store(uint32(Enabled))
	s.down.Store(0)
	s.weight.Store(uint32(weight))
	s.upAt.Store(0)
	s.failures.Store(0)
	s.outUntil.Store(0)
	for _, n := range []*atomic.Uint64{&s.refused, &s.silent, &s.flows, &s.to, &s.from} {
		n.Store(0)
	}
}

// SetOrder records what an operator has said.
func (s *Server) SetOrder(o Order) { s.order.Store(uint32(o)) }

// Order returns what an operator has said last.
func (s *Server) Order() Order { return Order(s.order.Load()) }

// SetWeight sets the share of new flows.
func (s *Server) SetWeight(w int) { s.weight.Store(uint32(w)) }

// Weight returns the share of new flows, 0..65535.
func (s *Server) Weight() int { return int(s.weight.Load() & 0xffff) }

// SetDown records that the checks have failed.
func (s *Server) SetDown() { s.down.Store(1) }

// SetUp records at now (mono.Millis) that they succeed again.
func (s *Server) SetUp(now uint32) {
	s.failures.Store(0)
	s.outUntil.Store(0)
	s.upAt.Store(nonZero(now))
	s.down.Store(0)
}

// Down reports whether the checks have failed.
func (s *Server) Down() bool { return s.down.Load() != 0 }

// Counts is what a server's flows came to since it was first known.
type Counts struct {
	Flows   uint64 `json:"flows"`   // begun
	Refused uint64 `json:"refused"` // ICMP errors
	Silent  uint64 `json:"silent"`  // flows without one of the answers that were expected
	To      uint64 `json:"to"`      // datagrams to it
	From    uint64 `json:"from"`    // datagrams from it
}

// Counts returns the counts of s.
func (s *Server) Counts() Counts {
	return Counts{s.flows.Load(), s.refused.Load(), s.silent.Load(), s.to.Load(), s.from.Load()}
}

// Count adds to the counts of s. Lanes gather them and add them now and then.
func (s *Server) Count(c Counts) {
	for _, n := range [...]struct {
		word *atomic.Uint64
		add  uint64
	}{{&s.flows, c.Flows}, {&s.refused, c.Refused}, {&s.silent, c.Silent}, {&s.to, c.To}, {&s.from, c.From}} {
		if n.add != 0 {
			n.word.Add(n.add)
		}
	}
}
