package worker

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/stream"
)

// dial connects to the worker and asks once.
func (w *world) dial(to string) (*net.TCPConn, *bufio.Reader) {
	w.t.Helper()
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.Write([]byte("who?\n")); err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.TCPConn), r
}

// A draining worker reports what it has, whenever that has changed, and each time
// it is asked.
func TestDrainReports(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, true)
	g := w.open(0)
	s := g.obey()
	w.boot(g)
	w.client(ap).ask()
	w.client(ap).ask()
	view := w.dir.Worker(0, 0)
	conn, _ := w.dial(ap.String())
	report := func(asked uint32) directory.Report {
		t.Helper()
		var r directory.Report
		until(t, "a report", func() bool { r = view.Report(); return r.Asked == asked })
		return r
	}
	n := view.AskDrain()
	s.tell(Message{Op: OpDrain})
	if r := report(n); r.Flows != 2 || r.TCP != 1 || r.IdleMs > 5000 || r.Empty() {
		t.Errorf("report %+v", r)
	}
	s.message(OpReport)
	conn.Close()
	until(t, "the connection is gone", func() bool { return view.Report().TCP == 0 })
}

// Asking again is answered at once, not when a report is due anyway.
func TestAskedAgain(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.listen(config.AffinityFlow, false)
	s := w.open(0).obey()
	view := w.dir.Worker(0, 0)
	began := time.Now()
	const times = 20
	for range times {
		n := view.AskDrain()
		s.tell(Message{Op: OpDrain})
		until(t, "a report", func() bool { return view.Report().Asked == n })
	}
	if took := time.Since(began); took > times*drainInterval/4 {
		t.Errorf("%d answers took %v", times, took)
	}
}

// slow is a service that takes its time.
type slow struct{ held chan struct{} }

func (s slow) lane(int, *counters.Block) burst.Handler     { return s }
func (s slow) streams(int, *counters.Block) stream.Handler { return nil }
func (s slow) drain()                                      {}

func (s slow) ServeBurst(b *burst.Burst) {
	<-s.held
	for i := range b.N {
		b.Packets[i].Reply = append(b.Packets[i].Reply, "served"...)
	}
}

// A worker that is told to stop and to report has nothing left only when its lanes
// have served what was queued: the next order is to quit.
func TestStopIsNotEmptyEarly(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityFlow, false)
	g := w.open(0)
	held := make(chan struct{})
	for _, l := range g.workers[0].lanes {
		l.handlers[0] = slow{held}
	}
	s := g.obey()
	w.boot(g)
	var clients []*client
	for range 10 {
		c := w.client(ap)
		clients = append(clients, c)
		for range 20 {
			c.send()
		}
	}
	view := w.dir.Worker(0, 0)
	n := view.AskDrain()
	s.tell(Message{Op: OpStop})
	s.tell(Message{Op: OpDrain})
	until(t, "a report", func() bool { return view.Report().Asked == n })
	if r := view.Report(); r.Empty() {
		t.Errorf("empty while its lanes serve: %+v", r)
	}
	close(held)
	until(t, "nothing is left", func() bool { r := view.Report(); return r.Asked == n && r.Empty() })
	s.tell(Message{Op: OpQuit})
	for _, c := range clients {
		for range 20 {
			c.answer()
		}
	}
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	s.done <- nil
}
