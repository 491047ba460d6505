package netio

import (
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newWake(t *testing.T) int {
	t.Helper()
	fd, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ready returns the tokens that are ready now.
func (p *Poller) ready() (tokens []int32) {
	for p.Ready(func(token int32) { tokens = append(tokens, token) }) {
	}
	slices.Sort(tokens)
	return tokens
}

func check(t *testing.T, what string, got []int32, want ...int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: ready are %v, want %v", what, got, want)
	}
}

// run runs p in a goroutine and returns what Run returns.
func run(p *Poller, turn func() bool) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.Run(turn) }()
	return done
}

func receive[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: nothing after %v", what, patience)
	}
	return v
}

// An event is told once, when it happens; what is there at Add is one.
func TestEdges(t *testing.T) {
	p := newPoller(t)
	fd := newWake(t)
	check(t, "nothing is watched", p.ready())
	Wake(fd)
	if err := p.Add(fd, 5); err != nil {
		t.Fatal(err)
	}
	check(t, "readable at Add", p.ready(), 5)
	check(t, "still readable", p.ready())
	Wake(fd)
	Wake(fd)
	check(t, "two more", p.ready(), 5)
	check(t, "told already", p.ready())
	if err := p.Remove(fd); err != nil {
		t.Fatal(err)
	}
	Wake(fd)
	check(t, "removed", p.ready())
	if err := p.Add(fd, 6); err != nil {
		t.Fatal(err)
	}
	check(t, "readable when it was added again", p.ready(), 6)
	if err := p.Add(fd, 7); err == nil {
		t.Error("added twice")
	}
	if err := p.Remove(fd); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(fd); err == nil {
		t.Error("removed twice")
	}
	if err := p.Add(-1, 8); err == nil {
		t.Error("watches descriptor -1")
	}
}

// A datagram raises an event while the one before is still queued.
func TestEveryDatagramIsAnEdge(t *testing.T) {
	p := newPoller(t)
	u, ap := listen(t, "127.0.0.1")
	c := client(t, "127.0.0.1")
	if err := p.Add(u.FD, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		send(t, c, ap, []byte("x"))
		check(t, "a datagram came", p.ready(), 0)
		check(t, "no other came", p.ready())
	}
}

// More events than fit into one look come with the next.
func TestManyEvents(t *testing.T) {
	p := newPoller(t)
	n := len(p.events) + 7
	for i := range n {
		fd := newWake(t)
		if err := p.Add(fd, int32(i)); err != nil {
			t.Fatal(err)
		}
		Wake(fd)
	}
	seen := make(map[int32]bool)
	note := func(token int32) { seen[token] = true }
	if !p.Ready(note) || len(seen) != len(p.events) {
		t.Errorf("the first look saw %d", len(seen))
	}
	if p.Ready(note) || len(seen) != n {
		t.Errorf("both looks saw %d of %d", len(seen), n)
	}
}

// Every connection wakes somebody who waits for it exclusively.
func TestExclusive(t *testing.T) {
	const lanes, conns = 3, 50
	fd, ap := bindTCP(t, "127.0.0.1")
	accepted := make(chan int, conns)
	stop := newWake(t)
	var ended []<-chan error
	stopping := make(chan struct{})
	for range lanes {
		p := newPoller(t)
		if err := p.AddExclusive(fd, 0); err != nil { // not listening yet, as before a commit
			t.Fatal(err)
		}
		if err := p.Add(stop, -1); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, run(p, func() bool {
			p.ready()
			for {
				conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
				if err != nil {
					break
				}
				accepted <- conn
			}
			select {
			case <-stopping:
				return true
			default:
				return false
			}
		}))
	}
	if err := Listen(fd); err != nil {
		t.Fatal(err)
	}
	for range conns {
		c, err := net.DialTimeout("tcp", ap.String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(receive(t, "a connection", accepted))
		c.Close()
	}
	close(stopping)
	Wake(stop)
	for _, e := range ended {
		if err := receive(t, "the end of a lane", e); err != nil {
			t.Error(err)
		}
	}
}

// Run waits for events between turns, and misses none, whenever it comes.
func TestRunWaitsForEvents(t *testing.T) {
	p := newPoller(t)
	fd := newWake(t)
	if err := p.Add(fd, 0); err != nil {
		t.Fatal(err)
	}
	const turns = 1000
	turned := make(chan int)
	n := 0
	ended := run(p, func() bool {
		n++
		p.ready()
		if n%3 == 0 {
			Wake(fd) // after the look, before the wait: nobody else sends another
			return false
		}
		turned <- n
		return n >= turns
	})
	for {
		at := receive(t, "a turn", turned)
		if at >= turns {
			break
		}
		Wake(fd)
	}
	if err := receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// WakeAt makes Run take one turn, and no more until the next event.
func TestWakeAt(t *testing.T) {
	p := newPoller(t)
	fd := newWake(t)
	if err := p.Add(fd, 0); err != nil {
		t.Fatal(err)
	}
	turned := make(chan []int32)
	n := 0
	ended := run(p, func() bool {
		n++
		events := p.ready()
		switch n {
		case 1:
			p.WakeAt(time.Now().Add(time.Millisecond))
		case 2: // has passed before the wait
			p.WakeAt(time.Now().Add(-time.Second))
		case 4: // replaced before it comes
			p.WakeAt(time.Now().Add(time.Millisecond))
			p.WakeAt(time.Time{})
		}
		turned <- events
		return n == 5
	})
	check(t, "first turn", receive(t, "a turn", turned))
	check(t, "the time has come", receive(t, "a turn", turned))
	check(t, "the time had passed", receive(t, "a turn", turned))
	Wake(fd)
	check(t, "an event after the timer", receive(t, "a turn", turned), 0)
	Wake(fd)
	check(t, "an event after no timer", receive(t, "a turn", turned), 0)
	if err := receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// An event that comes while a deadline expires is not lost in between.
func TestEventsBesideTimers(t *testing.T) {
	p := newPoller(t)
	fd := newWake(t)
	if err := p.Add(fd, 0); err != nil {
		t.Fatal(err)
	}
	const events = 2000
	seen := make(chan struct{})
	n := 0
	ended := run(p, func() bool {
		if len(p.ready()) > 0 {
			n++
			seen <- struct{}{}
		}
		if n == events {
			return true
		}
		p.WakeAt(time.Now().Add(time.Duration(n%50) * time.Microsecond))
		return false
	})
	for range events {
		Wake(fd)
		receive(t, "an event", seen)
	}
	if err := receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// Whoever wakes a lane never waits for it, however often it does.
func TestWakeNeverBlocks(t *testing.T) {
	fd := newWake(t)
	full := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(fd, full); err != nil {
		t.Fatal(err)
	}
	Wake(fd)
	Wake(-1)
}

func TestWakesDoNotAllocate(t *testing.T) {
	p := newPoller(t)
	fd := newWake(t)
	if err := p.Add(fd, 0); err != nil {
		t.Fatal(err)
	}
	count := 0
	note := func(int32) { count++ }
	if n := testing.AllocsPerRun(100, func() { Wake(fd); p.Ready(note) }); n != 0 || count == 0 {
		t.Errorf("%v allocations, %d events", n, count)
	}
}
