package dispatch

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

const ringFull = counters.Dropped + counters.ID(counters.DropRingFull)

// want checks names, given as "1#0 2#1".
func want(t *testing.T, what string, got []string, names string) {
	t.Helper()
	if g := strings.Join(got, " "); g != names {
		t.Errorf("%s: %q, want %q", what, g, names)
	}
}

func wantCounters(t *testing.T, got map[counters.ID]uint64, want map[counters.ID]uint64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Outside a window everything is served, and recorded for the next.
func TestServesAndRecords(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	l := w.lane(0, 1)
	b := w.burst(1, 2, 1)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{})
	want(t, "served", kept(b), "1#0 2#1 1#2")
	for _, i := range []int{1, 2} {
		if o := w.owner(0, i); o != 1 {
			t.Errorf("flow %d is of worker %d", i, o)
		}
	}
	w.now += idle - time.Millisecond
	l.Split(w.burst(1))
	w.now += 2 * time.Millisecond
	if w.owner(0, 1) != 1 || w.owner(0, 2) != -1 {
		t.Errorf("refreshed %d, not refreshed %d", w.owner(0, 1), w.owner(0, 2))
	}
}

// What belongs to a sibling goes to its ring, in order, and keeps the flow alive
// as the sibling's.
func TestSibling(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	l := w.lane(0, 0, 0)
	w.own(0, 1, 10)
	w.own(0, 2, 20)
	w.own(0, 0, 30)
	w.now += idle - time.Millisecond
	b := w.burst(10, 30, 20, 10, 40)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{counters.Sibling: 3})
	want(t, "served", kept(b), "30#1 40#4")
	want(t, "ring of worker 1", l.got(0, 1), "10#0 10#3")
	want(t, "ring of worker 2", l.got(0, 2), "20#2")
	w.now += 2 * time.Millisecond
	for i, owner := range map[int]int{10: 1, 20: 2, 30: 0, 40: 0} {
		if o := w.owner(0, i); o != owner {
			t.Errorf("flow %d is of worker %d", i, o)
		}
	}
}

// A dead sibling's flow is served here, and is this worker's from then on, also
// when the sibling is back.
func TestDeadSiblingIsAdopted(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	l := w.lane(0, 0, 0)
	w.own(0, 1, 10)
	w.own(0, 2, 20)
	w.dir.Worker(0, 1).SetGone()
	l.Look(w.dir)
	b := w.burst(10, 20)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{counters.Sibling: 1})
	want(t, "served", kept(b), "10#0")
	want(t, "ring of the dead", l.got(0, 1), "")
	if o := w.owner(0, 10); o != 0 {
		t.Errorf("flow of the dead is of worker %d", o)
	}
	version := w.dir.Version()
	w.dir.Worker(0, 1).SetProcess(4711, 1)
	if w.dir.Version() == version {
		t.Error("no lane looks again when it is back")
	}
	l.Look(w.dir)
	w.own(0, 1, 11)
	b = w.burst(10, 11)
	l.Split(b)
	want(t, "served when it is back", kept(b), "10#0")
	want(t, "ring of the one that is back", l.got(0, 1), "11#1")
}

// Without rings to its siblings a lane keeps their datagrams rather than lose
// them.
func TestSiblingWithoutRing(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	l := w.lane(0, 0)
	w.own(0, 2, 20)
	b := w.burst(20)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{})
	want(t, "served", kept(b), "20#0")
	if o := w.owner(0, 20); o != 0 {
		t.Errorf("the flow is of worker %d", o)
	}
}

