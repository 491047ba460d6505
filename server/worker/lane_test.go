package worker

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
)

// A lane answers what comes by its socket, and accounts for it.
func TestLaneServes(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(2)
	g.run()
	w.boot(g)
	c := w.client(ap)
	for range 5 {
		if a := c.ask(); a != by(g) {
			t.Errorf("answer %q", a)
		}
	}
	g.end() // so that what is counted after the answer is
	text := uint64(len(by(g) + " config=test\n"))
	g.wantCounters(map[counters.ID]uint64{
		counters.Received: 5, counters.Served: 5, counters.Sent: 5, counters.RxBytes: 5 * 4, counters.TxBytes: 5 * text,
	})
	if n := g.sum(counters.Bursts); n == 0 || n > 5 {
		t.Errorf("%d bursts", n)
	}
	timed := uint64(0)
	for i := range counters.ID(counters.NumLatency + 1) {
		timed += g.sum(counters.Latency + i)
	}
	if timed != 5 {
		t.Errorf("the latency of %d answers is counted", timed)
	}
}

// What was queued before a lane began, or resumed, needs no event to be served.
func TestReadsWhatIsThereAlready(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityNone, false)
	g := w.open(0)
	c := w.client(ap)
	for range 200 {
		c.send()
	}
	g.run()
	w.boot(g)
	for range 200 {
		c.answer()
	}
	word := w.park(lease, g)
	for range 200 {
		c.send()
	}
	if err := w.dir.Unpark(word); err != nil {
		t.Fatal(err)
	}
	w.wakeAll()
	for range 200 {
		c.answer()
	}
}

// A parked lane acknowledges exactly the word it stopped for. What comes in
// meanwhile is served after the flip, by the new generation and by nobody else.
func TestParkAndFlip(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityNone, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	b := w.open(1)
	b.run()
	var clients []*client
	for range 20 { // both lanes have some
		clients = append(clients, w.client(ap))
	}
	for _, c := range clients {
		if e := epochOf(c.ask()); e != epoch(a) {
			t.Errorf("before: %s", e)
		}
	}
	served := a.sum(counters.Received)
	first := w.park(lease, a)
	if err := w.dir.Unpark(first); err != nil {
		t.Fatal(err)
	}
	w.wakeAll()
	clients[0].ask()
	second := w.park(2*lease, a) // whose acks are no other's
	if first == second {
		t.Fatal("two parks have one word")
	}
	for _, c := range clients {
		c.send()
	}
	w.dir.SetState(b.slot, directory.Active)
	w.dir.SetState(a.slot, directory.Draining)
	a.boundary() // still parked
	b.boundary()
	for _, c := range clients {
		c.silent()
	}
	if err := w.dir.Flip(second, b.epoch); err != nil {
		t.Fatal(err)
	}
	w.wakeAll()
	for _, c := range clients {
		if e := epochOf(c.answer()); e != epoch(b) {
			t.Errorf("after: %s", e)
		}
	}
	if n := a.sum(counters.Received); n != served+1 {
		t.Errorf("the old generation read %d datagrams after the park", n-served-1)
	}
	if w.dir.Gap() == 0 {
		t.Error("the gap is not known")
	}
}

