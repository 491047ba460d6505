package directory

import (
	"fmt"

	"github.com/dnsapp/dnsapp/internal/step"
)

// This file says which worker of a generation reads the sockets of one of its
// workers: itself, or a sibling while its process is dead. Each worker has a word:
//
//	            Orphan                    StandIn
//	own (0) -----------> orphaned ------------------> a sibling stands in
//	   ^                  |     ^                       |    ^     |
//	   +------ Claim -----+     +-- Orphan (it died) ---+    |     | Claim: asked to leave
//	   |                                                     |     v
//	   +----------- Claim, once none of its lanes reads ---- leaving
//	                                        (Orphan: the worker died again)
//
// Invariant: as long as the word is not own no lane of the worker reads; a lane of
// a sibling reads from its Join to its Leave, which the word counts; and the word
// becomes own only while it counts nobody. Neither side needs the supervisor for
// that: it says who has died, and chooses who stands in.

// standIn is the word: the sibling, whether it has been asked to leave, and how
// many of its lanes read.
type standIn uint32

const (
	standingBy standIn = 1<<8 - 1 // its index, plus one; 0: none
	leavingBit standIn = 1 << 8
	orphanBit  standIn = 1 << 9
	reader     standIn = 1 << 16 // one of those that are counted

	own      standIn = 0
	orphaned         = orphanBit
)

// sibling returns the worker that stands in, -1 if none does.
func (s standIn) sibling() int { return int(s&standingBy) - 1 }

func (s standIn) leaving() bool { return s&leavingBit != 0 }

func (s standIn) readers() int { return int(s / reader) }

// String returns s for logs.
func (s standIn) String() string {
	switch {
	case s == own:
		return "itself"
	case s == orphaned:
		return "nobody"
	case s.leaving():
		return fmt.Sprintf("worker %d, which leaves, with %d lanes", s.sibling(), s.readers())
	}
	return fmt.Sprintf("worker %d, with %d lanes", s.sibling(), s.readers())
}

func (v WorkerView) standIn() standIn {
	step.Read(&v.w.StandIn)
	return standIn(v.w.StandIn.Load())
}

// moveStandIn changes the word from old to next, and reports whether it did.
func (v WorkerView) moveStandIn(old, next standIn) bool {
	step.Write(&v.w.StandIn)
	return v.w.StandIn.CompareAndSwap(uint32(old), uint32(next))
}

// Reader returns the worker whose lanes read the sockets of this one, -1 if there
// is none.
func (v WorkerView) Reader(self int) int {
	switch s := v.standIn(); {
	case s == own:
		return self
	case s.leaving():
		return -1
	default:
		return s.sibling()
	}
}

// Joined returns the worker that stands in for this one and how many of its lanes
// have joined; -1 if none does.
func (v WorkerView) Joined() (sibling, lanes int) {
	s := v.standIn()
	return s.sibling(), s.readers()
}

// StandsIn reports whether worker i stands in for this one.
func (v WorkerView) StandsIn(i int) bool { return v.standIn().sibling() == i }

// Orphaned reports whether nobody reads the sockets of this worker, nor will before
// somebody claims them or is chosen to stand in.
func (v WorkerView) Orphaned() bool { return v.standIn() == orphaned }

// Absent reports whether the lanes of this worker read nothing: what they would
// read, and what is theirs to serve, is for others to take.
func (v WorkerView) Absent() bool { return v.standIn() != own }

// Orphan says that the process of a worker is gone (pidfd said so): nobody reads
// its sockets, unless a sibling does that lives. gone says which workers are. It
// is for the supervisor, as is StandIn; v is a worker in gone, or one whose sibling
// is.
func (v WorkerView) Orphan(gone uint64) {
	for {
		s := v.standIn()
		next := orphaned
		if by := s.sibling(); by >= 0 && gone>>by&1 == 0 {
			next = s &^ leavingBit // it goes on, for the next process of the worker
		}
		if s == next || v.moveStandIn(s, next) {
			v.d.Changed()
			return
		}
	}
}

// StandIn has a sibling read the sockets of an orphaned worker, and reports whether
// it was one: it may be back.
func (v WorkerView) StandIn(sibling int) bool {
	if !v.moveStandIn(orphaned, standIn(sibling+1)) {
		return false
	}
	v.d.Changed()
	return true
}

// Claim is for the lanes of the worker: it reports whether they may read. If a
// sibling stands in it is asked to leave, once, and asked says which it is; else
// asked is -1.
func (v WorkerView) Claim() (mine bool, asked int) {
	for {
		s := v.standIn()
		switch {
		case s == own:
			return true, -1
		case s == orphaned || s.leaving() && s.readers() == 0:
			if v.moveStandIn(s, own) {
				v.d.Changed()
				return true, -1
			}
		case s.leaving():
			return false, -1
		default:
			if v.moveStandIn(s, s|leavingBit) {
				v.d.Changed()
				if s.readers() > 0 {
					return false, s.sibling()
				}
			}
		}
	}
}

// Join is for a lane of a sibling: it reports whether the lane may read, from now
// until it calls Leave.
func (v WorkerView) Join(sibling int) bool {
	for {
		s := v.standIn()
		if s.sibling() != sibling || s.leaving() {
			return false
		}
		if v.moveStandIn(s, s+reader) {
			return true
		}
	}
}

// Leave says that a lane that has joined reads no more, and reports whether it was
// the last one, and the worker waits for it.
func (v WorkerView) Leave() (last bool) {
	for {
		s := v.standIn()
		if s.readers() == 0 { // a damaged word: there is nothing to take back
			return true
		}
		if v.moveStandIn(s, s-reader) {
			return s.leaving() && s.readers() == 1
		}
	}
}
