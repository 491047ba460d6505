package table

const (
	// probes is how many slots from its home a flow may lie.
	probes = 16

	// tries bounds how often an operation looks again because another changed
	// the word it was about to swap. Each time that one has got on, so only
	// damage exhausts it.
	tries = 64
)

// Outcome says what became of a lookup.
type Outcome uint8

// The outcomes of Refresh and Record.
const (
	Absent      Outcome = iota // no such flow is alive in this table
	Mine                       // the caller serves it, and its entry is refreshed
	Sibling                    // another worker serves it; its entry is as it was
	NotRecorded                // no slot for it: serve it all the same, and count
)

// All hashes below are of package flow under the table's secret, now is
// mono.Millis (one reading per burst), me is the caller's worker index.

// Fetch brings the slots at which these flows are looked up first into the cache,
// all of them at once. It changes nothing, and its loads decide nothing.
func (t *Table) Fetch(hashes []uint64) {
	for _, h := range hashes {
		t.at(h, 0).Entry.Load()
	}
}

// Find returns the worker that serves the flow, if it is alive.
func (t *Table) Find(hash uint64, now uint32) (worker int, ok bool) {
	for range tries {
		s, e := t.match(hash, now)
		if s == nil {
			return 0, false
		}
		if s.entry() == e {
			return e.worker(), true
		}
	}
	return 0, false
}

// Refresh is Record for a flow that may live in another generation's table: it
// records nothing that is not alive here. The worker is the owner; it is valid
// with Mine and Sibling.
func (t *Table) Refresh(hash uint64, me int, now uint32) (o Outcome, worker int) {
	for range tries {
		s, e := t.match(hash, now)
		if s == nil {
			return Absent, 0
		}
		if o, ok := s.see(e, me, now); ok {
			return o, e.worker()
		}
	}
	return Absent, 0
}

// Record finds the flow and refreshes its entry if it is the caller's, or
// records it as the caller's if nobody serves it. The worker is the owner, me
// unless the outcome is Sibling.
func (t *Table) Record(hash uint64, me int, now uint32) (o Outcome, worker int) {
	for range tries {
		s, e, place := t.search(hash, now)
		switch place {
		case held:
			if o, ok := s.see(e, me, now); ok {
				return o, e.worker()
			}
		case lapsed:
			if s.revive(e, hash, me, now) {
				return Mine, me
			}
		case vacant:
			if s.take(e, hash, me, now) {
				return Mine, me
			}
		case full:
			return NotRecorded, me
		}
	}
	return NotRecorded, me
}

// Touch counts a packet for the flow, whoever serves it: for the lane that has
// given the packet to the owner. It reports whether the flow was alive.
func (t *Table) Touch(hash uint64, now uint32) bool {
	for range tries {
		s, e := t.match(hash, now)
		if s == nil {
			return false
		}
		if s.swap(e, e.refreshed(now)) {
			return true
		}
	}
	return false
}

// Adopt makes the flow of worker from, which is dead, the caller's, and counts a
// packet for it. It reports false when the flow is not alive as from's: it has
// aged, or another lane was first.
func (t *Table) Adopt(hash uint64, from, me int, now uint32) bool {
	for range tries {
		s, e := t.match(hash, now)
		if s == nil || e.worker() != from {
			return false
		}
		if s.swap(e, e.refreshed(now).withWorker(me)) {
			return true
		}
	}
	return false
}

// Remove ends the flow, if it is the caller's: it is not alive from then on. It
// reports whether there was anything to end.
func (t *Table) Remove(hash uint64, me int) bool {
	removed := false
	for n := range uint64(probes) {
		s := t.at(hash, n)
		for range tries {
			e := s.entry()
			fp := s.hash()
			if e == 0 && fp == 0 {
				return removed
			}
			if fp != hash || e&(claimFlag|freeFlag) != 0 || e.worker() != me {
				break
			}
			if s.swap(e, e|freeFlag) {
				removed = true
				break
			}
		}
	}
	return removed
}
