package directory

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/shm"
)

func TestAttachRefuses(t *testing.T) {
	if _, err := Attach(shm.Heap(RegionSize)); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("unformatted region: error %v", err)
	}
	if _, err := Format(shm.Heap(RegionSize - 64)); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("region too small: error %v", err)
	}
	r := shm.Heap(RegionSize)
	r.Format(shm.KindDirectory, Layout+1)
	r.Publish()
	if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("another layout: error %v", err)
	}
}

// Open takes a free slot and what fits in it; what it refuses leaves the slot free.
func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		workers, lanes int
		sockets        []uint32
	}{
		"no workers":       {0, 1, nil},
		"negative workers": {-1, 1, nil},
		"too many workers": {MaxWorkers + 1, 1, nil},
		"no lanes":         {1, 0, nil},
		"negative lanes":   {1, -1, nil},
		"too many lanes":   {1, MaxLanes + 1, nil},
		"too many in all":  {MaxWorkers, MaxLanes/MaxWorkers + 1, nil},
		"overflowing":      {64, math.MaxInt/64 + 1, nil},
		"socket id":        {1, 1, []uint32{0, MaxSockets}},
		"endless id":       {1, 1, []uint32{math.MaxUint32}},
	} {
		d := newDirectory()
		if err := d.Open(1, 1, c.workers, c.lanes, c.sockets); err == nil {
			t.Errorf("%s: opened", name)
		}
		if g := d.Generation(1); g.State != Free {
			t.Errorf("%s: the slot is %v", name, g.State)
		}
		if err := d.Open(1, 1, MaxWorkers, MaxLanes/MaxWorkers, []uint32{0, MaxSockets - 1}); err != nil {
			t.Errorf("%s: then the largest generation: %v", name, err)
		}
		if err := d.Open(1, 2, 1, 1, nil); err == nil {
			t.Errorf("%s: an occupied slot was opened", name)
		}
		if g := d.Generation(1); g.Epoch != 1 || g.Workers != MaxWorkers || g.Lanes != MaxLanes/MaxWorkers || g.State != Starting {
			t.Errorf("%s: the slot holds %+v", name, g)
		}
		if got := d.SocketIDs(1); !slices.Equal(got, []uint32{0, MaxSockets - 1}) {
			t.Errorf("%s: lists %v", name, got)
		}
	}
}

// Nothing of the generation before is left in a slot that is opened again.
func TestOpenForgets(t *testing.T) {
	d := newDirectory()
	if err := d.Open(2, 1, 2, 2, []uint32{5, 64, 700}); err != nil {
		t.Fatal(err)
	}
	d.SetState(2, Draining)
	d.SetWindow(2, d.NewWindow())
	d.SetDeadline(2, 77)
	for i := range 2 {
		w := d.Worker(2, i)
		w.SetProcess(100+i, 5)
		w.SetReady(1, 100+i)
		w.AskDrain()
		w.SetReport(Report{Asked: 1, Flows: 3, TCP: 2, Unsent: 9})
		w.SetReleased(1)
		w.SetGone()
	}
	d.Lane(2, 3).SetAck(Parked(1, 9), true)
	d.SetState(2, Free)
	version := d.Version()
	if err := d.Open(2, 4, 1, 1, []uint32{64}); err != nil {
		t.Fatal(err)
	}
	if d.Version() == version {
		t.Error("the lanes are not told")
	}
	if g := d.Generation(2); g != (Generation{Slot: 2, Epoch: 4, State: Starting, Workers: 1, Lanes: 1}) {
		t.Errorf("generation %+v", g)
	}
	if got := d.SocketIDs(2); !slices.Equal(got, []uint32{64}) {
		t.Errorf("lists %v", got)
	}
	for i := range 2 {
		w := d.Worker(2, i)
		if w.PID() != 0 || w.IsReady(1, 100+i) || w.IsGone() || w.DrainAsked() != 0 || w.Report() != (Report{}) || w.Released() != 0 {
			t.Errorf("worker %d: pid %d, gone %v, drain %d, report %+v", i, w.PID(), w.IsGone(), w.DrainAsked(), w.Report())
		}
	}
	if got := d.Ack(2, 3); got != 0 {
		t.Errorf("ack %v", got)
	}
}

