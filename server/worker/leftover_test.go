package worker

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
)

// A lane that comes to look only when its generation has begun to leave, or has
// left, because it was parked all the time and then had no processor, still
// serves what has waited in the sockets that nobody reads after it. Those that
// somebody else reads it leaves alone.
func TestLateLaneServesLeftovers(t *testing.T) {
	for _, state := range []directory.State{directory.Leaving, directory.Left} {
		w := newWorld(t, 1, 1)
		common := w.listen(config.AffinityNone, false)
		kept := w.sockets
		removed := w.listen(config.AffinityNone, false)
		a := w.open(0)
		a.run()
		w.boot(a)
		w.sockets, w.listeners = kept, w.listeners[:1]
		b := w.open(1)
		b.run()
		old, both := w.client(removed), w.client(common)
		if who := old.ask(); who != by(a) {
			t.Errorf("before: %s", who)
		}
		word := w.park(lease, a)
		old.send()
		both.send()
		w.dir.SetState(b.slot, directory.Active)
		w.dir.SetState(a.slot, state)
		if err := w.dir.Flip(word, b.epoch); err != nil {
			t.Fatal(err)
		}
		w.wakeAll()
		if who := old.answer(); who != by(a) {
			t.Errorf("%v: what was left is served by %s", state, who)
		}
		if who := both.answer(); who != by(b) {
			t.Errorf("%v: the socket of both is read by %s", state, who)
		}
		a.boundary()
		old.send()
		a.boundary()
		old.silent()
	}
}

// What a dead worker of a leaving generation leaves is served by the sibling that
// is told to.
func TestSiblingServesLeftovers(t *testing.T) {
	w := newWorld(t, 2, 1)
	ap := w.listen(config.AffinityNone, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	var clients []*client
	for range 20 { // both workers have some
		clients = append(clients, w.client(ap))
	}
	word := w.park(lease, a)
	a.die(1)
	for _, c := range clients {
		c.send()
	}
	w.sockets = nil
	b := w.open(1)
	b.run()
	w.dir.SetState(b.slot, directory.Active)
	w.dir.SetState(a.slot, directory.Left)
	if err := w.dir.Flip(word, b.epoch); err != nil {
		t.Fatal(err)
	}
	w.wakeAll()
	if !w.dir.Worker(a.slot, 1).StandIn(0) {
		t.Fatal("the worker is not orphaned")
	}
	w.wakeAll()
	for _, c := range clients {
		if who := epochOf(c.answer()); who != epoch(a) {
			t.Errorf("answered by %s", who)
		}
	}
	until(t, "the sibling has joined", func() bool {
		sibling, lanes := w.dir.Worker(a.slot, 1).Joined()
		return sibling == 0 && lanes == 1
	})
	a.again(1)
}

// So does a lane that hears of the hand-over and of its end at once.
func TestEndingLaneServesLeftovers(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityNone, false)
	a := w.open(0)
	w.boot(a)
	l := a.workers[0].lanes[0]
	l.boundary()
	c := w.client(ap)
	word := w.park(lease)
	l.boundary()
	c.send()
	w.sockets, w.listeners = nil, nil
	b := w.open(1)
	w.dir.SetState(b.slot, directory.Active)
	w.dir.SetState(a.slot, directory.Left)
	if err := w.dir.Flip(word, b.epoch); err != nil {
		t.Fatal(err)
	}
	l.worker.quit.Store(true)
	if !l.turn() {
		t.Error("it does not end")
	}
	if who := c.answer(); who != by(a) {
		t.Errorf("what was left is served by %s", who)
	}
}
