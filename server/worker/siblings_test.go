package worker

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
)

// die ends the lanes of a worker as the end of its process would, and tells the
// directory.
func (g *generation) die(i int) {
	g.w.t.Helper()
	o := g.workers[i]
	o.quit.Store(true)
	o.wakeLanes()
	o.laneEnd.Wait()
	o.streams.Close()
	for _, l := range o.lanes {
		if err := l.poller.Close(); err != nil {
			g.w.t.Error(err)
		}
		if err := l.batch.Close(); err != nil {
			g.w.t.Error(err)
		}
	}
	for _, s := range o.m.Sockets {
		unix.Close(s.FD)
	}
	v := g.w.dir.Worker(g.slot, i)
	v.SetGone()
	v.Orphan(1 << i)
	g.wake()
}

// again starts a worker that has died.
func (g *generation) again(i int) {
	g.w.t.Helper()
	o := g.w.worker(g, i)
	for slot, other := range g.w.gens {
		if other == nil || other.outlets[g.slot] == nil {
			continue
		}
		o.rings.add(inbox{Inbox: other.outlets[g.slot].Inbox(i), epoch: other.epoch, slot: slot})
	}
	if err := o.makeLanesWith(g.w.blocks, g.outlets[g.slot]); err != nil {
		g.w.t.Fatal(err)
	}
	g.workers[i] = o
	for _, l := range o.lanes {
		o.laneEnd.Go(func() {
			if err := l.run(); err != nil {
				g.w.t.Errorf("lane %d: %v", l.global, err)
			}
		})
	}
}

// A sibling reads the sockets of a dead worker, by the lanes with the same numbers,
// and serves its flows from then on; the worker gets its sockets back when it is
// there again, and new flows with them. Everything is answered and counted, in a
// second round as in the first.
func TestSiblingStandsIn(t *testing.T) {
	w := newWorld(t, 3, 2)
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(0)
	g.run()
	w.boot(g)
	const dead, sibling = 0, 2
	of := func(who string, worker int) bool {
		return strings.HasPrefix(who, fmt.Sprintf("epoch=%d worker=%d ", g.epoch, worker))
	}
	sent := uint64(0)
	for round := range 2 {
		var its, others []*client
		for range 60 {
			c := w.client(ap)
			if of(c.ask(), dead) {
				its = append(its, c)
			} else {
				others = append(others, c)
			}
		}
		if len(its) == 0 || len(others) == 0 {
			t.Fatalf("%d flows of the worker, %d of others", len(its), len(others))
		}
		g.die(dead)
		for _, c := range its {
			c.send()
		}
		if !w.dir.Worker(0, dead).StandIn(sibling) {
			t.Fatal("the worker is not orphaned")
		}
		g.wake()
		for _, c := range its {
			if who := c.answer(); !of(who, sibling) {
				t.Errorf("round %d: its flow is served by %s", round, who)
			}
		}
		g.again(dead)
		until(t, "the worker reads again", func() bool { return w.dir.Worker(0, dead).Reader(dead) == dead })
		for _, c := range its {
			if who := c.ask(); !of(who, sibling) {
				t.Errorf("round %d: a flow that was taken over is served by %s", round, who)
			}
		}
		for _, c := range others {
			if who := c.ask(); of(who, dead) {
				t.Errorf("round %d: another's flow is served by %s", round, who)
			}
		}
		sent += 60 + uint64(2*len(its)+len(others))
		fresh := 0
		for range 60 {
			if of(w.client(ap).ask(), dead) {
				fresh++
			}
		}
		sent += 60
		if fresh == 0 {
			t.Errorf("round %d: the worker that is back gets no new flow", round)
		}
	}
	g.end()
	for _, id := range []counters.ID{counters.Received, counters.Sent} {
		if n := g.sum(id); n != sent {
			t.Errorf("counter %d is %d, %d were sent", id, n, sent)
		}
	}
	if n := g.sum(counters.Served) + g.sum(counters.Sibling); n != sent || g.sum(counters.FromSibling) != g.sum(counters.ServedRing) {
		t.Errorf("served and given to siblings: %d of %d; %d of %d from siblings served", n, sent, g.sum(counters.ServedRing), g.sum(counters.FromSibling))
	}
}
