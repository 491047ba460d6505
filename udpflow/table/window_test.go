package table

import "fmt"

const (
	xNow  = 1_000_000
	xIdle = 1_000
)

// Entries in all the states a slot can be in.
var (
	aged   = newEntry(xNow-xIdle-1, 5)
	freed  = newEntry(xNow-500, 5) | freeFlag
	once   = newEntry(xNow-10, 5)
	crash  = newEntry(xNow-claimMs-1, 5) | claimFlag
	lively = newEntry(xNow-500, 5) + 1<<8
)

// vacancies are the states in which a slot can be claimed.
var vacancies = map[string]entry{"never used": 0, "aged": aged, "freed": freed, "one packet": once, "dead claim": crash}

// window is a view of the first 16 slots of a table, the window of the flows
// home(0, n).
type window struct {
	*Table
	lively []uint64
}

// newWindow fills them: slot n holds flow n, in the given state; those without one
// are of flows of worker 63 that must stay.
func newWindow(t *Table, entries map[int]entry) *window {
	w := &window{Table: t}
	for n := range probes {
		e, ok := entries[n]
		if !ok {
			e = newEntry(xNow, 63) + 1<<8
			w.lively = append(w.lively, home(0, uint64(n)))
		}
		w.slots[n].Entry.Store(uint64(e))
		w.slots[n].Hash.Store(0)
		if e != 0 {
			w.slots[n].Hash.Store(home(0, uint64(n)))
		}
	}
	return w
}

// small returns a table of that window only, for a test that needs many.
func small() *Table {
	return &Table{
		slots:   make([]slot, probes),
		mask:    probes - 1,
		idle:    xIdle,
		workers: make([]workerWord, MaxWorkers),
	}
}

// intact says whether all lively flows are as they were.
func (w *window) intact() error {
	for _, h := range w.lively {
		if owner, ok := w.Find(h, xNow); !ok || owner != 63 {
			return fmt.Errorf("a lively flow is found %v at worker %d", ok, owner)
		}
	}
	return nil
}

// unclaimed says whether no slot is left under CLAIM.
func (w *window) unclaimed() error {
	for n := range w.slots {
		if w.slots[n].entry().claimed() {
			return fmt.Errorf("slot %d is left under CLAIM", n)
		}
	}
	return nil
}

// claimableLater says whether, when every flow has aged and a minute has passed since
// xNow, 16 new flows can be recorded: no slot is stuck.
func (w *window) claimableLater() error { return w.claimableAfter(xNow) }

// claimableAfter is claimableLater for what was stamped until last.
func (w *window) claimableAfter(last uint32) error {
	for n := range uint64(probes) {
		if o, _ := w.Record(home(0, 1000+n), 0, last+claimMs+1); o != Mine {
			return fmt.Errorf("a minute later %d flows can be recorded: a slot is stuck", n)
		}
	}
	return nil
}