// A flow that is alive at a draining generation goes to its worker there; it is
// kept alive there, and not recorded here.
func TestForward(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	for worker := range workers {
		w.own(0, worker, 100+worker)
	}
	w.open(2)
	w.drain(0)
	l := w.lane(2, 1, 0)
	w.now += idle - time.Millisecond
	b := w.burst(100, 7, 101, 102, 100)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{counters.ForwardedTo + 0: 4})
	want(t, "served", kept(b), "7#1")
	want(t, "ring of 0/0", l.got(0, 0), "100#0 100#4")
	want(t, "ring of 0/1", l.got(0, 1), "101#2")
	want(t, "ring of 0/2", l.got(0, 2), "102#3")
	w.now += 2 * time.Millisecond
	for worker := range workers {
		if there, here := w.owner(0, 100+worker), w.owner(2, 100+worker); there != worker || here != -1 {
			t.Errorf("flow %d: worker %d there, %d here", 100+worker, there, here)
		}
	}
	if w.owner(2, 7) != 1 {
		t.Error("the new flow is not recorded")
	}
	// Once it has aged there it is a new flow here, for good.
	w.now += idle + time.Millisecond
	l.Split(w.burst(100))
	w.tables[0].Record(hashOf(100), 0, w.millis())
	b = w.burst(100)
	l.Split(b)
	want(t, "served after it had aged", kept(b), "100#0")
}

// Of several draining generations that know a flow the newest serves it, whatever
// the order of their slots.
func TestNewestDrainFirst(t *testing.T) {
	for _, slots := range [][3]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 3}, {1, 3, 0}, {3, 0, 1}} {
		w := newWorld(t)
		for _, slot := range slots {
			w.open(slot)
			w.own(slot, 1, 50)
			w.drain(slot)
		}
		w.own(slots[0], 2, 51)
		w.own(slots[1], 2, 51)
		w.own(slots[0], 0, 52)
		rx := 6 - slots[0] - slots[1] - slots[2]
		w.open(rx)
		l := w.lane(rx, 0, slots[0], slots[1], slots[2])
		b := w.burst(50, 51, 52, 53)
		delta := l.counted(func() { l.Split(b) })
		wantCounters(t, delta, map[counters.ID]uint64{
			counters.ForwardedTo + counters.ID(slots[0]): 1, counters.ForwardedTo + counters.ID(slots[1]): 1,
			counters.ForwardedTo + counters.ID(slots[2]): 1,
		})
		want(t, "served", kept(b), "53#3")
		want(t, "newest", l.got(slots[2], 1), "50#0")
		want(t, "middle", l.got(slots[1], 2), "51#1")
		want(t, "oldest", l.got(slots[0], 0), "52#2")
	}
}

// Only a worker that publishes in the window that its slot names gets anything;
// a flow of any other is the next one's to serve, or new.
func TestOnlyPublishingWorkersAreForwardedTo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, wid uint32)
		look   bool
		want   string // in the burst of flows of 0/0 and 0/1
	}{
		"publishing":     {func(*world, uint32) {}, false, ""},
		"handed":         {func(w *world, wid uint32) { w.header(0, 1, table.Handed, wid) }, false, "101#1"},
		"taken back":     {func(w *world, wid uint32) { w.header(0, 1, table.None, 0) }, false, "101#1"},
		"a later window": {func(w *world, _ uint32) { w.dir.SetWindow(0, w.dir.NewWindow()) }, true, "100#0 101#1"},
		"window closed":  {func(w *world, _ uint32) { w.dir.SetWindow(0, 0) }, true, "100#0 101#1"},
		"not seen yet":   {func(w *world, _ uint32) { w.dir.SetWindow(0, 0) }, false, ""},
		"slot freed":     {func(w *world, _ uint32) { w.dir.SetState(0, 0) }, true, "100#0 101#1"},
		"no such worker": {func(w *world, wid uint32) { // a damaged table
			w.tables[0].Adopt(hashOf(101), 1, 40, w.millis())
			w.header(0, 40, table.Publishing, wid)
		}, false, "101#1"},
		"dead, published": {func(w *world, _ uint32) { w.dir.Worker(0, 1).SetGone() }, true, ""}, // until it is HANDED; then it is taken back
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.open(0)
			w.own(0, 0, 100)
			w.own(0, 1, 101)
			w.open(1)
			wid := w.drain(0)
			l := w.lane(1, 0, 0)
			c.change(w, wid)
			if c.look {
				l.Look(w.dir)
			}
			b := w.burst(100, 101)
			l.Split(b)
			want(t, "served", kept(b), c.want)
		})
	}
}

