package counters

import (
	"fmt"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/shm"
)

// ZonesLayout is the layout number of the region of zone counters. Raise it with
// every change of its form.
const ZonesLayout = 1

// ZoneCounter names one counter of a zone.
type ZoneCounter uint8

// The counters of a zone. They index its cell: append only, and raise ZonesLayout.
const (
	ZoneUDP       ZoneCounter = iota // queries answered over UDP
	ZoneTCP                          // queries answered over TCP
	ZoneNXDomain                     // of both, those for names that do not exist
	ZoneTruncated                    // of both, those with TC=1
	NumZoneCounters
)

// MaxZones is how many cells there are. Cell 0 is shared by the zones that have
// none of their own.
const MaxZones = 1 << 20

// ZonesSize is the size of the region of zone counters in bytes. Cells that are
// not used take no memory.
const ZonesSize = shm.HeaderSize + MaxZones*int(NumZoneCounters)*8

// Zones is the counters of all zones. Every lane of every generation adds to the
// same ones, so they never fall; a lane adds once a burst and zone. Its methods
// are safe for concurrent use.
type Zones struct {
	cells [][NumZoneCounters]atomic.Uint64
}

// FormatZones makes r, a zeroed region of ZonesSize, a region of zone counters.
func FormatZones(r *shm.Region) (*Zones, error) {
	r.Format(shm.KindZoneCounters, ZonesLayout)
	r.Publish()
	return AttachZones(r)
}

// AttachZones returns the counters in r. Its errors match shm.ErrLayout.
func AttachZones(r *shm.Region) (*Zones, error) {
	if err := r.Check(shm.KindZoneCounters, ZonesLayout); err != nil {
		return nil, fmt.Errorf("attaching zone counters: %w", err)
	}
	if r.Size() < ZonesSize {
		return nil, fmt.Errorf("attaching zone counters: region has %d bytes, needs %d: %w", r.Size(), ZonesSize, shm.ErrLayout)
	}
	return &Zones{shm.ViewSlice[[NumZoneCounters]atomic.Uint64](r, shm.HeaderSize, MaxZones)}, nil
}

// Add adds n to a counter of the zone with this cell. A cell that does not exist
// is cell 0.
func (z *Zones) Add(cell uint32, c ZoneCounter, n uint64) {
	if n == 0 {
		return
	}
	if cell >= MaxZones {
		cell = 0
	}
	z.cells[cell][c].Add(n)
}

// Load returns a counter of the zone with this cell, below MaxZones.
func (z *Zones) Load(cell uint32, c ZoneCounter) uint64 { return z.cells[cell][c].Load() }