// Where nobody flips, the lease gives the wire back, and a late flip fails.
func TestLapse(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.warnings = "the park lapsed"
	ap := w.listen(config.AffinityNone, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	b := w.open(1)
	b.run()
	c := w.client(ap)
	c.ask()
	word := w.park(directory.Lease, a)
	c.send()
	if who := epochOf(c.answer()); who != epoch(a) {
		t.Errorf("answered by %s", who)
	}
	if !word.Lapsed(mono.Millis()) {
		t.Error("answered before the lease was over")
	}
	if err := w.dir.Flip(word, b.epoch); !errors.Is(err, directory.ErrMoved) {
		t.Errorf("flipped after the lapse: %v", err)
	}
	if o := w.dir.Owner(); o != directory.Run(a.epoch) {
		t.Errorf("the owner word is %v", o)
	}
}

// A flip, and an unpark, that a parked lane comes upon are no lapses, at whatever
// instruction they happen.
func TestFlipIsNoLapse(t *testing.T) {
	for name, next := range map[string]uint32{"flip": 7, "unpark": 1} {
		w := newWorld(t, 1, 1) // whose log has no warnings
		w.listen(config.AffinityNone, false)
		g := w.open(0)
		w.boot(g)
		l := g.workers[0].lanes[0]
		l.boundary()
		word, err := w.dir.Park(mono.Millis() + uint32(lease/time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		l.boundary()
		if err := w.dir.Flip(word, next); err != nil {
			t.Fatal(err)
		}
		l.stayParked() // the lane had looked at the word just before
		if l.owner != directory.Run(next) {
			t.Errorf("%s: the lane obeys %v", name, l.owner)
		}
	}
}

// Lanes that have never read, and parked ones, notice a new word though nobody
// wakes them.
func TestNoticesWithoutWake(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityNone, false)
	a := w.open(0)
	a.run()
	a.boundary() // from here on nobody wakes it
	c := w.client(ap)
	c.send()
	w.dir.SetState(a.slot, directory.Active)
	w.dir.SetOwner(a.epoch)
	if who := c.answer(); who != by(a) {
		t.Errorf("the first generation: %s", who)
	}
	b := w.open(1)
	b.run()
	b.boundary()
	word, err := w.dir.Park(mono.Millis() + uint32(lease/time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	a.wake()
	w.acked(word, a)
	c.send()
	w.dir.SetState(b.slot, directory.Active)
	w.dir.SetState(a.slot, directory.Draining)
	if err := w.dir.Flip(word, b.epoch); err != nil {
		t.Fatal(err)
	}
	if who := c.answer(); who != by(b) {
		t.Errorf("the second generation: %s", who)
	}
}

// Lanes that have read once wait for events only: who is parked when the wire
// comes back to them wakes them, though the supervisor does not.
func TestParkedLanesWakeTheNewOwner(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityNone, false)
	a, b := w.open(0), w.open(1)
	a.run()
	b.run()
	w.boot(a)
	var clients []*client
	for range 20 {
		clients = append(clients, w.client(ap))
	}
	w.handOver(a, b, false)
	for _, c := range clients {
		if who := epochOf(c.ask()); who != epoch(b) {
			t.Errorf("after the flip: %s", who)
		}
	}
	<-time.After(4 * pollWaiting) // the last timers of the first generation run out
	word, err := w.dir.Park(mono.Millis() + uint32(lease/time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	b.wake()
	w.acked(word, b)
	for _, c := range clients {
		c.send()
	}
	w.dir.SetState(b.slot, directory.Leaving)
	if err := w.dir.Flip(word, a.epoch); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		if who := epochOf(c.answer()); who != epoch(a) {
			t.Errorf("after the flip back: %s", who)
		}
	}
}

// An idle lane answers when it is asked, whatever its state.
func TestAnswersWhenAsked(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.listen(config.AffinityNone, false)
	a, b := w.open(0), w.open(1)
	a.run()
	b.run()
	w.boot(a)
	a.boundary()
	b.boundary()
	w.park(lease, a)
	a.boundary()
	b.boundary()
}

// A socket that only one generation lists is read by it, before and after the
// wire changes hands.
func TestSocketsOfOneGeneration(t *testing.T) {
	w := newWorld(t, 1, 1)
	common := w.listen(config.AffinityNone, false)
	all := w.sockets
	removed := w.listen(config.AffinityNone, false)
	a := w.open(0)
	a.run()
	w.boot(a)
	w.sockets = all
	added := w.listen(config.AffinityNone, false)
	w.sockets[len(w.sockets)-1].ID = 77
	w.sockets[len(w.sockets)-1].Listener = 1
	w.listeners = append(w.listeners[:1], w.listeners[2])
	b := w.open(1)
	b.run()
	old, new, both := w.client(removed), w.client(added), w.client(common)
	if who := old.ask(); who != by(a) {
		t.Errorf("before: %s", who)
	}
	w.handOver(a, b, false)
	if who := both.ask(); who != by(b) {
		t.Errorf("the socket of both: %s", who)
	}
	if who := old.ask(); who != by(a) {
		t.Errorf("the removed socket: %s", who)
	}
	if who := new.ask(); who != by(b) {
		t.Errorf("the added socket: %s", who)
	}
	w.dir.SetState(a.slot, directory.Leaving)
	a.boundary()
	old.send()
	if who := both.ask(); who != by(b) {
		t.Errorf("the socket of both: %s", who)
	}
	old.silent()
}

// Whatever it waits for, an idle lane takes next to no CPU.
func TestIdleLanesSleep(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityFlow, true)
	a := w.open(0)
	a.run()
	w.boot(a)
	b := w.open(1, a)
	b.run()
	c := w.client(ap)
	c.ask()
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, state := range []struct {
		name string
		set  func()
	}{
		{"one owns the wire, one waits for it", func() {}},
		{"parked", func() { w.park(lease, a) }},
		{"flipped", func() {
			w.dir.SetState(b.slot, directory.Active)
			w.dir.SetState(a.slot, directory.Draining)
			if err := w.dir.Flip(w.dir.Owner(), b.epoch); err != nil {
				t.Fatal(err)
			}
			w.wakeAll()
			c.ask()
		}},
	} {
		state.set()
		before := spent()
		const span = 200 * time.Millisecond
		<-time.After(span)
		if took := spent() - before; took > span/2 {
			t.Errorf("%s: %v of CPU in %v", state.name, took, span)
		}
	}
}

// A lane serves what is queued when it is told to stop, and nothing after.
func TestStopServesTheQueue(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(0)
	w.boot(g)
	var clients []*client
	for range 10 {
		clients = append(clients, w.client(ap))
	}
	for range 50 {
		for _, c := range clients {
			c.send()
		}
	}
	g.workers[0].stopping.Store(true)
	g.run()
	for range 50 {
		for _, c := range clients {
			c.answer()
		}
	}
	until(t, "all lanes have stopped", func() bool { return int(g.workers[0].stopped.Load()) == 2 })
	for _, c := range clients {
		c.send()
	}
	g.boundary()
	for _, c := range clients {
		c.silent()
	}
	if n := g.sum(counters.Received); n != 500 {
		t.Errorf("%d were read", n)
	}
}

// An error of a socket does not end its lane, nor its other sockets.
func TestSocketErrors(t *testing.T) {
	w := newWorld(t, 1, 1)
	bad, good := w.listen(config.AffinityNone, false), w.listen(config.AffinityNone, false)
	g := w.open(0)
	g.run()
	w.boot(g)
	w.client(bad).ask()
	if err := unix.Connect(w.sockets[0].FD, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}); err != nil { // nobody is there
		t.Fatal(err)
	}
	if _, err := unix.Write(w.sockets[0].FD, []byte("x")); err != nil { // the ICMP error comes back to the lane
		t.Fatal(err)
	}
	c := w.client(good)
	for range 100 {
		if who := c.ask(); who != by(g) {
			t.Errorf("the good socket: %s", who)
		}
	}
}
