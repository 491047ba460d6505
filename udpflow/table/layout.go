package table

import (
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/shm"
)

// Layout is the layout number of the flow table region. Raise it with every
// change of a struct below or of the bits of a word.
const Layout = 1

// Limits of a table.
const (
	MinSlots   = 1024
	MaxSlots   = 16 << 20
	MinIdle    = 100 * time.Millisecond
	MaxIdle    = time.Hour
	MaxWorkers = 64 // of a generation, as in package directory
)

// top follows the region header.
type top struct {
	Slots  atomic.Uint64    // power of two, MinSlots..MaxSlots
	IdleMs atomic.Uint64    // MinIdle..MaxIdle in milliseconds
	Secret [2]atomic.Uint64 // key of the hashes
	_      [64 - 4*8]byte
}

// workerWord has a cache line of its own: lanes of other generations load it
// for every packet they forward.
type workerWord struct {
	Header atomic.Uint64 // Header
	_      [64 - 8]byte
}

// slot is one entry.
type slot struct {
	Hash  atomic.Uint64 // word 0
	Entry atomic.Uint64 // word 1: entry
}

const (
	topOffset     = shm.HeaderSize
	workersOffset = topOffset + 64
	slotsOffset   = workersOffset + MaxWorkers*64
	slotSize      = 16
)

// RegionSize is the size in bytes of the region of a table with this many slots.
func RegionSize(slots int) int { return slotsOffset + slots*slotSize }