// Every change of a slot is seen by the lanes.
func TestChangesAreSeen(t *testing.T) {
	d := newDirectory()
	for name, change := range map[string]func(){
		"state":   func() { d.SetState(0, Draining) },
		"window":  func() { d.SetWindow(0, 3) },
		"gone":    func() { d.Worker(0, 1).SetGone() },
		"process": func() { d.Worker(0, 1).SetProcess(7, 8) },
	} {
		before := d.Version()
		change()
		if d.Version() == before || d.Lane(0, 0).Version() == before {
			t.Errorf("%s: not seen", name)
		}
	}
}

// Epochs and windows are never given out twice.
func TestNumbersIncrease(t *testing.T) {
	d := newDirectory()
	for want := uint32(1); want <= 3; want++ {
		if got := d.NewEpoch(); got != want {
			t.Errorf("epoch %d, want %d", got, want)
		}
		if got := d.NewWindow(); got != want {
			t.Errorf("window %d, want %d", got, want)
		}
	}
}

// A slot that another process has damaged is read as something that exists.
func TestHostileSlot(t *testing.T) {
	d := newDirectory()
	s := d.slot(1)
	s.State.Store(99)
	s.Workers.Store(math.MaxUint32)
	s.Lanes.Store(math.MaxUint32)
	g := d.Generation(1)
	if g.Workers > MaxWorkers || g.Lanes > MaxLanes || g.State.Live() || g.State.String() != "unknown" {
		t.Errorf("generation %+v", g)
	}
	if d.Lists(1, MaxSockets) || d.Lists(1, math.MaxUint32) {
		t.Error("lists a socket that cannot be")
	}
}

func TestSlotOutsidePanics(t *testing.T) {
	d := newDirectory()
	for _, i := range []int{-1, MaxSlots} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("slot %d: no panic", i)
				}
			}()
			d.Generation(i)
		}()
	}
}

// A worker's words answer each other.
func TestWorkerWords(t *testing.T) {
	d := newDirectory()
	w := d.Worker(3, 63)
	w.SetGone()
	w.SetProcess(4242, 99)
	if w.PID() != 4242 || w.IsGone() {
		t.Errorf("a new process: pid %d, gone %v", w.PID(), w.IsGone())
	}
	w.SetReady(7, 4242)
	for _, c := range []struct {
		epoch uint32
		pid   int
		want  bool
	}{{7, 4242, true}, {6, 4242, false}, {7, 4243, false}, {8, 4242, false}} {
		if got := w.IsReady(c.epoch, c.pid); got != c.want {
			t.Errorf("ready as process %d of epoch %d: %v", c.pid, c.epoch, got)
		}
	}
	want := Report{Asked: w.AskDrain(), Flows: 1, IdleMs: 2, TCP: 3, HalfOpen: 4, Queries: 5, QUIC: 6, Unsent: 1 << 40}
	if want.Asked != 1 || w.DrainAsked() != 1 {
		t.Errorf("asked %d, seen %d", want.Asked, w.DrainAsked())
	}
	w.SetReport(want)
	want.Reports = 1
	if got := w.Report(); got != want {
		t.Errorf("report %+v, want %+v", got, want)
	}
	w.SetReleased(12)
	if w.Released() != 12 {
		t.Errorf("released %d", w.Released())
	}
	if w := d.Worker(3, 62); w.PID() != 0 || w.Report() != (Report{}) {
		t.Error("the worker before was written to")
	}
}

// A report is empty iff nothing of any kind is left.
func TestReportEmpty(t *testing.T) {
	if !(Report{Asked: 3, Reports: 2, IdleMs: 5}).Empty() {
		t.Error("a report of nothing is not empty")
	}
	for _, r := range []Report{{Flows: 1}, {TCP: 1}, {HalfOpen: 1}, {Queries: 1}, {QUIC: 1}, {Unsent: 1}} {
		if r.Empty() {
			t.Errorf("%+v is empty", r)
		}
	}
}

