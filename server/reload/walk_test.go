package reload

import (
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// worldKey stands for a world. Two of a million worlds share one with a
// probability of 10^-26.
type worldKey [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (w *world) key() (k worldKey) {
	for i, seed := range seeds {
		k[i] = maphash.Comparable(seed, *w)
	}
	return k
}

// walk visits every world that can be reached from before boot with at most
// this many faults, breadth first, and returns how many there are. The error
// for a broken invariant tells a shortest path to it.
func (md *model) walk(faults uint8, visit func(*world) error) (int, error) {
	start := world{faults: faults, kills: md.kills}
	t := trail{md: md, start: start, nodes: []node{{parent: -1}}}
	seen := map[worldKey]struct{}{start.key(): {}}
	level, first := []world{start}, 0 // first: index of level[0] in the trail
	var w world
	for len(level) > 0 {
		var next []world
		for i := range level {
			if err := visit(&level[i]); err != nil {
				return len(t.nodes), fmt.Errorf("%w, after\n%s", err, t.path(first+i))
			}
			for c, mv := range md.moves(&level[i]) {
				w = level[i]
				changed, err := md.apply(&w, mv)
				if err != nil {
					return len(t.nodes), fmt.Errorf("%w, after\n%s%v", err, t.path(first+i), mv)
				}
				if !changed {
					continue
				}
				k := w.key()
				if _, ok := seen[k]; ok {
					continue
				}
				seen[k] = struct{}{}
				t.nodes = append(t.nodes, node{parent: int32(first + i), choice: uint16(c)})
				next = append(next, w)
			}
		}
		first += len(level)
		level = next
	}
	return len(t.nodes), nil
}

// trail remembers how each world was reached first.
type trail struct {
	md    *model
	start world
	nodes []node
}

type node struct {
	parent int32
	choice uint16 // index of the move from there
}

// path tells the moves that lead to node i.
func (t *trail) path(i int) string {
	var choices []uint16
	for ; t.nodes[i].parent >= 0; i = int(t.nodes[i].parent) {
		choices = append(choices, t.nodes[i].choice)
	}
	var b strings.Builder
	w := t.start
	for i := len(choices) - 1; i >= 0; i-- {
		mv := t.md.moves(&w)[choices[i]]
		fmt.Fprintf(&b, "%v\n", mv)
		_, _ = t.md.apply(&w, mv)
	}
	return b.String()
}

// fairRuns checks that something always comes true in the end, if no more
// faults happen and nothing is asked for. It remembers the worlds from where
// that is known.
type fairRuns struct {
	md   *model
	done func(*world) bool
	good map[worldKey]struct{}
}

func (f *fairRuns) from(w world) error {
	var path []worldKey
	for range 1000 {
		k := w.key()
		if _, ok := f.good[k]; ok || f.done(&w) {
			f.good[k] = struct{}{}
			for _, k := range path {
				f.good[k] = struct{}{}
			}
			return nil
		}
		path = append(path, k)
		best := move{class: hinders}
		for _, mv := range f.md.moves(&w) {
			if mv.class < best.class {
				best = mv
			}
		}
		if best.class == hinders {
			return fmt.Errorf("nothing goes on in %+v", w.m)
		}
		if best.class == timer && !w.someStopped() {
			return fmt.Errorf("waiting for time to pass, %v, though everybody runs", best)
		}
		if _, err := f.md.apply(&w, best); err != nil {
			return fmt.Errorf("going on with %v: %w", best, err)
		}
	}
	return errors.New("a run without faults does not end")
}

func (w *world) someStopped() bool {
	for g := range w.gens {
		if !w.stalled(g).Empty() {
			return true
		}
	}
	return false
}

// settled: one generation is active and read by all its lanes that can, nothing
// is in progress and nobody waits for a report; or the machine has exited.
func settled(w *world) bool {
	if w.m.Phase == PhaseExited {
		return w.exited
	}
	if w.m.Phase != PhaseSteady || heldIDs(&w.m) != (idSet{}) {
		return false
	}
	for g := range w.gens {
		if w.gens[g].epoch != 0 && w.gens[g].epoch != w.owner.epoch {
			return false
		}
	}
	s := w.m.Slots[w.m.Active.Slot]
	for i := range s.Workers.All() {
		p := w.gens[w.m.Active.Slot].workers[i]
		if !p.stopped && (p.life != up || p.reading&1 == 0 || !s.Up.Has(i)) {
			return false
		}
	}
	return true
}

// verify walks, and checks what every state must lead to.
func (md *model) verify(faults uint8) (int, error) { return md.walk(faults, md.liveness()) }

// liveness returns a visitor that checks what every state must lead to.
func (md *model) liveness() func(*world) error {
	settle := fairRuns{md: md, done: settled, good: map[worldKey]struct{}{}}
	exit := fairRuns{md: md, done: func(w *world) bool { return w.exited }, good: map[worldKey]struct{}{}}
	return func(w *world) error {
		if err := settle.from(*w); err != nil {
			return err
		}
		if w.m.Stop == StopNow || w.exited {
			return nil
		}
		stopping := *w
		if _, err := md.apply(&stopping, move{events: []Event{StopRequested{Kind: StopNow}}}); err != nil {
			return err
		}
		if err := exit.from(stopping); err != nil {
			return fmt.Errorf("stopped now: %w", err)
		}
		return nil
	}
}

var soak = flag.Bool("soak", false, "walk further: some minutes of CPU time")

// exhaustive marks a test that walks: long, and with nothing in it for the race
// detector, which makes it ten times longer.
func exhaustive(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine and no shared memory: walked without the race detector only")
	}
	t.Parallel()
}

// walks are how far TestWalk goes in each direction; all of them together would
// take days.
var walks = map[string]struct {
	model
	faults uint8
	long   bool // with -soak only
}{
	"workers":      {model: model{modes: []Mode{Graceful}, crew: 2, gens: 2}, faults: 1},
	"faults":       {model: model{modes: []Mode{Graceful}, crew: 1, gens: 2}, faults: 2},
	"generations":  {model: model{modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true}},
	"overlap":      {model: model{modes: []Mode{Graceful}, crew: 1, gens: 4, calm: true, brisk: true}, long: true},
	"listeners":    {model: model{modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true, brisk: true, removes: true}},
	"supervisor":   {model: model{modes: []Mode{Graceful}, crew: 1, gens: 2, kills: 2}},
	"orphans":      {model: model{modes: []Mode{Graceful}, crew: 1, gens: 2, kills: 1}, faults: 1},
	"its overlap":  {model: model{modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true, brisk: true, kills: 1}},
	"its removals": {model: model{modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true, brisk: true, removes: true, kills: 1}, long: true},
	"restart":      {model: model{modes: []Mode{Graceful, Restart}, crew: 1, gens: 2, defects: defects{blind: true}}, faults: 1},
	"more faults":  {model: model{modes: []Mode{Graceful}, crew: 2, gens: 2}, faults: 2, long: true},
	"three, fault": {model: model{modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true}, faults: 1, long: true},
	"policies":     {model: model{modes: []Mode{Graceful}, overlaps: []Overlap{RefuseOverlap}, crew: 1, gens: 4, calm: true, brisk: true}, long: true},
	"removed":      {model: model{modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true, removes: true}, long: true},
}

// The walk over all that can happen to the machine. What it has seen of the
// machine is drawn in machine.mmd.
func TestWalk(t *testing.T) {
	exhaustive(t)
	var seen diagram
	phases, stages, returns := map[Phase]bool{}, map[Stage]bool{}, map[Return]bool{}
	for name, w := range walks {
		if w.long && !*soak {
			continue
		}
		t.Run(name, func(t *testing.T) {
			md := w.model
			if !w.long {
				md.edge = seen.add
			}
			leads := md.liveness()
			n, err := md.walk(w.faults, func(w *world) error {
				phases[w.m.Phase], returns[w.m.Return] = true, true
				for _, s := range w.m.Slots {
					stages[s.Stage] = true
				}
				return leads(w)
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states", n)
		})
	}
	if len(phases) != len(phaseNames) || len(stages) != len(stageNames) || len(returns) != len(returnNames) {
		t.Errorf("the walks have been in %d of %d phases, %d of %d stages and %d of %d returns",
			len(phases), len(phaseNames), len(stages), len(stageNames), len(returns), len(returnNames))
	}
	if !t.Failed() {
		seen.compare(t)
	}
}

// Runs at random through what is too much to walk: four generations of two
// workers, faults again and again, every request, listeners removed.
func TestWander(t *testing.T) {
	exhaustive(t)
	const (
		runs  = 150
		moves = 1500
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	md := &model{modes: []Mode{Graceful}, overlaps: []Overlap{RefuseOverlap}, crew: 2, gens: MaxSlots, removes: true}
	live, returns := map[int]int{}, map[Return]int{}
	for range runs {
		leads := md.liveness()
		start := world{faults: 250}
		tr := trail{md: md, start: start, nodes: []node{{parent: -1}}}
		w := start
		for n := range moves {
			list := md.moves(&w)
			if len(list) == 0 {
				break
			}
			c := choose(rng, list)
			changed, err := md.apply(&w, list[c])
			if err == nil && n%50 == 49 {
				err = leads(&w)
			}
			if err != nil {
				t.Fatalf("%v, after\n%s%v", err, tr.path(len(tr.nodes)-1), list[c])
			}
			if changed {
				tr.nodes = append(tr.nodes, node{parent: int32(len(tr.nodes) - 1), choice: uint16(c)})
			}
			live[w.live()]++
			returns[w.m.Return]++
		}
	}
	t.Logf("moves by generations %v, by return %v", live, returns)
	if live[MaxSlots] == 0 || returns[Revert] == 0 || returns[TakeBack] == 0 {
		t.Error("the runs have not been everywhere")
	}
}

// choose returns the index of a move: one that helps more often than another,
// drains that last, and now and then a stop.
func choose(rng *rand.Rand, list []move) int {
	for {
		c := rng.IntN(len(list))
		odds := [...]int{helps: 1, timeout: 8, timer: 200, hinders: 15}[list[c].class]
		for _, e := range list[c].events {
			switch e.(type) {
			case ReloadRequested:
				odds = 10
			case WorkersLost:
				odds = 1
			case Drained:
				odds = 300
			case AbortRequested, DrainNowRequested, PrepareFailed:
				odds = 50
			case StopRequested:
				odds = 20_000
			}
		}
		if rng.IntN(odds) == 0 {
			return c
		}
	}
}

// Every kind of answer that is late, every timer that does not run and every
// fact about a generation that is gone must leave every state as it is; answers
// that were never ordered must be refused.
func TestWalkLate(t *testing.T) {
	exhaustive(t)
	md := &model{modes: []Mode{Graceful}, crew: 1, gens: 2}
	_, err := md.walk(1, func(w *world) error {
		late := w.m
		late.Orders++ // given, and not awaited
		for _, e := range answersTo(late.Orders) {
			if after, effects := Step(late, e); after != late || effects != nil {
				return fmt.Errorf("late %T leads to %+v and %v", e, after, effects)
			}
		}
		for _, e := range answersTo(late.Orders + 1) {
			after, effects := Step(late, e)
			if w.m.Phase != PhaseExited && (after != late || len(effects) != 1 || effects[0] != Effect(LogIllegal{Event: e, Phase: late.Phase})) {
				return fmt.Errorf("%T without an order leads to %+v and %v", e, after, effects)
			}
		}
		for _, e := range w.lateFacts() {
			if after, effects := Step(w.m, e); after != w.m || effects != nil {
				return fmt.Errorf("late %T%+v leads to %+v and %v", e, e, after, effects)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func answersTo(order uint32) []Event {
	return []Event{
		Prepared{Order: order, Epoch: 1 << 20, Workers: 1}, PrepareFailed{Order: order}, LanesAnswered{Order: order},
		Unanswered{Order: order, Silent: Workers{1, 1, 1, 1}}, Fenced{Order: order}, LanesParked{Order: order},
		ParkLapsed{Order: order}, Flipped{Order: order}, FlipLost{Order: order}, Drained{Order: order},
		RingsReleased{Order: order},
	}
}

// lateFacts are the timers of w that do not run, and news of a generation that
// is gone.
func (w *world) lateFacts() []Event {
	gone := Generation{Slot: 1, Epoch: 1 << 20}
	late := []Event{WorkerReady{Gen: gone}, WorkerExited{Gen: gone}, WorkersLost{Gen: gone}, ProcessesGone{Gen: gone}}
	for i, g := range w.gens {
		for t := TimerReady; t <= TimerTerm; t++ {
			if g.epoch != 0 && w.timers[i]&(1<<t) == 0 {
				late = append(late, TimerFired{Timer: t, Gen: Generation{Slot: uint8(i), Epoch: g.epoch}})
			}
		}
	}
	for _, t := range []Timer{TimerStop, TimerStopFast} {
		if w.stop&(1<<t) == 0 {
			late = append(late, TimerFired{Timer: t})
		}
	}
	return late
}

// Whatever lets two generations read the wire must be found.
func TestWalkFindsTwoReaders(t *testing.T) {
	exhaustive(t)
	for name, md := range map[string]model{
		"stale acks count":              {modes: []Mode{Graceful}, crew: 2, gens: 2, defects: defects{staleAcks: true}},
		"fence leaves processes alive":  {modes: []Mode{Graceful}, crew: 2, gens: 2, defects: defects{softFence: true}},
		"flip stores without comparing": {modes: []Mode{Graceful}, crew: 2, gens: 2, defects: defects{blindFlip: true}},
		"leaving is left at once":       {modes: []Mode{Graceful}, crew: 1, gens: 3, calm: true, brisk: true, removes: true, defects: defects{leftAtOnce: true}},
		"mode restart":                  {modes: []Mode{Restart}, crew: 2, gens: 2},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := md.walk(2, func(*world) error { return nil })
			if !errors.Is(err, errTwoReaders) {
				t.Fatalf("%d states: %v", n, err)
			}
			t.Logf("state %d: %v", n, err)
		})
	}
}

// A machine that forgets any one of its effects must be found out.
func TestWalkFindsForgottenEffects(t *testing.T) {
	exhaustive(t)
	forget := func(name string, drop func(Effect) bool) {
		t.Run(name, func(t *testing.T) {
			md := &model{modes: []Mode{Graceful}, crew: 1, gens: 2, defects: defects{drop: drop}}
			n, err := md.verify(2)
			if err == nil {
				t.Fatalf("%d states, and nothing found", n)
			}
			t.Logf("state %d: %v", n, err)
		})
	}
	for _, e := range []Effect{
		Prepare{}, CancelPrepare{}, SpawnWorkers{}, RespawnWorker{}, Fence{}, SignalWorkers{}, FoldAndFree{}, Mark{},
		OpenWindow{}, CloseWindow{}, SetHanded{}, Ask{}, Park{}, Unpark{}, Flip{}, SetOwner{}, Commit{}, AskDrain{},
		Resume{}, Release{}, Report{}, StopTimer{}, Exit{},
	} {
		forget(fmt.Sprintf("%T", e), func(f Effect) bool { return reflect.TypeOf(f) == reflect.TypeOf(e) })
	}
	for timer := TimerReady; timer <= TimerStopFast; timer++ {
		forget("timer "+timer.String(), func(f Effect) bool {
			s, ok := f.(StartTimer)
			return ok && s.Timer == timer
		})
	}
}
