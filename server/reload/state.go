package reload

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/dnsapp/dnsapp/server/directory"
)

// The limits of the machine.
const (
	MaxSlots   = directory.MaxSlots
	MaxWorkers = directory.MaxWorkers
	MaxRetries = 10 // parks of one hand-over that are tried again after a lapse
)

// Mode is how a reload replaces the old generation.
type Mode uint8

// The modes.
const (
	// Graceful hands the wire over under a park and lets the old generation
	// finish its flows.
	Graceful Mode = iota
	// Restart is the plain way: the new workers read sockets of their own as
	// soon as they run, then the old ones are ended with all they have. It
	// loses packets and flows; it is the negative control of every loss test.
	Restart
)

// Overlap is what a reload does that finds every slot taken: by the active
// generation and by others that have not ended yet.
type Overlap uint8

// The ways.
const (
	// FinishOldest ends the drain of the oldest generation at once, as its
	// deadline would; the reload starts when a slot is free.
	FinishOldest Overlap = iota
	// RefuseOverlap refuses the reload.
	RefuseOverlap
)

// Return is why the wire is being given back to a generation that had it
// before.
type Return uint8

// The reasons.
const (
	NoReturn Return = iota
	// Revert: after the flip the new side does not answer, so the reload is
	// undone.
	Revert
	// TakeBack: the workers of the rx owner die again and again.
	TakeBack
)

// Phase is what the machine as a whole is doing.
type Phase uint8

// The phases. At most one hand-over (PhasePreparing to PhaseAborting) is in
// progress at a time.
const (
	// PhaseDown: nothing has been started. The first ReloadRequested boots.
	PhaseDown Phase = iota
	// PhasePreparing is T0: the supervisor reads and checks all that the next
	// generation needs. Nothing of the running one is touched.
	PhasePreparing
	// PhaseStarting is T1: the new workers start; the old headers are
	// PUBLISHING. Left when every new worker is READY.
	PhaseStarting
	// PhaseAsking begins T2: every lane, old and new, is asked for a sign of
	// life.
	PhaseAsking
	// PhaseFencing: the workers that gave none, and those of the owner that are
	// down, are made gone for certain, so that no late reader can appear.
	PhaseFencing
	// PhaseParking: the owner word is a park; every reading lane of every live
	// process must acknowledge exactly this park.
	PhaseParking
	// PhaseFlipping: the compare-and-swap to the new epoch has been ordered and
	// its outcome is not known yet. Nothing can be aborted here.
	PhaseFlipping
	// PhaseConfirming ends T2: the new generation owns the wire, and its lanes
	// are asked for a sign of life. Left by the commit.
	PhaseConfirming
	// PhaseAborting: the hand-over failed before the flip; the old generation
	// serves as before, and the new workers are being killed.
	PhaseAborting
	// PhaseSteady: one generation is active, no hand-over is in progress.
	// Others may be draining.
	PhaseSteady
	// PhaseStopping: every generation drains or is being ended.
	PhaseStopping
	// PhaseExited: Exit has been ordered. Whatever comes is late.
	PhaseExited
)

// Stage is what one generation is doing.
type Stage uint8

// The stages of a slot.
const (
	// StageFree: no generation.
	StageFree Stage = iota
	// StageStarting: T1 and T2 before the flip. It reads nothing.
	StageStarting
	// StageActive: the rx owner.
	StageActive
	// StageDraining is T3: it finishes the flows it has. From the flip to the
	// commit it has not been asked to report yet.
	StageDraining
	// StageHanding begins T4: its headers are HANDED, and every lane must pass a
	// boundary, after which none forwards to it, and its own read nothing.
	StageHanding
	// StageReleasing ends T4: the rings to it and from it are being emptied.
	// Sockets that it alone had read among the newer ones have passed on.
	StageReleasing
	// StageReaping is T5: its processes are being ended.
	StageReaping
)

// StopKind is how fast to stop. A greater one is faster.
type StopKind uint8

// The kinds of stop.
const (
	NotStopping  StopKind = iota
	StopGraceful          // no new work, drain within shutdown_timeout
	StopFast              // the same within a short time
	StopNow               // no drain
)

// Generation names a generation. The zero value names none.
type Generation struct {
	Slot  uint8  `json:"slot"`  // 0 .. MaxSlots-1
	Epoch uint32 `json:"epoch"` // > 0, never reused
}

// WorkerSet is a set of workers of one generation, by index.
type WorkerSet uint64

// Workers is a set of workers of all generations, by slot.
type Workers [MaxSlots]WorkerSet

