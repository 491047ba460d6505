//go:build explore

package table

import (
	"fmt"
	"testing"

	"github.com/dnsapp/dnsapp/internal/explore"
)

// lane is a thread that records a flow, and what came of it.
type lane struct {
	hash   uint64
	me     int
	o      Outcome
	worker int
	done   bool
}

func (l *lane) run(w *window, now uint32) func() {
	return func() {
		l.o, l.worker = w.Record(l.hash, l.me, now)
		l.done = true
	}
}

// agrees says whether the table says of l's flow what l was told.
func (l *lane) agrees(w *window) error {
	owner, ok := w.Find(l.hash, xNow)
	switch {
	case l.o == Mine && (!ok || owner != l.me):
		return fmt.Errorf("worker %d recorded its flow, which is found %v at worker %d", l.me, ok, owner)
	case l.o == NotRecorded && ok:
		return fmt.Errorf("worker %d did not record its flow, which is found at worker %d", l.me, owner)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// New flows want one vacant slot, whose former flow is not alive, while an
// established flow is refreshed and the sweeper is at work: one of them gets it,
// the others are told so, and nobody else is hurt.
func TestExploreOneVacancy(t *testing.T) {
	for name, e := range vacancies {
		t.Run(name, func(t *testing.T) {
			explore.Run(t, func() explore.Scenario {
				w := newWindow(small(), map[int]entry{9: e})
				y, z, x := &lane{hash: home(0, 100), me: 1}, &lane{hash: home(0, 101), me: 2}, &lane{hash: home(0, 3), me: 63}
				return explore.Scenario{
					Threads: []explore.Thread{
						{Name: "new", Run: y.run(w, xNow)},
						{Name: "new too", Run: z.run(w, xNow+1)},
						{Name: "known", Run: x.run(w, xNow)},
						{Name: "sweeper", Run: func() { w.Sweep(xNow) }},
					},
					Check: func() error {
						if (y.o == Mine) == (z.o == Mine) || x.o != Mine {
							return fmt.Errorf("outcomes %v and %v, of the known flow %v", y.o, z.o, x.o)
						}
						return firstError(w.intact(), w.unclaimed(), y.agrees(w), z.agrees(w))
					},
				}
			})
		})
	}
}

// A flow whose second packet comes in while a new flow wants its slot either keeps
// it, or is recorded elsewhere or not at all; of the two, one is recorded, and both
// lanes know.
func TestExploreOnePacketEviction(t *testing.T) {
	for vacancies, entries := range []map[int]entry{{9: once}, {9: once, 12: aged}, {9: once, 3: freed, 4: aged}} {
		explore.Run(t, func() explore.Scenario {
			w := newWindow(small(), entries)
			x, y := &lane{hash: home(0, 9), me: 5}, &lane{hash: home(0, 100), me: 1}
			z := &lane{hash: home(0, 101), me: 2}
			return explore.Scenario{
				Threads: []explore.Thread{
					{Name: "second packet", Run: x.run(w, xNow)},
					{Name: "new", Run: y.run(w, xNow)},
					{Name: "new too", Run: z.run(w, xNow)},
				},
				Check: func() error {
					recorded := 0
					for _, l := range []*lane{x, y, z} {
						if l.o == Mine {
							recorded++
						}
					}
					if recorded != min(vacancies+1, 3) {
						return fmt.Errorf("%d flows recorded in %d slots", recorded, vacancies+1)
					}
					return firstError(w.intact(), w.unclaimed(), x.agrees(w), y.agrees(w), z.agrees(w))
				},
			}
		})
	}
}

// The packet that a forwarder counts after its push keeps the flow: either it was
// gone before, or it can no longer be evicted.
func TestExploreTouch(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		w := newWindow(small(), map[int]entry{9: once})
		y := &lane{hash: home(0, 100), me: 1}
		var touched bool
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "forwarder", Run: func() { touched = w.Touch(home(0, 9), xNow) }},
				{Name: "new", Run: y.run(w, xNow)},
				{Name: "sweeper", Run: func() { w.Sweep(xNow + 1) }},
			},
			Check: func() error {
				owner, ok := w.Find(home(0, 9), xNow)
				if touched != ok || ok && owner != 5 || touched == (y.o == Mine) {
					return fmt.Errorf("touched %v, then found %v at %d; the new flow is %v", touched, ok, owner, y.o)
				}
				return firstError(w.intact(), w.unclaimed(), y.agrees(w))
			},
		}
	})
}