// What this generation serves already is not forwarded, though an older one knows
// it too.
func TestOwnFlowsComeFirst(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	for i := range 3 {
		w.own(0, 0, i)
	}
	w.open(1)
	w.drain(0)
	l := w.lane(1, 0, 0, 1)
	w.own(1, 0, 0)
	w.own(1, 2, 1)
	b := w.burst(0, 1, 2)
	delta := l.counted(func() { l.Split(b) })
	wantCounters(t, delta, map[counters.ID]uint64{counters.Sibling: 1, counters.ForwardedTo: 1})
	want(t, "served", kept(b), "0#0")
	want(t, "the sibling's", l.got(1, 2), "1#1")
	want(t, "the old one's", l.got(0, 0), "2#2")
}

// A generation that the reader has nothing of gets nothing.
func TestWhoIsNotForwardedTo(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.own(0, 0, 5)
	w.drain(0)
	w.open(1)
	l := w.lane(1, 0)
	b := w.burst(5)
	l.Split(b)
	want(t, "served", kept(b), "5#0")
}

// A full ring drops, by reason, and neither keeps the flow alive nor blocks; when
// there is room again it goes on.
func TestFullRingDrops(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.own(0, 0, 1)
	w.own(0, 1, 2)
	w.open(1)
	w.drain(0)
	w.own(1, 2, 3)
	l := w.lane(1, 0, 0, 1)
	big := make([]byte, 20<<10)
	fill := func(p *ring.Producer) (n int) {
		for p.Push(&burst.Packet{Payload: big}, 0, 0) || p.Push(&burst.Packet{}, 0, 0) {
			n++
		}
		p.Publish()
		return n
	}
	fill(l.outlets[0][0])
	fill(l.outlets[1][2])
	w.now += idle - time.Millisecond
	b := w.burst(1, 2, 3, 4)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{ringFull: 2, counters.ForwardedTo: 1})
	want(t, "served", kept(b), "4#3")
	if len(l.wakes) != 0 {
		t.Errorf("woken: %v", l.wakes)
	}
	w.now += 2 * time.Millisecond
	if w.owner(0, 1) != -1 || w.owner(0, 2) != 1 || w.owner(1, 3) != -1 {
		t.Errorf("alive: dropped %d and %d, forwarded %d", w.owner(0, 1), w.owner(1, 3), w.owner(0, 2))
	}
	c := l.rings[0].Consumer(0, 0)
	var p burst.Packet
	var m ring.Meta
	for tail := c.Tail(); c.Next(tail, &p, &m); {
	}
	c.Release()
	w.own(0, 0, 1)
	b = w.burst(1)
	l.Split(b)
	want(t, "after room was made", l.got(0, 0), "1#0")
}

// A table without room costs nobody an answer.
func TestFullTable(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	l := w.lane(0, 0)
	for i := range uint64(1024) {
		for range 2 {
			w.tables[0].Record((i+1)<<32|i, 2, w.millis())
		}
	}
	b := w.burst(1, 2)
	wantCounters(t, l.counted(func() { l.Split(b) }), map[counters.ID]uint64{counters.NotRecorded: 2})
	want(t, "served", kept(b), "1#0 2#1")
}

// Consumers see nothing before the burst is through, everything then, and are
// woken once if they sleep.
func TestWake(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.own(0, 0, 1)
	w.own(0, 2, 2)
	w.open(1)
	w.drain(0)
	w.own(1, 1, 3)
	l := w.lane(1, 0, 0, 1)
	asleep := []*ring.Inbox{l.rings[0].Inbox(0), l.rings[0].Inbox(2), l.rings[1].Inbox(1)}
	l.Split(w.burst(1, 2, 3))
	if len(l.wakes) != 0 {
		t.Errorf("woken without having slept: %v", l.wakes)
	}
	l.got(0, 0)
	l.got(0, 2)
	l.got(1, 1)
	for i := range asleep {
		in := [...]*ring.Inbox{l.rings[0].Inbox(0), l.rings[0].Inbox(2), l.rings[1].Inbox(1)}[i]
		if !in.PrepareSleep() {
			t.Fatal("may not sleep")
		}
	}
	l.Split(w.burst(1, 4, 2, 1, 3, 2))
	slices.Sort(l.wakes)
	want(t, "woken", l.wakes, "0/0 0/2 1/1")
	want(t, "0/0", l.got(0, 0), "1#0 1#3")
	want(t, "0/2", l.got(0, 2), "2#2 2#5")
	want(t, "1/1", l.got(1, 1), "3#4")
}

