package stream

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idle = 10 * time.Second

	// patience bounds every wait in real time: it only ends a test that fails.
	patience = 10 * time.Second
)

func newSet(limit int, idle time.Duration) *Set {
	return NewSet(Limits{Total: limit, Idle: idle}, slog.New(slog.DiscardHandler))
}

// echo answers a query with itself, in upper case. A query that begins with '!'
// it drops, and one that begins with '?' it holds until release is closed.
type echo struct {
	release chan struct{}
	times   int // how often the answer repeats the query
}

func (e echo) AnswerStream(dst, query []byte, _ netip.AddrPort) ([]byte, counters.Class, counters.Reason) {
	switch {
	case len(query) == 0:
		return dst, counters.ClassPlain, counters.DropShort
	case query[0] == '!':
		return append(dst, "half an answ"...), counters.ClassPlain, counters.DropNotQuery
	case query[0] == '?':
		<-e.release
	}
	for range max(e.times, 1) {
		dst = append(dst, bytes.ToUpper(query)...)
	}
	return dst, counters.ClassNXDomain, counters.NotDropped
}

func messages(e echo) *Messages { return NewMessages(func() Answerer { return e }) }

// framed returns messages as they are on the wire.
func framed(messages ...string) (wire []byte) {
	for _, m := range messages {
		wire = binary.BigEndian.AppendUint16(wire, uint16(len(m)))
		wire = append(wire, m...)
	}
	return wire
}

// read reads one message.
func read(t *testing.T, c net.Conn) string {
	t.Helper()
	var length [lengthSize]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		t.Fatal(err)
	}
	m := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, m); err != nil {
		t.Fatal(err)
	}
	return string(m)
}

func write(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// wantEnd checks that the server closes c without another octet.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 100)); n != 0 || err != io.EOF {
		t.Errorf("read %d octets, %v; want the end", n, err)
	}
}

// pipe serves one end of a pipe and returns the other.
func pipe(s *Set, block *counters.Block, h Handler) net.Conn {
	here, there := net.Pipe()
	s.Serve(there, block, h)
	return here
}

// tcp is a listener whose connections a Set serves, as Sockets.
type tcp struct {
	net.Listener
	t *testing.T
}

// socket makes an accepted connection a Socket.
func socket(t *testing.T, c net.Conn) *Socket {
	t.Helper()
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	s, err := NewSocket(fd, c.RemoteAddr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func listen(t *testing.T, s *Set, block *counters.Block, h Handler) *tcp {
	t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false) // as the server listens
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.Serve(socket(t, c), block, h)
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepting.Wait()
		s.Close()
	})
	return &tcp{l, t}
}

func (l *tcp) dial() *net.TCPConn {
	l.t.Helper()
	c, err := net.DialTimeout("tcp", l.Addr().String(), patience)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// ended waits until s has no connection left.
func ended(t *testing.T, s *Set) {
	t.Helper()
	end := time.After(patience)
	for {
		if conns, _ := s.Open(); conns == 0 {
			return
		}
		select {
		case <-s.Changed():
		case <-end:
			t.Fatalf("a connection is open after %v", patience)
		}
	}
}

// The counters of a connection that has ended, beside latency.
const (
	accepted = counters.TCPAccepted
	closed   = counters.TCPClosed
	queries  = counters.TCPQueries
	answers  = counters.TCPAnswers
)

func dropped(r counters.Reason) counters.ID { return counters.DroppedTCP + counters.ID(r) }

// wantCounters checks every counter but those of latency, whose sum it checks.
func wantCounters(t *testing.T, b *counters.Block, want map[counters.ID]uint64) {
	t.Helper()
	got := map[counters.ID]uint64{}
	timed := uint64(0)
	first, last := counters.LatencyID(counters.TCP, counters.ClassNXDomain, 0), counters.LatencyID(counters.TCP, counters.ClassNXDomain, 1<<62)
	for id := range last + 1 {
		switch n := b.Load(id); {
		case id >= first:
			timed += n
		case n != 0 && id != counters.LatencyNsID(counters.TCP, counters.ClassNXDomain):
			got[id] = n
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if want := want[answers] + want[dropped(counters.DropSend)]; timed != want && timed != 0 {
		t.Errorf("the latency of %d answers is counted, of %d", timed, want)
	}
}
