package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// obeying is a worker that runs with a supervisor at the other end of its link.
type obeying struct {
	*generation
	o    *Worker
	link *Link // the supervisor's end
	done chan error

	flows  *shm.Region // the flow table of windows
	to     *shm.Region // the rings to it
	epochs uint32      // windows that obeyed has opened
	end    context.CancelFunc
}

// obey runs the one worker of g as Run does.
func (g *generation) obey() *obeying {
	g.w.t.Helper()
	here, there := links(g.w.t)
	ctx, cancel := context.WithCancel(context.Background())
	s := &obeying{generation: g, o: g.workers[0], link: here, done: make(chan error, 1), end: cancel}
	s.o.link.Store(there)
	go func() { s.done <- s.o.run(ctx) }()
	g.w.t.Cleanup(func() {
		cancel()
		here.Close()
		<-s.done
		there.Close()
	})
	s.message(OpReady)
	return s
}

// tell sends a message to the worker.
func (s *obeying) tell(m Message, fds ...int) {
	s.w.t.Helper()
	if err := s.link.Send(m, fds...); err != nil {
		s.w.t.Fatal(err)
	}
}

// message waits for a message of the worker.
func (s *obeying) message(op Op) {
	s.w.t.Helper()
	if err := s.link.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.w.t.Fatal(err)
	}
	for {
		m, _, err := s.link.Receive()
		if err != nil {
			s.w.t.Fatalf("waiting for %s: %v", op, err)
		}
		if m.Op == op {
			return
		}
	}
}

// obeyed waits until the worker has obeyed everything it was told.
func (s *obeying) obeyed() {
	s.w.t.Helper()
	rings := s.ringRegion(1, 1)
	defer rings.Close()
	before := s.o.rings.inboxes.Load()
	s.epochs++
	s.tell(Message{Op: OpWindow, Producer: 3, Epoch: 1000 + s.epochs}, s.window(rings)...)
	until(s.w.t, "the worker obeys", func() bool {
		return s.o.rings.inboxes.Load() != before && s.o.peers.has(3, 1000+s.epochs)
	})
}

// ringRegion returns a region of rings.
func (s *obeying) ringRegion(lanes, workers int) *shm.Region {
	s.w.t.Helper()
	r, err := shm.Create("rings", ring.RegionSize(lanes, workers, 64<<10))
	if err != nil {
		s.w.t.Fatal(err)
	}
	if _, err := ring.Format(r, lanes, workers, 64<<10); err != nil {
		s.w.t.Fatal(err)
	}
	return r
}

// window returns what comes with a window whose rings are r.
func (s *obeying) window(r *shm.Region) []int {
	s.w.t.Helper()
	if s.flows == nil {
		var err error
		if s.flows, err = shm.Create("flows", table.RegionSize(1024)); err != nil {
			s.w.t.Fatal(err)
		}
		if _, err := table.Format(s.flows, 1024, idle, s.w.secret); err != nil {
			s.w.t.Fatal(err)
		}
		s.to = s.ringRegion(s.w.workers*s.w.lanes, 1)
		s.w.t.Cleanup(func() {
			if err := errors.Join(s.flows.Close(), s.to.Close()); err != nil {
				s.w.t.Error(err)
			}
		})
	}
	return []int{r.Fd(), s.flows.Fd(), s.to.Fd()}
}

// READY is in the directory before it is said, and the worker serves then.
func TestReady(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(0)
	s := g.obey()
	if !w.dir.Worker(0, 0).IsReady(g.epoch, unix.Getpid()) {
		t.Error("it says so before it is")
	}
	w.boot(g)
	if who := w.client(ap).ask(); who != by(g) {
		t.Errorf("answered by %s", who)
	}
	s.tell(Message{Op: OpQuit})
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	s.done <- nil
}