// What a draining worker has died over falls to the lane that put it there, once,
// with what comes before its header says so.
func TestTakenBack(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.own(0, 0, 1)
	w.own(0, 1, 2)
	w.open(1)
	wid := w.drain(0)
	w.own(1, 1, 3)
	l := w.lane(1, 0, 0, 1)
	l.Split(w.burst(1, 2, 2, 3))
	first := l.rings[0].Consumer(0, 1)
	var p burst.Packet
	var m ring.Meta
	first.Next(first.Tail(), &p, &m) // it had one in hand when it died, and never released it
	if back := l.TakenBack(); len(back) != 0 {
		t.Errorf("%d rings of the living", len(back))
	}
	taken := func() (names []string) {
		l.Look(w.dir)
		d := ring.NewDrainer(l.TakenBack())
		var b burst.Burst
		var from [burst.Max]ring.Source
		for d.Fill(&b, &from) > 0 {
			names = append(names, kept(&b)...)
			d.Release()
		}
		return names
	}
	w.dir.Worker(0, 1).SetGone()
	w.dir.Worker(1, 1).SetGone() // a sibling, which is started again: its ring waits for it
	want(t, "taken back", taken(), "2#1 2#2")
	l.Split(w.burst(2))
	w.header(0, 1, table.Handed, wid)
	w.dir.Changed()
	want(t, "put there after its death", taken(), "2#0")
	want(t, "again", taken(), "")
	b := w.burst(2)
	l.Split(b)
	want(t, "served when it was handed", kept(b), "2#0")
	want(t, "the living's", l.got(0, 0), "1#0")
	want(t, "the sibling's", l.got(1, 1), "3#3")
}

// A generation that is gone is forgotten for good: nothing of its memory is used
// any more, whoever has its slot next.
func TestForget(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.own(0, 0, 1)
	w.open(1)
	w.own(1, 0, 2)
	w.drain(0)
	w.drain(1)
	w.open(2)
	l := w.lane(2, 0, 0, 1)
	l.Split(w.burst(1))
	w.dir.Worker(0, 0).SetGone()
	l.Look(w.dir)
	if len(l.TakenBack()) != 1 {
		t.Fatal("nothing to take back")
	}
	l.Forget(0)
	if len(l.TakenBack()) != 0 {
		t.Error("the rings of the forgotten are still offered")
	}
	b := w.burst(1, 2)
	l.Split(b)
	want(t, "served before the next look", kept(b), "1#0 2#1")
	l.Look(w.dir)
	w.own(1, 0, 3)
	b = w.burst(4, 3)
	l.Split(b)
	want(t, "served after it", kept(b), "4#0")
	want(t, "the other generation's", l.got(1, 0), "3#1")
	if len(l.TakenBack()) != 0 {
		t.Error("taken back from the forgotten")
	}
}

// Whatever comes, each datagram is in one place, in order, and is counted as what
// became of it.
func TestLedger(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t)
	const known = 10 // flows of each owner
	w.open(0)
	for i := range workers * known {
		w.own(0, i/known, i)
	}
	w.open(1)
	for i := range workers * known {
		w.own(1, i/known, 100+i)
	}
	w.drain(0)
	w.open(2)
	w.drain(1)
	for i := range workers * known {
		w.own(2, i/known, 200+i)
	}
	l := w.lane(2, 0, 0, 1, 2)
	model := map[string][]string{}
	wanted := map[counters.ID]uint64{}
	received, served := uint64(0), uint64(0)
	place := func(client int) string {
		switch {
		case client >= 300 || client < 200+known && client >= 200:
			return ""
		case client >= 200:
			wanted[counters.Sibling]++
		default:
			wanted[counters.ForwardedTo+counters.ID(client/100)]++
		}
		return string(rune('0'+client/100)) + "/" + string(rune('0'+client%100/known))
	}
	delta := l.counted(func() {
		for range 300 {
			w.now += time.Millisecond
			var clients []int
			for range rnd.IntN(burst.Max + 1) {
				clients = append(clients, rnd.IntN(4)*100+rnd.IntN(workers*known))
			}
			b := w.burst(clients...)
			var here []string
			for n, c := range clients {
				p := &b.Packets[n]
				if at := place(c); at != "" {
					model[at] = append(model[at], name(p))
				} else {
					here = append(here, name(p))
				}
			}
			received += uint64(b.N)
			l.Split(b)
			served += uint64(b.N)
			if !slices.Equal(kept(b), here) {
				t.Fatalf("served %v, want %v", kept(b), here)
			}
			replies := map[int]bool{} // each datagram has kept a reply of its own
			for i := range b.Packets[:len(clients)] {
				replies[cap(b.Packets[i].Reply)] = true
			}
			if len(replies) != len(clients) {
				t.Fatalf("%d replies for %d datagrams", len(replies), len(clients))
			}
			for slot := range 3 {
				for worker := range workers {
					at := string(rune('0'+slot)) + "/" + string(rune('0'+worker))
					if got := l.got(slot, worker); !slices.Equal(got, model[at]) {
						t.Fatalf("ring %s: %v, want %v", at, got, model[at])
					}
					model[at] = nil
				}
			}
		}
	})
	wantCounters(t, delta, wanted)
	sum := served + delta[counters.Sibling] + delta[counters.ForwardedTo] + delta[counters.ForwardedTo+1]
	if sum != received {
		t.Errorf("%d received, %d accounted for", received, sum)
	}
}