// Two lanes see the first packet of one flow: whatever each is told, from then on
// both agree on an owner, and where a single slot is in question there is one entry.
func TestExploreSameFlow(t *testing.T) {
	h := home(0, 9)
	for name, c := range map[string]struct {
		entries map[int]entry
		single  bool
	}{
		"vacant":              {map[int]entry{12: freed}, true},
		"never used":          {map[int]entry{15: 0}, true},
		"more never used":     {map[int]entry{14: 0, 15: 0}, false},
		"its own, aged":       {map[int]entry{9: aged, 3: freed}, true},
		"its own, freed":      {map[int]entry{9: freed, 12: freed}, true},
		"its own, one packet": {map[int]entry{9: once}, true},
		"two vacant":          {map[int]entry{3: freed, 12: aged}, false},
	} {
		t.Run(name, func(t *testing.T) {
			explore.Run(t, func() explore.Scenario {
				w := newWindow(small(), c.entries)
				if _, ok := c.entries[9]; !ok {
					w.slots[9].Hash.Store(home(0, 50))
					w.lively = nil
				}
				a, b := &lane{hash: h, me: 1}, &lane{hash: h, me: 2}
				return explore.Scenario{
					Threads: []explore.Thread{{Name: "a", Run: a.run(w, xNow)}, {Name: "b", Run: b.run(w, xNow+1)}},
					Check: func() error {
						entries := 0
						for n := range w.slots {
							if w.slots[n].hash() == h && w.slots[n].entry().alive(xNow, xIdle) {
								entries++
							}
						}
						if entries == 0 || c.single && entries > 1 {
							return fmt.Errorf("%d entries", entries)
						}
						owner, ok := w.Find(h, xNow)
						oa, wa := w.Record(h, 1, xNow+1)
						ob, wb := w.Record(h, 2, xNow+1)
						if !ok || wa != owner || wb != owner || (oa == Mine) != (owner == 1) || (ob == Mine) != (owner == 2) {
							return fmt.Errorf("found %v at %d; then a is told %v at %d, b %v at %d", ok, owner, oa, wa, ob, wb)
						}
						return firstError(w.intact(), w.unclaimed())
					},
				}
			})
		})
	}
}

// A reader is told an owner that the flow had, or none: never the owner of another
// flow that takes the slot meanwhile.
func TestExploreReader(t *testing.T) {
	for name, e := range map[string]entry{"evicted": once, "aged": aged, "freed": freed} {
		t.Run(name, func(t *testing.T) {
			explore.Run(t, func() explore.Scenario {
				w := newWindow(small(), map[int]entry{9: e})
				x, y := &lane{hash: home(0, 9), me: 5}, &lane{hash: home(0, 100), me: 1}
				type read struct {
					worker int
					ok     bool
				}
				var rx, ry read
				return explore.Scenario{
					Threads: []explore.Thread{
						{Name: "known", Run: x.run(w, xNow)},
						{Name: "new", Run: y.run(w, xNow)},
						{Name: "reader", Run: func() { rx.worker, rx.ok = w.Find(home(0, 9), xNow) }},
						{Name: "reader too", Run: func() { ry.worker, ry.ok = w.Find(home(0, 100), xNow) }},
					},
					Check: func() error {
						if rx.ok && rx.worker != 5 || ry.ok && ry.worker != 1 {
							return fmt.Errorf("the readers found workers %d and %d", rx.worker, ry.worker)
						}
						return firstError(w.intact(), w.unclaimed(), x.agrees(w), y.agrees(w))
					},
				}
			})
		})
	}
}

// The sweeper's clock says that a flow has aged just as its next packet comes in:
// the flow is alive afterwards.
func TestExploreSweepAtTheBound(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		w := newWindow(small(), map[int]entry{9: newEntry(xNow-xIdle, 5) + 1<<8})
		x := &lane{hash: home(0, 9), me: 5}
		swept := 0
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "known", Run: x.run(w, xNow)},
				{Name: "sweeper", Run: func() { swept = w.Sweep(xNow + 1) }},
				{Name: "sweeper too", Run: func() { swept += w.Sweep(xNow + 1) }},
			},
			Check: func() error {
				if x.o != Mine || swept > 1 {
					return fmt.Errorf("outcome %v, swept %d times", x.o, swept)
				}
				return firstError(w.intact(), w.unclaimed(), x.agrees(w))
			},
		}
	})
}

// Of two lanes that adopt the flow of a dead worker one does, also while it is
// touched; and the flow is never lost.
func TestExploreAdopt(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		w := newWindow(small(), map[int]entry{9: lively})
		h := home(0, 9)
		var a, b, touched bool
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "a", Run: func() { a = w.Adopt(h, 5, 1, xNow) }},
				{Name: "b", Run: func() { b = w.Adopt(h, 5, 2, xNow) }},
				{Name: "forwarder", Run: func() { touched = w.Touch(h, xNow) }},
			},
			Check: func() error {
				owner, ok := w.Find(h, xNow)
				if a == b || !touched || !ok || a && owner != 1 || b && owner != 2 {
					return fmt.Errorf("adopted by a %v, by b %v, touched %v; found %v at %d", a, b, touched, ok, owner)
				}
				return firstError(w.intact(), w.unclaimed())
			},
		}
	})
}