// Asks and answers of a lane.
func TestLaneWords(t *testing.T) {
	d := newDirectory()
	lane := d.Lane(1, 255)
	if d.Ask(1, 255) != 1 || d.Ask(1, 255) != 2 || lane.Asked() != 2 || d.Answer(1, 255) != 0 {
		t.Errorf("asked %d, answer %d", lane.Asked(), d.Answer(1, 255))
	}
	lane.SetAnswer(2)
	if d.Answer(1, 255) != 2 || d.Answer(1, 254) != 0 {
		t.Errorf("answers %d and %d", d.Answer(1, 255), d.Answer(1, 254))
	}
	// An ask is not forgotten with the slot's generation: the monitor counts on it.
	if err := d.Open(1, 9, 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	if d.Ask(1, 255) != 3 {
		t.Error("the ask word went back")
	}
}

// generation is what a slot holds in TestReader.
type generation struct {
	epoch uint32
	state State
	lists bool
}

// The reader of a socket is the newest live generation not above the word's epoch that
// lists it; if none does, the oldest live one that does.
func TestReader(t *testing.T) {
	const socket = 130
	fill := func(gens []generation) *Directory {
		d := newDirectory()
		for i, g := range gens {
			s := d.slot(i)
			s.Epoch.Store(g.epoch)
			s.State.Store(uint32(g.state))
			s.Sockets[0].Store(^uint64(0)) // others, listed by all
			if g.lists {
				s.Sockets[socket/64].Store(1 << (socket % 64))
			}
		}
		return d
	}
	const yes, no = true, false
	for name, c := range map[string]struct {
		gens  []generation
		epoch uint32
		want  int
	}{
		"nobody":                            {nil, 5, -1},
		"the owner":                         {[]generation{{5, Active, yes}}, 5, 0},
		"the owner among old ones":          {[]generation{{4, Draining, yes}, {5, Active, yes}, {3, Draining, yes}}, 5, 1},
		"not one that starts":               {[]generation{{4, Active, yes}, {5, Starting, yes}}, 5, 0},
		"not one that leaves":               {[]generation{{4, Leaving, yes}, {5, Active, no}}, 5, -1},
		"leaving, an older one waits":       {[]generation{{3, Draining, yes}, {4, Leaving, yes}, {5, Active, no}}, 5, -1},
		"left: an older one goes on":        {[]generation{{3, Draining, yes}, {4, Left, yes}, {5, Active, no}}, 5, 0},
		"not one that is gone":              {[]generation{{4, Free, yes}, {5, Active, no}}, 5, -1},
		"not one that does not list it":     {[]generation{{5, Active, no}}, 5, -1},
		"removed: stays with the newest":    {[]generation{{3, Draining, yes}, {4, Draining, yes}, {5, Active, no}}, 5, 1},
		"added back: the owner again":       {[]generation{{3, Draining, yes}, {4, Draining, no}, {5, Active, yes}}, 5, 2},
		"before the flip: the old one":      {[]generation{{4, Active, yes}, {5, Active, yes}}, 4, 0},
		"before the flip, added: the new":   {[]generation{{4, Active, no}, {5, Active, yes}}, 4, 1},
		"all above the word: the oldest":    {[]generation{{7, Draining, yes}, {6, Active, yes}, {4, Active, no}}, 5, 1},
		"one not above, older than others":  {[]generation{{7, Active, yes}, {3, Draining, yes}}, 5, 1},
		"taken back: the old owner's again": {[]generation{{4, Active, yes}, {5, Draining, yes}}, 4, 0},
	} {
		if got := fill(c.gens).Reader(c.epoch, socket); got != c.want {
			t.Errorf("%s: slot %d, want %d", name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		epochs := rapid.Permutation([]uint32{2, 3, 4, 5}).Draw(t, "epochs")
		gens := make([]generation, MaxSlots)
		for i := range gens {
			gens[i] = generation{epochs[i], State(rapid.IntRange(0, 5).Draw(t, "state")), rapid.Bool().Draw(t, "lists")}
		}
		epoch := rapid.Uint32Range(1, 6).Draw(t, "word")
		got := fill(gens).Reader(epoch, socket)

		var order []int // of those that may read it, by epoch
		for i, g := range gens {
			if g.lists && g.state.MayRead() {
				order = append(order, i)
			}
		}
		slices.SortFunc(order, func(a, b int) int { return int(gens[a].epoch) - int(gens[b].epoch) })
		want := -1
		for _, i := range order {
			if want < 0 || gens[i].epoch <= epoch {
				want = i
			}
		}
		if want >= 0 && gens[want].state == Leaving {
			want = -1
		}
		if got != want {
			t.Fatalf("slot %d, want %d", got, want)
		}
	})
}
