package metrics

import (
	"context"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
)

// Source is the supervisor, as metrics sees it. Its methods are called at the
// same time from any goroutine; their contexts end when nobody waits for the
// answer any more.
type Source interface {
	// Sample returns everything there is to know at this moment. No counter in it
	// is lower than in an earlier one.
	Sample(ctx context.Context) (*Sample, error)

	// Ready returns nil if an active generation serves, else why not. It is cheap.
	Ready(ctx context.Context) error
}

// Sample is the state of a supervisor at one moment.
type Sample struct {
	Version        control.Version
	StartedAt      time.Time
	ConfigLoadedAt time.Time

	Counters counters.Snapshot

	Step        control.Step
	Generations []Generation // live ones, in any order

	Reloads     map[control.Outcome]uint64 // finished ones; the first start does not count
	Refusals    map[Refusal]uint64         // of the refused ones
	Lapses      uint64                     // parks whose lease was over before every lane had stopped, or the wire had changed hands
	Fences      uint64                     // workers killed because they did not answer
	ConfigHash  uint64                     // of the configuration that runs, 48 bits
	LastReload  *control.ReloadReport      // nil before the first
	Respawns    uint64                     // workers started again after they had died
	Zones       int                        // that the rx owner serves
	ZoneRecords int                        // in all of them
	Standby     bool                       // the supervisor before this one stands by
	StaleZones  int                        // of Zones, those whose newest file could not be loaded
	PerZone     []Zone                     // counters of zones, each name once
	Backends    []control.BackendStatus    // of the running configuration
}

// Zone is the counters of a zone, or of several under one name.
type Zone struct {
	Name string
	control.ZoneQueries
}

// Generation is one live generation.
type Generation struct {
	Epoch   uint32
	State   string // as control.Generation has it
	RxOwner bool
	Workers int           // configured
	Ready   int           // of them, ready to serve
	Load    *control.Load // what it serves; nil if not known

	Slot      int
	FlowSlots int            // of its flow table
	RingFill  float64        // of the fullest ring to one of its workers, 0 to 1
	DrainLeft *time.Duration // until what is left is handed over; nil unless it drains
	Processes []Process      // its live workers
}

// Process is what a worker takes of the machine.
type Process struct {
	Worker   int
	Resident int64 // bytes of memory
	OpenFDs  int   // 0 if not known
	MaxFDs   int   // 0 if not known
}

// Refusal is why a reload was refused.
type Refusal string

// The refusals.
const (
	RefusedConfig   Refusal = "configuration" // it has errors, or a change that a reload cannot make
	RefusedZone     Refusal = "zone"          // a zone file has errors
	RefusedAddress  Refusal = "address"       // an address cannot be bound
	RefusedOverlap  Refusal = "overlap"       // four generations live, and reload.overlap is refuse
	RefusedStopping Refusal = "stopping"      // the server stops
	RefusedSystem   Refusal = "system"        // the system refused something: memory, descriptors, a file
)

// Refusals are all of them.
var Refusals = [...]Refusal{RefusedConfig, RefusedZone, RefusedAddress, RefusedOverlap, RefusedStopping, RefusedSystem}
