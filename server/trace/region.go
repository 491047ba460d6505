package trace

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// counts is what a lane counts, on a cache line of its own. The lane writes it.
type counts struct {
	Copied  atomic.Uint64 // records in the ring so far
	Dropped atomic.Uint64 // that the ring had no room for
	_       [64 - 16]byte
}

const countsSize = 64

// What a record of package ring carries, beside addresses, ports, time and payload.
// IfIndex is the length that the datagram or frame had before it was cut, and Socket
// one of these:
const (
	receivedDatagram uint32 = iota
	sentDatagram
	receivedFrame
	sentFrame
)

// Limits of rings, in octets. The smallest takes 32 KiB of a datagram, as Snap says.
const (
	maxRing   = 2 << 20
	minRing   = 64 << 10
	maxMemory = 64 << 20 // of all rings of four generations together, unless there are very many
)

// RingBytes returns how large the ring of a lane is where a generation has so many.
func RingBytes(lanes int) int {
	n := maxRing
	for n > minRing && 4*lanes*n > maxMemory {
		n /= 2
	}
	return n
}

// regionSize is the size of a region for so many lanes with rings of this size.
func regionSize(lanes, bytes int) int {
	return countsOffset(ring.RegionSize(lanes, 1, bytes)) + lanes*countsSize
}

// countsOffset returns where the counts are behind rings of this many octets.
func countsOffset(rings int) int { return (rings + countsSize - 1) &^ (countsSize - 1) }

// Format makes r, of at least Size octets, the region of a process with so many
// lanes.
func Format(r *shm.Region, lanes, bytes int) error {
	if _, err := ring.Format(r, lanes, 1, bytes); err != nil {
		return fmt.Errorf("making a trace: %w", err)
	}
	return nil
}

// Create returns a region for a process with so many lanes and rings of this size.
func Create(lanes, bytes int) (*shm.Region, error) {
	r, err := shm.Create("trace", regionSize(lanes, bytes))
	if err != nil {
		return nil, err
	}
	if err := Format(r, lanes, bytes); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// attach returns the rings in r, and where the counts of each lane are. It checks
// r: another process has had it.
func attach(r *shm.Region) (*ring.Rings, []*counts, error) {
	rings, err := ring.Attach(r)
	if err != nil {
		return nil, nil, fmt.Errorf("attaching a trace: %w", err)
	}
	if rings.Workers() != 1 {
		return nil, nil, fmt.Errorf("attaching a trace: its rings are for %d readers, not for one: %w", rings.Workers(), shm.ErrLayout)
	}
	at := countsOffset(ring.RegionSize(rings.Lanes(), 1, rings.Bytes()))
	if r.Size() < at+rings.Lanes()*countsSize {
		return nil, nil, fmt.Errorf("attaching a trace: %d octets are too few for its counts: %w", r.Size(), shm.ErrLayout)
	}
	list := make([]*counts, rings.Lanes())
	for i := range list {
		list[i] = shm.View[counts](r, at+i*countsSize)
	}
	return rings, list, nil
}
