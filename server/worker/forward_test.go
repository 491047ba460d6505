package worker

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// In a window the flows of the old generation are answered by it, by the socket
// that was asked; new ones by the new generation. Both account for their part.
func TestForwarding(t *testing.T) {
	w := newWorld(t, 1, 1)
	one, two := w.listen(config.AffinityFlow, false), w.listen(config.AffinityFlow, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	old := []*client{w.client(one), w.client(two), w.client(one), w.client(two)} // connected: no other source will do
	for _, c := range old {
		if who := c.ask(); who != by(a) {
			t.Errorf("before: %s", who)
		}
	}
	b := w.open(3, a)
	b.run()
	w.handOver(a, b, true)
	fresh := w.client(two)
	for range 10 {
		for _, c := range old {
			if who := c.ask(); who != by(a) {
				t.Errorf("an old flow: %s", who)
			}
		}
		if who := fresh.ask(); who != by(b) {
			t.Errorf("a new flow: %s", who)
		}
	}
	a.end()
	b.end()
	text := uint64(len(by(a) + " config=test\n"))
	a.wantCounters(map[counters.ID]uint64{
		counters.Received: 4, counters.RxBytes: 16, counters.Served: 4, counters.Sent: 44, counters.TxBytes: 44 * text,
		counters.ForwardedFrom + 3: 40, counters.ServedRing: 40,
	})
	b.wantCounters(map[counters.ID]uint64{
		counters.Received: 50, counters.RxBytes: 200, counters.Served: 10, counters.Sent: 10, counters.TxBytes: 10 * text,
		counters.ForwardedTo + 0: 40,
	})
}

// A flow without affinity is answered by whoever reads.
func TestNoAffinity(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityNone, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	c := w.client(ap)
	c.ask()
	b := w.open(1, a)
	b.run()
	w.handOver(a, b, true)
	if who := c.ask(); who != by(b) {
		t.Errorf("answered by %s", who)
	}
	if alive, _ := w.tables[0].Scan(0, mono.Millis()); alive != 0 {
		t.Errorf("%d flows are recorded", alive)
	}
}

// After HANDED and a boundary of every lane that reads, the old worker empties its
// rings and says so; its flows are the reader's from then on.
func TestRelease(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	c := w.client(ap)
	c.ask()
	b := w.open(1, a)
	b.run()
	w.handOver(a, b, true)
	for range 5 {
		c.ask()
	}
	wid := w.dir.Generation(0).Window
	if w.dir.Worker(0, 0).Released() == wid {
		t.Fatal("released without having been asked")
	}
	w.hand(a, b)
	o := a.workers[0]
	o.rings.release.Store(wid)
	o.wakeLanes()
	until(t, "the rings are released", func() bool { return w.dir.Worker(0, 0).Released() == wid })
	if who := c.ask(); who != by(b) {
		t.Errorf("handed, and answered by %s", who)
	}
}

// hand makes g HANDED and waits until the lanes of the reader know.
func (w *world) hand(g, reader *generation) {
	w.t.Helper()
	for i := range w.workers {
		if err := w.tables[g.slot].SetHeader(i, table.Handed, w.dir.Generation(g.slot).Window); err != nil {
			w.t.Fatal(err)
		}
	}
	w.dir.Changed()
	reader.boundary()
}

// "Released" is never said over a record that was there when it was ordered,
// however the order and the lane's look at its rings fall together.
func TestReleasedMeansEmpty(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.listen(config.AffinityFlow, false)
	a := w.open(0)
	b := w.open(1, a)
	producer := b.outlets[0].Producer(0, 0)
	p := burst.Packet{Payload: []byte("who?"), Socket: 12345} // no such socket: it is counted, not sent
	o, view := a.workers[0], w.dir.Worker(0, 0)
	var lane sync.WaitGroup
	var done atomic.Bool
	lane.Go(func() {
		for l := o.lanes[0]; !done.Load(); {
			l.rings.serve(l)
		}
	})
	for wid := uint32(1); wid <= 500 && !t.Failed(); wid++ {
		if !producer.Push(&p, 0, 0) {
			t.Error("the ring is full")
		}
		producer.Publish()
		o.rings.release.Store(wid)
		for view.Released() != wid {
			runtime.Gosched()
		}
		if n := a.sum(counters.DroppedRing + counters.ID(counters.DropNoSocket)); n != uint64(wid) {
			t.Errorf("released %d times, when %d records had been taken out", wid, n)
		}
	}
	done.Store(true)
	lane.Wait()
}

// Siblings hand each other what is not theirs.
func TestSiblings(t *testing.T) {
	w := newWorld(t, 2, 1)
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(0)
	g.run()
	w.boot(g)
	owners := map[*client]string{}
	for range 20 {
		c := w.client(ap)
		owners[c] = c.ask()
	}
	// The lanes change places, as when the group of sockets changes its order.
	word := w.park(lease, g)
	for _, o := range g.workers {
		o.quit.Store(true)
		o.wakeLanes()
		o.laneEnd.Wait()
		o.quit.Store(false)
	}
	first, second := g.workers[0].lanes[0], g.workers[1].lanes[0]
	first.udp[0].UDP, second.udp[0].UDP = second.udp[0].UDP, first.udp[0].UDP
	g.run()
	if err := w.dir.Unpark(word); err != nil {
		t.Fatal(err)
	}
	w.wakeAll()
	for range 3 {
		for c, owner := range owners {
			if who := c.ask(); who != owner {
				t.Errorf("answered by %s, the flow is that of %s", who, owner)
			}
		}
	}
	g.end()
	if s, f, r := g.sum(counters.Sibling), g.sum(counters.FromSibling), g.sum(counters.ServedRing); s != 60 || f != 60 || r != 60 {
		t.Errorf("%d handed over, %d taken, %d answered; want 60", s, f, r)
	}
	if n := g.sum(counters.Received); n != 80 || g.sum(counters.Served) != 20 {
		t.Errorf("%d received, %d served at once", n, g.sum(counters.Served))
	}
}

// What a dead worker of the old generation has left in its rings is answered by
// the lane that put it there.
func TestTakesBackFromTheDead(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	c := w.client(ap)
	c.ask()
	b := w.open(1, a)
	b.run()
	w.handOver(a, b, true)
	c.ask()
	o := a.workers[0]
	o.quit.Store(true) // its lanes are gone, with the window open
	o.wakeLanes()
	o.laneEnd.Wait()
	for range 3 {
		c.send()
	}
	until(t, "the reader has forwarded", func() bool { return b.sum(counters.ForwardedTo) == 4 })
	c.silent()
	w.dir.Worker(0, 0).SetGone()
	w.wakeAll()
	for range 3 {
		if who := c.answer(); who != by(b) {
			t.Errorf("answered by %s", who)
		}
	}
	w.hand(a, b)
	if who := c.ask(); who != by(b) {
		t.Errorf("answered by %s", who)
	}
	a.end()
	b.end()
	if back, ring := b.sum(counters.TakenBack), b.sum(counters.ServedRing); back != 3 || ring != 3 {
		t.Errorf("%d taken back, %d served of them", back, ring)
	}
	if in := int64(b.sum(counters.Received)) - int64(b.sum(counters.Served)) - int64(b.sum(counters.ForwardedTo)); in != 0 {
		t.Errorf("%d in hand", in)
	}
}

// A record for a socket that this generation lacks is counted as such.
func TestRecordOfAnUnknownSocket(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.listen(config.AffinityFlow, false)
	a := w.open(0)
	b := w.open(1, a)
	a.run()
	w.boot(a)
	p := b.outlets[0].Producer(0, 0)
	for _, id := range []uint32{0, 1, 1, 1 << 31} { // only 0 exists, and it has no client to answer
		if !p.Push(&burst.Packet{Payload: []byte("who?"), Socket: id}, 0, 0) {
			t.Fatal("the ring is full")
		}
	}
	p.Publish()
	if p.NeedsWake() {
		a.wake()
	}
	a.wake()
	noSocket, send := counters.DroppedRing+counters.ID(counters.DropNoSocket), counters.DroppedRing+counters.ID(counters.DropSend)
	until(t, "all four are counted", func() bool {
		return a.sum(noSocket) == 3 && a.sum(send)+a.sum(counters.ServedRing) == 1
	})
}

// The ring of a generation that was given up is let go of when the next takes its
// slot.
func TestInboxIsReplaced(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	c := w.client(ap)
	c.ask()
	given := w.open(1, a)
	given.end()
	a.boundary()
	old := (*a.workers[0].rings.inboxes.Load())[0].region
	w.dir.SetState(1, directory.Free)
	b := w.open(1, a)
	b.run()
	w.handOver(a, b, true)
	for range 3 {
		if who := c.ask(); who != by(a) {
			t.Errorf("answered by %s", who)
		}
	}
	inboxes := *a.workers[0].rings.inboxes.Load()
	a.end()
	if len(inboxes) != 1 || inboxes[0].epoch != b.epoch || inboxes[0].region.Size() == 0 {
		t.Errorf("the old worker reads %d inboxes, the first of epoch %d", len(inboxes), inboxes[0].epoch)
	}
	if old.Size() != 0 {
		t.Error("the rings of the generation that was given up are still mapped")
	}
}

// Whatever order they come in, the rings of the newest generation are looked at
// first, and those of a slot are replaced.
func TestInboxOrder(t *testing.T) {
	r := new(ringReader)
	for _, in := range []inbox{{epoch: 5, slot: 1}, {epoch: 7, slot: 2}, {epoch: 6, slot: 3}, {epoch: 8, slot: 1}, {epoch: 4, slot: 0}} {
		r.add(in)
	}
	var epochs []uint32
	for _, in := range *r.inboxes.Load() {
		epochs = append(epochs, in.epoch)
	}
	if !slices.Equal(epochs, []uint32{8, 7, 6, 4}) {
		t.Errorf("epochs %v", epochs)
	}
}

func TestRingBytes(t *testing.T) {
	for _, c := range []struct{ lanes, workers, want int }{
		{1, 1, 1 << 20}, {8, 8, 1 << 20}, {16, 8, 512 << 10}, {256, 64, 256 << 10},
	} {
		if n := RingBytes(c.lanes, c.workers); n != c.want {
			t.Errorf("%d lanes, %d workers: %d octets, want %d", c.lanes, c.workers, n, c.want)
		}
	}
}