// The rings of a window are read from when they come. A window that makes no sense
// is refused, and leaves no descriptor.
func TestWindow(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.warnings = "level=ERROR"
	w.listen(config.AffinityFlow, false)
	g := w.open(0)
	s := g.obey()
	w.boot(g)
	s.obeyed()
	g.boundary()
	before := descriptors(t)
	none := s.ringRegion(1, 1)
	defer none.Close()
	other, err := shm.Create("other", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	file := memfd(t, "no region", "")
	s.tell(Message{Op: OpWindow, Producer: 1})
	s.tell(Message{Op: OpWindow, Producer: 1}, none.Fd(), none.Fd())
	s.tell(Message{Op: OpWindow, Producer: 1, Epoch: 9}, s.window(other)...)
	s.tell(Message{Op: OpWindow, Producer: 1, Epoch: 9}, none.Fd(), other.Fd(), none.Fd())
	s.tell(Message{Op: OpWindow, Producer: 1, Epoch: 9}, none.Fd(), s.flows.Fd(), other.Fd())
	s.tell(Message{Op: OpWindow, Producer: 0, Epoch: 9}, s.window(none)...)
	s.tell(Message{Op: OpWindow, Producer: 9, Epoch: 9}, s.window(none)...)
	s.tell(Message{Op: "nonsense"}, file)
	s.obeyed()
	g.boundary()
	if n := descriptors(t); n != before+3 { // those of this test
		t.Errorf("%d descriptors before, %d after", before+3, n)
	}

	r := s.ringRegion(4, 1)
	rings, err := ring.Attach(r)
	if err != nil {
		t.Fatal(err)
	}
	s.tell(Message{Op: OpWindow, Producer: 2, Epoch: 12}, s.window(r)...)
	for lane := range 4 {
		p := rings.Producer(lane, 0)
		p.Push(&burst.Packet{Payload: []byte("who?"), Socket: 12345}, 0, 0)
		p.Publish()
		if p.NeedsWake() {
			g.wake()
		}
	}
	until(t, "all records are taken", func() bool { return g.sum(counters.ForwardedFrom+2) == 4 })
	if err := r.Close(); err != nil { // the worker has its own
		t.Error(err)
	}
}

// A descriptor that was refused is closed once: its number may be another's the
// next moment.
func TestRefusedWindowClosesOnce(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.listen(config.AffinityFlow, false)
	s := w.open(0).obey()
	s.o.log = slog.New(slog.DiscardHandler)
	other, err := shm.Create("other", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var others sync.WaitGroup
	var done atomic.Bool
	others.Go(func() {
		for !done.Load() {
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			if err != nil {
				t.Error(err)
				return
			}
			if err := unix.Close(fd); err != nil {
				t.Errorf("somebody closed descriptor %d: %v", fd, err)
				return
			}
		}
	})
	for range 300 {
		s.tell(Message{Op: OpWindow, Producer: 1, Epoch: 9}, s.window(other)...)
	}
	s.obeyed()
	done.Store(true)
	others.Wait()
}

// The worker serves on when the supervisor is gone.
func TestServesWithoutSupervisor(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.warnings = "the supervisor is gone"
	ap := w.listen(config.AffinityFlow, true)
	g := w.open(0)
	s := g.obey()
	w.boot(g)
	s.link.Close()
	for range 3 {
		if who := w.client(ap).ask(); who != by(g) {
			t.Errorf("answered by %s", who)
		}
	}
	select {
	case err := <-s.done:
		t.Errorf("the worker ended: %v", err)
		s.done <- nil
	default:
	}
}

// Eventfds that come with a window replace those of the generation that had the
// slot before, which are closed; the others stay.
func TestWakes(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.listen(config.AffinityFlow, false)
	g := w.open(0)
	s := g.obey()
	tell := func(slot, first, n int) (sent []uint64) {
		var fds []int
		for range n {
			fd, err := unix.MemfdCreate("wake", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
			sent = append(sent, inode(t, fd))
		}
		s.tell(Message{Op: OpWakes, Producer: slot, Epoch: w.dir.Generation(1).Epoch, First: first}, fds...)
		closeAll(fds)
		return sent
	}
	empty := []int{}
	s.o.wakes[1].Store(&empty) // those of the test's world are not the worker's to close
	s.obeyed()
	g.boundary()
	before := descriptors(t)
	for round := range 3 {
		if err := w.dir.Open(1, w.dir.NewEpoch(), 1, 1, nil); err != nil {
			t.Fatal(err)
		}
		tell(1, 0, 1) // told again
		want := append(tell(1, 0, 2), tell(1, 2, 1)...)
		s.obeyed()
		g.boundary()
		var got []uint64
		for _, fd := range *s.o.wakes[1].Load() {
			got = append(got, inode(t, fd))
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: eventfds %v, want %v", round, got, want)
		}
		w.dir.SetState(1, directory.Free)
	}
	tell(0, 0, 1) // its own are fixed
	tell(9, 0, 1)
	s.obeyed()
	g.boundary()
	if n := descriptors(t); n != before+3 {
		t.Errorf("%d descriptors before, %d after, of which 3 are eventfds", before, n)
	}
}

// inode says which file a descriptor is.
func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// A message that does not come whole is asked for again, as often as it takes, and
// what comes then is obeyed; meanwhile the worker serves on.
func TestLostMessage(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.warnings = "asking the supervisor"
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(0)
	s := g.obey()
	w.boot(g)
	rings := s.ringRegion(1, 1)
	defer rings.Close()
	for range 2 {
		s.tell(Message{Op: OpWindow, Producer: 1, Epoch: 9}, slices.Repeat(s.window(rings), MaxFDs/3+1)...)
		s.message(OpLost)
		if who := w.client(ap).ask(); who != by(g) {
			t.Errorf("answered by %s", who)
		}
	}
	s.tell(Message{Op: OpWakes, Producer: 1, Epoch: 9, First: 1}, rings.Fd()) // the ones before were lost
	s.message(OpLost)
	for range 2 { // everything is said again, also what was known
		s.tell(Message{Op: OpWindow, Producer: 1, Epoch: 9}, s.window(rings)...)
	}
	s.obeyed()
	if !s.o.peers.has(1, 9) {
		t.Error("the window is not open")
	}
}

// What a generation has left is unmapped when it is gone, by each lane and for the
// rings, and whoever has its slot next is none of it.
func TestClosed(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.listen(config.AffinityFlow, false)
	g := w.open(0)
	s := g.obey()
	w.boot(g)
	rings := s.ringRegion(1, 1)
	defer rings.Close()
	s.obeyed()
	g.boundary()
	before := descriptors(t)
	for epoch := uint32(20); epoch < 23; epoch++ {
		s.tell(Message{Op: OpWindow, Producer: 1, Epoch: epoch}, s.window(rings)...)
		s.obeyed()
		g.boundary()
		if !s.o.peers.has(1, epoch) {
			t.Fatalf("epoch %d is not known", epoch)
		}
		if n := descriptors(t); n != before+3 {
			t.Errorf("epoch %d: %d descriptors before, %d after", epoch, before, n)
		}
		s.tell(Message{Op: OpClosed, Producer: 1})
		s.obeyed()
		g.boundary()
		if s.o.peers.has(1, epoch) {
			t.Errorf("epoch %d is known still", epoch)
		}
		if n := descriptors(t); n != before {
			t.Errorf("epoch %d is gone: %d descriptors before, %d after", epoch, before, n)
		}
	}
}