// State is the whole state of the machine: a plain comparable value. The zero
// value is the machine before boot. Only Step changes it.
type State struct {
	Phase Phase    `json:"phase"`
	Mode  Mode     `json:"mode"` // of the hand-over in progress
	Stop  StopKind `json:"stop"` // fastest stop asked for so far

	// Return says whether the hand-over in progress goes backwards. Set from
	// PhaseAsking to PhaseFlipping only.
	Return Return `json:"return"`

	// Active is the rx owner; zero until boot has succeeded.
	Active Generation `json:"active"`
	// Next is the generation that is to get the wire: the one being started or,
	// if Return is set, one that drains. Valid iff the phase is PhasePreparing
	// (where its epoch is not known yet: 0) to PhaseFlipping or PhaseAborting,
	// else zero.
	Next Generation `json:"next"`

	// Request is the reload being carried out, 0 if none. From the commit, or
	// the abort, on it is the Request of the slot that ends for it.
	Request uint64 `json:"request"`
	// Pending is the reload that follows this one, or waits for a slot; ID 0 if
	// none.
	Pending ReloadRequested `json:"pending"`

	// Lapses counts the parks of this hand-over that lapsed, 0 .. MaxRetries+1.
	Lapses uint8 `json:"lapses"`

	Orders uint32 `json:"orders"` // number of the last order given
	Await  uint32 `json:"await"`  // the order whose answer the phase waits for, 0 if none

	Slots [MaxSlots]Slot `json:"slots"`
}

// Slot is one generation, or a free place for one.
type Slot struct {
	Stage   Stage     `json:"stage"`
	Epoch   uint32    `json:"epoch"`
	Workers WorkerSet `json:"workers"` // all workers of the generation
	Up      WorkerSet `json:"up"`      // those that are READY and not known to be dead; within Workers
	Await   uint32    `json:"await"`   // the order whose answer the stage waits for, 0 if none
	Signal  Signal    `json:"signal"`  // the strongest signal sent. Valid iff StageReaping
	// Request is the reload to report on when this slot is freed, 0 if none.
	Request uint64 `json:"request"`
	// Outcome and Reason are what that report will say.
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
}

var (
	modeNames    = [...]string{"graceful", "restart"}
	overlapNames = [...]string{"finish-oldest", "refuse"}
	returnNames  = [...]string{"none", "revert", "take-back"}
	phaseNames   = [...]string{
		"down", "preparing", "starting", "asking", "fencing", "parking", "flipping", "confirming",
		"aborting", "steady", "stopping", "exited",
	}
	phaseSteps = [...]string{"", "T0", "T1", "T2", "T2", "T2", "T2", "T2", "", "", "", ""}
	stageNames = [...]string{"free", "starting", "active", "draining", "handing", "releasing", "reaping"}
	stageSteps = [...]string{"", "", "", "T3", "T4", "T4", "T5"}
	stopNames  = [...]string{"none", "graceful", "fast", "now"}
)

// name returns names[i], or i as a number.
func name[T ~uint8](names []string, i T) string {
	if int(i) < len(names) {
		return names[i]
	}
	return strconv.Itoa(int(i))
}

// String returns the mode as the configuration names it.
func (m Mode) String() string { return name(modeNames[:], m) }

// MarshalText returns String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the overlap as the configuration names it.
func (o Overlap) String() string { return name(overlapNames[:], o) }

// MarshalText returns String.
func (o Overlap) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// String returns the return as logs and status name it.
func (r Return) String() string { return name(returnNames[:], r) }

// MarshalText returns String.
func (r Return) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns the phase as logs and status name it.
func (p Phase) String() string { return name(phaseNames[:], p) }

// MarshalText returns String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Step returns the step of the reload that the phase belongs to, T0 to T2, or
// "".
func (p Phase) Step() string { return name(phaseSteps[:], p) }

// String returns the stage as logs and status name it.
func (s Stage) String() string { return name(stageNames[:], s) }

// MarshalText returns String.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Step returns the step of the reload that the stage belongs to, T3 to T5, or
// "".
func (s Stage) Step() string { return name(stageSteps[:], s) }

// String returns the kind as logs and status name it.
func (k StopKind) String() string { return name(stopNames[:], k) }

// MarshalText returns String.
func (k StopKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// String returns g for logs.
func (g Generation) String() string {
	if g.Epoch == 0 {
		return "none"
	}
	return fmt.Sprintf("epoch %d (slot %d)", g.Epoch, g.Slot)
}

// AllWorkers returns the set of the workers 0 .. n-1, n at most MaxWorkers.
func AllWorkers(n int) WorkerSet { return ^WorkerSet(0) >> (MaxWorkers - n) }

// OneWorker returns the set of worker i alone.
func OneWorker(i int) WorkerSet { return 1 << i }

// Has reports whether worker i is in the set.
func (w WorkerSet) Has(i int) bool { return w>>i&1 != 0 }

// All iterates over the indices in the set, ascending.
func (w WorkerSet) All() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; w != 0; w &= w - 1 {
			if !yield(bits.TrailingZeros64(uint64(w))) {
				return
			}
		}
	}
}

// String returns the set as {0,2,3}.
func (w WorkerSet) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range w.All() {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(i))
	}
	b.WriteByte('}')
	return b.String()
}

// Empty reports whether no worker of any slot is in the set.
func (w Workers) Empty() bool { return w == Workers{} }

// String returns the set as slot:{workers} for each slot that has any.
func (w Workers) String() string {
	var parts []string
	for slot, set := range w {
		if set != 0 {
			parts = append(parts, fmt.Sprintf("%d:%v", slot, set))
		}
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, " ")
}
