package directory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/internal/explore"
	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/shm"
)

// newDirectory returns a directory in heap memory.
func newDirectory() *Directory {
	d, err := Format(shm.Heap(RegionSize))
	if err != nil {
		panic(err)
	}
	return d
}

// touchOwner comes before each operation on the owner word: the explorer orders whole
// operations, or with the tag explore the accesses in them, which mark themselves.
func touchOwner(d *Directory, write bool) {
	if !step.Enabled {
		explore.Access(&d.top.Owner, write)
	}
}

// The owner word moves only along the arrows of the package comment, and an operation
// that comes too late says so and changes nothing.
func TestOwnerMoves(t *testing.T) {
	d := newDirectory()
	expect := func(what string, err error, fails bool, want Word) {
		t.Helper()
		if errors.Is(err, ErrMoved) != fails || !fails && err != nil {
			t.Errorf("%s: error %v", what, err)
		}
		if got := d.Owner(); got != want {
			t.Errorf("%s: the word is %v, want %v", what, got, want)
		}
	}
	d.SetOwner(1)
	expect("first", nil, false, Run(1))
	expect("flip from RUN", d.Flip(Run(1)|1<<32, 2), true, Run(1))
	park, err := d.Park(1000)
	expect("park", err, false, Parked(1, 1000))
	_, err = d.Park(2000)
	expect("park again", err, true, park)
	expect("flip of another park", d.Flip(Parked(1, 999), 2), true, park)
	expect("unpark of another park", d.Unpark(Parked(2, 1000)), true, park)
	expect("flip", d.Flip(park, 2), false, Run(2))
	expect("flip again", d.Flip(park, 2), true, Run(2))
	expect("unpark after the flip", d.Unpark(park), true, Run(2))
	lane := d.Lane(0, 0)
	if !lane.Lapse(park, 9000) {
		t.Error("lapse after the flip: the word is said to be that park")
	}
	expect("lapse after the flip", nil, false, Run(2))
	park, err = d.Park(3000)
	expect("park of the new owner", err, false, Parked(2, 3000))
	if lane.Lapse(park, 3000) {
		t.Error("lapsed at its deadline")
	}
	expect("lapse at the deadline", nil, false, park)
	if !lane.Lapse(park, 3001) {
		t.Error("not lapsed after its deadline")
	}
	expect("lapse", nil, false, Run(2))
	park, err = d.Park(4000)
	expect("park once more", err, false, Parked(2, 4000))
	expect("unpark", d.Unpark(park), false, Run(2))
}

// Of a flip, an unpark and the lapses of one park, exactly one wins, in every order,
// and those that fail know.
func TestOneMoveWins(t *testing.T) {
	winners := map[string]int{}
	explore.Run(t, func() explore.Scenario {
		d := newDirectory()
		d.SetOwner(1)
		park, err := d.Park(1000)
		if err != nil {
			t.Fatal(err)
		}
		var flip, unpark error
		lapse := func(lane int) func() {
			return func() {
				touchOwner(d, true)
				if !d.Lane(0, lane).Lapse(park, 2000) {
					t.Error("a lapsed park is said to stand")
				}
			}
		}
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "flip", Run: func() { touchOwner(d, true); flip = d.Flip(park, 2) }},
				{Name: "unpark", Run: func() { touchOwner(d, true); unpark = d.Unpark(park) }},
				{Name: "lane 0", Run: lapse(0)},
				{Name: "lane 1", Run: lapse(1)},
			},
			Check: func() error {
				switch w := d.Owner(); {
				case w == Run(2) && flip == nil && unpark != nil:
					winners["flip"]++
				case w == Run(1) && flip != nil && unpark == nil:
					winners["unpark"]++
				case w == Run(1) && flip != nil && unpark != nil:
					winners["lapse"]++
				default:
					return fmt.Errorf("the word is %v after flip: %v, unpark: %v", w, flip, unpark)
				}
				return nil
			},
		}
	})
	if len(winners) != 3 {
		t.Errorf("winners: %v", winners)
	}
}

// A late lapse of one park does not end the next.
func TestLapseIsOfItsPark(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		d := newDirectory()
		d.SetOwner(1)
		park, err := d.Park(1000)
		if err != nil {
			t.Fatal(err)
		}
		var next Word
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "supervisor", Run: func() {
					touchOwner(d, true)
					d.Unpark(park) // or the lane was first
					touchOwner(d, true)
					next, err = d.Park(1001)
				}},
				{Name: "lane", Run: func() { touchOwner(d, true); d.Lane(0, 0).Lapse(park, 2000) }},
			},
			Check: func() error {
				if w := d.Owner(); err != nil || w != next {
					return fmt.Errorf("parked by %v, error %v; the word is %v", next, err, w)
				}
				return nil
			},
		}
	})
}

// wire is the socket that two generations share: it must never be read by both.
type wire struct {
	reading []uint32 // by lane: the epoch of the burst in hand, 0 between bursts
	err     error
}

func (w *wire) begin(lane int, epoch uint32) {
	explore.Access(w, true)
	w.reading[lane] = epoch
	for other, e := range w.reading {
		if e != 0 && e != epoch {
			w.err = fmt.Errorf("lane %d reads for epoch %d while lane %d reads for %d", lane, epoch, other, e)
		}
	}
}

func (w *wire) end(lane int) {
	if w.reading[lane] != 0 {
		explore.Access(w, true)
		w.reading[lane] = 0
	}
}