// A slot is removed, claimed for another flow and removed again within one stamp,
// so that its entry looks the same: a lane that wants to revive the first flow does
// not revive the other one.
func TestExploreReviveAfterReuse(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		w := newWindow(small(), map[int]entry{9: newEntry(xNow, 1) | freeFlag})
		x, y := &lane{hash: home(0, 9), me: 1}, &lane{hash: home(0, 100), me: 1}
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "revives", Run: x.run(w, xNow)},
				{Name: "reuses", Run: func() {
					y.run(w, xNow)()
					if y.o == Mine {
						w.Remove(y.hash, 1)
					}
				}},
			},
			Check: func() error {
				if _, ok := w.Find(y.hash, xNow); ok {
					return fmt.Errorf("the removed flow is alive")
				}
				return firstError(w.intact(), w.unclaimed(), x.agrees(w))
			},
		}
	})
}

// A flow that is removed while a new one wants its slot does not take the new one
// with it.
func TestExploreRemove(t *testing.T) {
	for _, vacancy := range []entry{once, lively} {
		explore.Run(t, func() explore.Scenario {
			w := newWindow(small(), map[int]entry{9: vacancy})
			y := &lane{hash: home(0, 100), me: 1}
			var removed, touched bool
			return explore.Scenario{
				Threads: []explore.Thread{
					{Name: "remover", Run: func() { removed = w.Remove(home(0, 9), 5) }},
					{Name: "forwarder", Run: func() { touched = w.Touch(home(0, 9), xNow) }},
					{Name: "new", Run: y.run(w, xNow)},
				},
				Check: func() error {
					if _, ok := w.Find(home(0, 9), xNow); ok {
						return fmt.Errorf("the removed flow is alive")
					}
					if !removed && y.o != Mine || vacancy == lively && !removed {
						return fmt.Errorf("removed %v, touched %v, new %v", removed, touched, y.o)
					}
					return firstError(w.intact(), w.unclaimed(), y.agrees(w))
				},
			}
		})
	}
}

// A lane is killed anywhere in recording a flow: nobody else is hurt, and what it
// leaves is claimable a minute later. With others at work meanwhile.
func TestExploreKill(t *testing.T) {
	for name, e := range vacancies {
		t.Run(name, func(t *testing.T) {
			explore.Run(t, func() explore.Scenario {
				w := newWindow(small(), map[int]entry{9: e})
				y, z, x := &lane{hash: home(0, 100), me: 1}, &lane{hash: home(0, 101), me: 2}, &lane{hash: home(0, 3), me: 63}
				return explore.Scenario{
					Threads: []explore.Thread{
						{Name: "killed", Run: y.run(w, xNow), Kill: true},
						{Name: "new", Run: z.run(w, xNow)},
						{Name: "known", Run: x.run(w, xNow)},
						{Name: "sweeper", Run: func() { w.Sweep(xNow) }},
					},
					Check: func() error {
						if y.done && (y.o == Mine) == (z.o == Mine) || x.o != Mine {
							return fmt.Errorf("outcomes %v and %v, of the known flow %v", y.o, z.o, x.o)
						}
						if y.done {
							if err := firstError(w.unclaimed(), y.agrees(w)); err != nil {
								return err
							}
						}
						return firstError(w.intact(), z.agrees(w), w.claimableLater())
					},
				}
			})
		})
	}
}

// Four lanes record and adopt where two slots are to be had, one of them killed
// anywhere.
func TestExploreFourWriters(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		w := newWindow(small(), map[int]entry{6: lively, 9: once, 12: aged})
		x := &lane{hash: home(0, 9), me: 5}
		y, z := &lane{hash: home(0, 100), me: 1}, &lane{hash: home(0, 101), me: 2}
		var adopted bool
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "second packet", Run: x.run(w, xNow)},
				{Name: "killed", Run: y.run(w, xNow), Kill: true},
				{Name: "new", Run: z.run(w, xNow)},
				{Name: "adopts", Run: func() { adopted = w.Adopt(home(0, 6), 5, 3, xNow) }},
			},
			Check: func() error {
				if owner, ok := w.Find(home(0, 6), xNow); !adopted || !ok || owner != 3 {
					return fmt.Errorf("adopted %v, found %v at %d", adopted, ok, owner)
				}
				recorded := 0
				for _, l := range []*lane{x, y, z} {
					if l.done && l.o == Mine {
						recorded++
					}
				}
				if y.done && recorded != 2 || recorded == 0 {
					return fmt.Errorf("%d flows recorded in 2 slots", recorded)
				}
				if y.done {
					if err := firstError(w.unclaimed(), y.agrees(w)); err != nil {
						return err
					}
				}
				return firstError(w.intact(), x.agrees(w), z.agrees(w), w.claimableLater())
			},
		}
	})
}
