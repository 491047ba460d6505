package worker

import (
	"bufio"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
)

// askLine asks over a connection and returns who answers.
func askLine(t *testing.T, c net.Conn, r *bufio.Reader) string {
	t.Helper()
	if _, err := c.Write([]byte("who?\n")); err != nil {
		t.Fatal(err)
	}
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return epochOf(line)
}

// Connections stay with the generation that accepted them; those that wait while
// the wire is parked are the next one's, and none is lost.
func TestConnectionsOverAHandOver(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityFlow, true)
	a := w.open(0)
	a.run()
	w.boot(a)
	b := w.open(1)
	b.run()
	old, oldReader := w.dial(ap.String())
	if who := askLine(t, old, oldReader); who != epoch(a) {
		t.Errorf("accepted by %s", who)
	}
	word := w.park(lease, a)
	var waiting []net.Conn
	for range 30 {
		c, err := net.DialTimeout("tcp", ap.String(), patience) // the kernel takes it
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		waiting = append(waiting, c)
	}
	a.boundary()
	b.boundary()
	if n := a.sum(counters.TCPAccepted) + b.sum(counters.TCPAccepted); n != 1 {
		t.Errorf("%d were accepted in the park", n-1)
	}
	if who := askLine(t, old, oldReader); who != epoch(a) {
		t.Errorf("in the park: answered by %s", who)
	}
	w.dir.SetState(b.slot, directory.Active)
	w.dir.SetState(a.slot, directory.Draining)
	if err := w.dir.Flip(word, b.epoch); err != nil {
		t.Fatal(err)
	}
	w.wakeAll()
	for _, c := range waiting {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if who := askLine(t, c, bufio.NewReader(c)); who != epoch(b) {
			t.Errorf("after the flip: answered by %s", who)
		}
	}
	if who := askLine(t, old, oldReader); who != epoch(a) {
		t.Errorf("the old connection: answered by %s", who)
	}
	if x, y := a.sum(counters.TCPAccepted), b.sum(counters.TCPAccepted); x != 1 || y != 30 {
		t.Errorf("the old one accepted %d, the new one %d", x, y)
	}
}

// A lane that stops takes the connections that wait, and has the kernel refuse
// those that come later.
func TestStopRefusesConnections(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, true)
	g := w.open(0)
	w.boot(g)
	var waiting []net.Conn
	for range 3 * acceptMax {
		c, err := net.DialTimeout("tcp", ap.String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		waiting = append(waiting, c)
	}
	g.workers[0].stopping.Store(true)
	g.run()
	until(t, "the lane has stopped", func() bool { return g.workers[0].stopped.Load() == 1 })
	if c, err := net.DialTimeout("tcp", ap.String(), patience); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connected after the stop: %v, %v", c, err)
	}
	for _, c := range waiting {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		askLine(t, c, bufio.NewReader(c))
	}
}

// Out of descriptors, a lane leaves connections in their queue, goes on serving,
// does not fill the log, and takes them as soon as it can, without an event.
func TestOutOfDescriptors(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, true)
	g := w.open(0)
	warnings := &counting{until: "connections wait for resources"}
	for _, l := range g.workers[0].lanes {
		l.log = slog.New(slog.NewTextHandler(warnings, nil))
	}
	g.run()
	w.boot(g)
	c := w.client(ap)
	c.ask()
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	restore := noDescriptors(t)
	if err := unix.Connect(sock, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the lane has tried", func() bool { return warnings.n.Load() > 0 })
	began := time.Now()
	for range 300 {
		if who := c.ask(); who != by(g) {
			t.Errorf("answered by %s", who)
		}
	}
	took := time.Since(began)
	if n := warnings.n.Load(); n > 2+int64(took/pollStarved) {
		t.Errorf("%d warnings in %v", n, took)
	}
	restore()
	until(t, "the connection is accepted", func() bool { return g.sum(counters.TCPAccepted) == 1 })
	f := os.NewFile(uintptr(sock), "client")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if who := askLine(t, conn, bufio.NewReader(conn)); who != epoch(g) {
		t.Errorf("answered by %s", who)
	}
}

// noDescriptors takes all descriptors that this process may have, until restore.
func noDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 300, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var filler []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		filler = append(filler, fd)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
		closeAll(filler)
	}
}

// counting counts the lines of a log that say something.
type counting struct {
	until string
	n     atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.until) {
		c.n.Add(1)
	}
	return len(b), nil
}