// readLoop is a lane of the generation epoch, for some bursts: it loads the word before
// each, acks a park, and lets it lapse: its clock may be as late as it likes.
func (w *wire) readLoop(d *Directory, lane int, epoch uint32, bursts int) func() {
	return func() {
		view := d.Lane(0, lane)
		for range bursts {
			w.end(lane)
			touchOwner(d, false)
			word := view.Owner()
			switch {
			case word.IsPark():
				explore.Access(view.l, true)
				view.SetAck(word, true)
				touchOwner(d, true)
				view.Lapse(word, word.Deadline()+1)
			case word.Epoch() == epoch:
				w.begin(lane, epoch)
			}
		}
		w.end(lane)
	}
}

// handOver is the supervisor: a park, a look at the acks of the lanes, and a flip if
// all have acked that park.
func handOver(d *Directory, lanes int, deadline, epoch uint32) bool {
	touchOwner(d, true)
	park, err := d.Park(deadline)
	if err != nil {
		return false
	}
	for lane := range lanes {
		explore.Access(d.Lane(0, lane).l, false)
		if d.Ack(0, lane) != park {
			return false // the supervisor looks no more: it may die here
		}
	}
	touchOwner(d, true)
	return d.Flip(park, epoch) == nil
}

// exploreHandOver runs a hand-over after some attempts, with the given deadlines, beside lanes
// of both generations, and returns what was wrong with who read the wire when.
func exploreHandOver(t *testing.T, lanes, bursts int, deadlines ...uint32) (flips int, wrong error) {
	t.Helper()
	explore.Run(t, func() explore.Scenario {
		d := newDirectory()
		d.SetOwner(1)
		w := &wire{reading: make([]uint32, lanes+1)}
		flipped := false
		ths := []explore.Thread{
			{Name: "supervisor", Run: func() {
				for _, deadline := range deadlines {
					if handOver(d, lanes, deadline, 2) {
						flipped = true
						return
					}
				}
			}},
			{Name: "new lane", Run: w.readLoop(d, lanes, 2, 1)},
		}
		for l := range lanes {
			ths = append(ths, explore.Thread{Name: fmt.Sprint("old lane ", l), Run: w.readLoop(d, l, 1, bursts)})
		}
		return explore.Scenario{Threads: ths, Check: func() error {
			if w.err != nil {
				wrong = w.err
			}
			if flipped {
				flips++
			}
			return nil
		}}
	})
	return flips, wrong
}

// Two generations never read the wire at once, in whatever order lanes, supervisor and
// lease act; and the hand-over can come off.
func TestNeverTwoReaders(t *testing.T) {
	for _, c := range []struct {
		lanes, bursts int
		deadlines     []uint32
	}{
		{1, 4, []uint32{1000}},
		{1, 4, []uint32{1000, 1001}},
		{2, 2, []uint32{1000}},
	} {
		flips, wrong := exploreHandOver(t, c.lanes, c.bursts, c.deadlines...)
		if wrong != nil {
			t.Errorf("%d lanes, %d bursts, deadlines %v: %v", c.lanes, c.bursts, c.deadlines, wrong)
		}
		if flips == 0 {
			t.Errorf("%d lanes, %d bursts, deadlines %v: no hand-over came off", c.lanes, c.bursts, c.deadlines)
		}
	}
}

// Why each park has a deadline of its own: the ack of an earlier park with the same one
// would be taken for that of this park, and there would be two readers. It is also the
// proof that the test above would notice.
func TestSameDeadlineMakesTwoReaders(t *testing.T) {
	if _, wrong := exploreHandOver(t, 1, 4, 1000, 1000); wrong == nil {
		t.Error("no second reader found")
	}
}

// The gap runs from the last park ack before a flip to the first read after it.
func TestGap(t *testing.T) {
	d := newDirectory()
	d.SetOwner(1)
	if g := d.Gap(); g != 0 {
		t.Errorf("gap of %d ns before any flip", g)
	}
	park, err := d.Park(1000)
	if err != nil {
		t.Fatal(err)
	}
	a, b := d.Lane(0, 0), d.Lane(1, 0)
	a.SetAck(park, true)
	if got := d.Ack(0, 0); got != park {
		t.Errorf("ack is %v", got)
	}
	parkedAt := d.top.ParkedAt.Load()
	b.SetAck(park, false) // it had nothing to stop
	if got := d.Ack(1, 0); got != park || d.top.ParkedAt.Load() != parkedAt {
		t.Errorf("ack %v of a lane that had read nothing, the gap from %d on instead of %d", got, d.top.ParkedAt.Load(), parkedAt)
	}
	if b.Taken() {
		t.Error("taken before the flip")
	}
	if err := d.Flip(park, 2); err != nil {
		t.Fatal(err)
	}
	if g := d.Gap(); g != 0 {
		t.Errorf("gap of %d ns before the first read", g)
	}
	if b.Taken() {
		t.Error("taken before the first read")
	}
	b.NoteRead()
	if !a.Taken() {
		t.Error("not taken after the first read")
	}
	gap := d.Gap()
	if gap <= 0 || gap > int64(1e9) {
		t.Errorf("gap of %d ns", gap)
	}
	b.NoteRead() // not the first any more
	if got := d.Gap(); got != gap {
		t.Errorf("a later read makes the gap %d ns, from %d", got, gap)
	}
}

// Acks and answers are signs; whoever waits for one that has come does not wait.
func TestSigns(t *testing.T) {
	d := newDirectory()
	lane := d.Lane(0, 0)
	for name, give := range map[string]func(){
		"ack":    func() { lane.SetAck(Parked(1, 5), true) },
		"answer": func() { lane.SetAnswer(d.Ask(0, 0)) },
	} {
		seen := d.Signs()
		give()
		if d.Signs() == seen {
			t.Errorf("no sign of an %s", name)
		}
		began := time.Now()
		d.AwaitSign(seen, time.Minute)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("waited %v for the sign of an %s that had come", took, name)
		}
	}
}
