package ring

import (
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Layout is the layout number of the rings region. Raise it with every change of
// a struct or of the record below.
const Layout = 2

// Limits of a region.
const (
	MaxLanes   = 256 // of a generation, as in package directory
	MaxWorkers = 64
	MinBytes   = 4 << 10 // of a ring
	MaxBytes   = 1 << 30
)

// top follows the region header.
type top struct {
	Lanes   atomic.Uint64
	Workers atomic.Uint64
	Bytes   atomic.Uint64 // of each ring, a power of two
	_       [64 - 3*8]byte
}

// wake is a consumer's line: 1 while it sleeps or is about to.
type wake struct {
	Sleeping atomic.Uint64
	_        [64 - 8]byte
}

// control is the indices of one ring, counted in bytes from its creation. Each
// has a cache line of its own, for it has a writer of its own.
//
// Invariant: Head <= Tail <= Head+Bytes, and both are multiples of align.
type control struct {
	Tail atomic.Uint64 // published by the producer
	_    [56]byte
	Head atomic.Uint64 // released by the consumer
	_    [56]byte
}

const (
	topOffset  = shm.HeaderSize
	wakeOffset = topOffset + 64
	pageSize   = 4096
)

func controlOffset(workers int) int { return wakeOffset + workers*64 }

func dataOffset(lanes, workers int) int {
	end := controlOffset(workers) + lanes*workers*128
	return (end + pageSize - 1) / pageSize * pageSize
}

// RegionSize is the size in bytes of the region of a matrix of lanes x workers
// rings of this many bytes each.
func RegionSize(lanes, workers, bytes int) int {
	return dataOffset(lanes, workers) + lanes*workers*bytes
}

// A record is a head of headSize bytes, little endian, and the payload, filled
// up to a multiple of align. These are the offsets in the head. The rest of a
// ring's bytes that a record does not fit in is a pad: the first two fields, with
// padLength for a length.
const (
	offLength      = 0  // u32: bytes of payload, or padLength
	offMark        = 4  // u32: see mark
	offRx          = 8  // i64: mono ns of reception
	offRemoteIP    = 16 // [16]
	offLocalIP     = 32 // [16]
	offRemoteScope = 48 // u32
	offLocalScope  = 52 // u32
	offIfIndex     = 56 // u32
	offSocket      = 60 // u32
	offRemotePort  = 64 // u16
	offLocalPort   = 66 // u16
	offSegment     = 68 // u16: size of the segments of a coalesced datagram, or 0
	offECN         = 70 // u8; u8 reserved
	offWay         = 72 // u64
	headSize       = 80

	align     = 8
	padLength = 1<<32 - 1
)

// recordSize returns the bytes that a record with this much payload takes.
func recordSize(payload int) uint64 { return uint64(headSize+payload+align-1) &^ (align - 1) }

// mark returns what the record at index pos carries: a reader that has lost the
// boundaries of the records notices.
func mark(pos uint64) uint32 { return uint32(pos/align) ^ 0x646e7361 }

// maxPayload returns the largest payload that a ring of this many bytes takes
// whatever its indices: a record and the pad before it take less than two
// records.
func maxPayload(bytes uint64) int { return min(burst.MaxPayload, int(bytes/2)-headSize) }