// A newer generation that has had to give the wire back keeps its flows: they are
// forwarded to it, by whoever has the wire again. While it has the wire itself, or
// is still to get it, it is left alone; so is whoever has its slot next.
func TestNewerGeneration(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.open(1)
	w.own(1, 1, 1)
	l := w.lane(0, 0, 0, 1)
	w.drain(0)
	here := func(what string, clients ...int) {
		t.Helper()
		b := w.burst(clients...)
		n := b.N
		l.Look(w.dir)
		l.Split(b)
		if b.N != n {
			t.Errorf("%s: %d of %d served here", what, b.N, n)
		}
	}
	here("it owns the wire", 1)
	w.drain(1)
	w.own(1, 0, 2)
	for _, st := range []directory.State{directory.Starting, directory.Active} {
		w.dir.SetState(1, st)
		here(st.String(), 3)
	}
	w.dir.SetState(0, directory.Active)
	w.dir.SetState(1, directory.Draining)
	l.Look(w.dir)
	b := w.burst(2, 4)
	l.Split(b)
	want(t, "served by the owner of the wire", kept(b), "4#1")
	want(t, "its own", l.got(1, 0), "2#0")
	w.header(1, 0, table.Handed, w.dir.Generation(1).Window)
	here("handed", 2)

	w.own(1, 0, 5)
	w.header(1, 0, table.None, w.dir.Generation(1).Window)
	w.dir.SetState(1, directory.Free)
	w.open(1)
	w.own(1, 0, 6)
	w.drain(1)
	here("another generation in its slot", 6)
}

// Whose a flow is can be asked without serving anything: of this worker, a sibling, a
// draining generation, or nobody.
func TestOwner(t *testing.T) {
	w := newWorld(t)
	w.open(0)
	w.own(0, 1, 100)
	w.open(2)
	wid := w.drain(0)
	l := w.lane(2, 1, 0)
	w.own(2, 1, 1)
	w.own(2, 0, 2)
	for _, c := range []struct {
		flow, slot, worker int
		known              bool
	}{{1, 2, 1, true}, {2, 2, 0, true}, {100, 0, 1, true}, {7, 0, 0, false}} {
		b := w.burst(c.flow)
		p := &b.Packets[0]
		if slot, worker, known := l.Owner(&p.Local, &p.Remote, b.Now); slot != c.slot || worker != c.worker || known != c.known {
			t.Errorf("flow %d: worker %d of slot %d, %v; want %+v", c.flow, worker, slot, known, c)
		}
	}
	if w.owner(2, 7) != -1 {
		t.Error("asking has recorded a flow")
	}
	w.header(0, 1, table.Handed, wid)
	b := w.burst(100)
	if slot, worker, known := l.Owner(&b.Packets[0].Local, &b.Packets[0].Remote, b.Now); known {
		t.Errorf("a flow that was handed over is of worker %d of slot %d", worker, slot)
	}
}
