package directory

import (
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/shm"
)

// Layout is the layout number of the directory region. Raise it with every
// change of a struct below.
const Layout = 5

// Limits of the layout.
const (
	MaxSlots   = 4
	MaxWorkers = 64    // per generation
	MaxLanes   = 256   // per generation, over all its workers
	MaxSockets = 16384 // over all live generations
)

// State is what a generation slot holds.
type State uint32

// The states of a slot. Only the supervisor writes them.
const (
	Free     State = iota
	Starting       // workers start; they read nothing
	Active         // newest generation; owner of the wire once the word says so
	Draining       // reads only sockets that no newer generation lists
	Leaving        // handed: what only it reads is read by nobody until it has left
	Left           // none of its lanes reads; waiting for its processes to go
)

var stateNames = [...]string{"free", "starting", "active", "draining", "leaving", "leaving"}

// String returns the state as logs and status name it: Left is a matter of lanes.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Live reports whether a generation in this state may own or serve packets.
func (s State) Live() bool { return s == Active || s == Draining }

// MayRead reports whether lanes of a generation in this state may read a socket:
// a leaving one's do until they have seen that it is.
func (s State) MayRead() bool { return s.Live() || s == Leaving }

// top follows the region header. One cache line for what every lane polls, so
// that a change of anything else does not touch it.
type top struct {
	Owner   atomic.Uint64 // Word
	Windows atomic.Uint64 // raised whenever any slot's state, window or socket list changes
	_       [48]byte

	NextWindow  atomic.Uint32 // last window id given out
	NextEpoch   atomic.Uint32 // last epoch given out
	Coordinator atomic.Uint64 // pid<<32 | start time in ticks, truncated: who steps the machine
	ParkedAt    atomic.Uint64 // mono ns of the last park ack of a lane that had read, for the reported gap
	FirstReadAt atomic.Uint64 // mono ns of the first receive call after the last flip
	Signs       atomic.Uint32 // raised after each park ack and answer: the supervisor sleeps on it
	_           [64 - 36]byte

	Tallies [NumTallies]atomic.Uint64
}

// Tally numbers what a supervisor counts itself and must not fall when another one
// takes its place. Which is what is the supervisor's.
type Tally int

// NumTallies is how many there is room for.
const NumTallies = 24

// slot is one generation.
type slot struct {
	Epoch    atomic.Uint32
	State    atomic.Uint32
	Window   atomic.Uint32 // id of the window opened against it, 0: none
	Step     atomic.Uint32 // step of the state machine, for an adopting supervisor
	Workers  atomic.Uint32
	Lanes    atomic.Uint32 // per worker
	Deadline atomic.Uint32 // mono.Millis of the drain deadline
	_        [64 - 28]byte

	Sockets [MaxSockets / 64]atomic.Uint64 // bit set of socket ids it lists
	Worker  [MaxWorkers]worker
	Lane    [MaxLanes]lane
}

// worker is one process of a generation.
type worker struct {
	PID   atomic.Uint64 // written by the supervisor at start
	Start atomic.Uint64 // process start time, clock ticks since boot
	Ready atomic.Uint64 // epoch<<32 | pid, written by the worker
	Gone  atomic.Uint32 // 1: the process is dead, as pidfd says
	Drain atomic.Uint32 // raised by the supervisor to ask for a drain report

	StandIn atomic.Uint32 // who reads its sockets: see standIn
	_       [28]byte

	Report report
}

// report is what a draining worker says about what it still serves. Seq is
// stored last.
type report struct {
	Seq      atomic.Uint32 // the Drain word it answers; raised for each report: see Reports
	Reports  atomic.Uint32 // reports so far
	Flows    atomic.Uint32 // UDP flows alive in the table
	IdleMs   atomic.Uint32 // age of the newest of them, milliseconds
	TCP      atomic.Uint32 // open connections
	HalfOpen atomic.Uint32
	Queries  atomic.Uint32 // in flight
	QUIC     atomic.Uint32
	Unsent   atomic.Uint64 // bytes accepted for sending and not sent
	Released atomic.Uint32 // window id whose rings it emptied after HANDED
	_        [20]byte
}

// lane is one receive loop. The first line is the supervisor's, the second the
// lane's.
type lane struct {
	Ask atomic.Uint64
	_   [56]byte

	Ack    atomic.Uint64 // the park word it stopped for
	Answer atomic.Uint64 // the last Ask it saw at a boundary
	_      [48]byte
}

const topOffset = shm.HeaderSize

func slotOffset(i int) int { return slotsOffset + i*slotSize }

// RegionSize is the size of a directory region in bytes.
const RegionSize = slotsOffset + MaxSlots*slotSize
