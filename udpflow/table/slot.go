package table

import (
	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/mono"
)

// at returns the n-th slot of the probe window of hash.
func (t *Table) at(hash, n uint64) *slot { return &t.slots[(hash+n)&t.mask] }

// entry loads word 1. It is loaded before word 0, always: a claimer stores word 0
// between two changes of word 1, so whoever saw word 1 first notices by its swap,
// or by loading it again, that word 0 was another flow's.
func (s *slot) entry() entry {
	step.Read(&s.Entry)
	return entry(s.Entry.Load())
}

// hash loads word 0.
func (s *slot) hash() uint64 {
	step.Read(&s.Hash)
	return s.Hash.Load()
}

// swap replaces word 1, if it still is old, by next, and reports whether it did.
// Where nothing would change it makes sure of that without writing.
func (s *slot) swap(old, next entry) bool {
	if old == next {
		return s.entry() == old
	}
	step.Write(&s.Entry)
	return s.Entry.CompareAndSwap(uint64(old), uint64(next))
}

// see looks at the alive entry e of s for worker me: its own it refreshes. ok is
// false if the entry has changed.
func (s *slot) see(e entry, me int, now uint32) (o Outcome, ok bool) {
	if e.worker() == me {
		return Mine, s.swap(e, e.refreshed(now))
	}
	return Sibling, s.entry() == e
}

// match returns the first slot whose entry is the flow's and alive, and that
// entry; nil if there is none. The entry may have changed since.
func (t *Table) match(hash uint64, now uint32) (*slot, entry) {
	for n := range uint64(probes) {
		s := t.at(hash, n)
		e := s.entry()
		fp := s.hash()
		if fp == hash {
			if e.alive(now, t.idle) {
				return s, e
			}
		} else if fp == 0 && e == 0 {
			return nil, 0
		}
	}
	return nil, 0
}

// place says what a search for a flow to record has found.
type place uint8

const (
	held   place = iota // the slot in which it is alive
	lapsed              // not alive: the slot that held it last, aged or removed
	vacant              // not there: a slot to claim
	full                // not there, and everybody in its window must stay
)

// search is match for a flow that is to be recorded if it is not alive: it also
// says where. That is the slot that held it last, else the first one in which
// nobody lives, else that of the flow which has waited longest for its second
// packet.
//
// That all lanes prefer the same slot makes them meet there, and keeps two of
// them from recording one flow twice.
func (t *Table) search(hash uint64, now uint32) (*slot, entry, place) {
	var last, free, once *slot
	var lastEntry, freeEntry, onceEntry entry
	for n := range uint64(probes) {
		s := t.at(hash, n)
		e := s.entry()
		fp := s.hash()
		switch {
		case fp == hash && !e.claimed():
			if e.alive(now, t.idle) {
				return s, e, held
			}
			if last == nil {
				last, lastEntry = s, e
			}
			continue
		case free != nil:
		case e.claimable(now, t.idle):
			free, freeEntry = s, e
		case !e.claimed() && e.once(now) && (once == nil || mono.Age(onceEntry.last(), e.last()) > 0):
			once, onceEntry = s, e
		}
		if fp == 0 && e == 0 {
			break
		}
	}
	switch {
	case last != nil:
		return last, lastEntry, lapsed
	case free != nil:
		return free, freeEntry, vacant
	case once != nil:
		return once, onceEntry, vacant
	}
	return nil, 0, full
}

// take claims s from its entry e for a flow of worker me.
func (s *slot) take(e entry, hash uint64, me int, now uint32) bool {
	mine := newEntry(now, me)
	if !s.swap(e, mine|claimFlag) {
		return false
	}
	step.Write(&s.Hash)
	s.Hash.Store(hash)
	return s.swap(mine|claimFlag, mine) // fails only if we slept for claimMs
}

// revive gives s, which held the flow last, to worker me.
func (s *slot) revive(e entry, hash uint64, me int, now uint32) bool {
	mine := newEntry(now, me)
	if !s.swap(e, mine) {
		return false
	}
	if s.hash() == hash {
		return true
	}
	// Since its words were read the slot was claimed for another flow, which was
	// removed, all within one stamp: the entry looked the same again.
	s.swap(mine, mine|freeFlag)
	return false
}
