package stream

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
)

// One client gets no more than its share, another one still gets in, and when a
// connection ends there is room again. Each refusal has its reason.
func TestPerClient(t *testing.T) {
	s, block := NewSet(Limits{Total: 4, PerClient: 2, Idle: idle}, slog.New(slog.DiscardHandler)), new(counters.Block)
	l := listen(t, s, block, messages(echo{}))
	served := func(c net.Conn) {
		t.Helper()
		write(t, c, framed("x"))
		if m := read(t, c); m != "X" {
			t.Errorf("answer %q", m)
		}
	}
	from := func(ip string) net.Conn {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := from("127.0.0.1")
	served(first)
	served(from("127.0.0.1"))
	wantEnd(t, from("127.0.0.1"))
	served(from("127.0.0.2"))
	first.Close()
	<-s.Changed()
	served(from("127.0.0.1"))
	served(from("127.0.0.3"))
	wantEnd(t, from("127.0.0.4")) // four in all
	s.Close()
	wantCounters(t, block, map[counters.ID]uint64{
		accepted: 7, closed: 7, dropped(counters.DropClientLimit): 1, dropped(counters.DropLimit): 1, queries: 5, answers: 5,
	})
	if len(s.clients) != 0 {
		t.Errorf("clients %v are left", s.clients)
	}
}

func TestClientOf(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:53":              "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:99": "2001:db8:1:2::",
		"[2001:db8:1:2::1]:99":      "2001:db8:1:2::",
		"[::1]:1":                   "::",
	} {
		if got := clientOf(remoteOf(&Socket{remote: netip.MustParseAddrPort(from)}).Addr()); got.String() != want {
			t.Errorf("%s is counted as %v, want %s", from, got, want)
		}
	}
	mapped := &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 1}
	if got := clientOf(remoteOf(addressed{mapped}).Addr()); got.String() != "192.0.2.1" {
		t.Errorf("%v is counted as %v", mapped, got)
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if got := clientOf(remoteOf(here).Addr()); got.IsValid() {
		t.Errorf("a pipe is counted as %v", got)
	}
}

// addressed is a connection that has nothing but an address.
type addressed struct{ from net.Addr }

func (a addressed) RemoteAddr() net.Addr           { return a.from }
func (addressed) LocalAddr() net.Addr              { return nil }
func (addressed) Read([]byte) (int, error)         { return 0, io.EOF }
func (addressed) Write(b []byte) (int, error)      { return len(b), nil }
func (addressed) Close() error                     { return nil }
func (addressed) SetDeadline(time.Time) error      { return nil }
func (addressed) SetReadDeadline(time.Time) error  { return nil }
func (addressed) SetWriteDeadline(time.Time) error { return nil }

const lifetime = time.Minute

func newMortal() (*Set, *counters.Block) {
	return NewSet(Limits{Total: 1, Idle: idle, Lifetime: lifetime}, slog.New(slog.DiscardHandler)), new(counters.Block)
}

// An old connection is closed when its client pauses, and no query is lost by that.
func TestLifetimePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newMortal()
		c, began := pipe(s, block, messages(echo{})), time.Now()
		asked := uint64(0)
		for time.Since(began) < lifetime {
			write(t, c, framed("x"))
			read(t, c)
			asked++
			wait(time.Second)
		}
		// The deadline that was set before the end holds, at least for a pause.
		ends(t, c, began.Add(lifetime-time.Second), max(time.Second, DrainIdle))
		wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: asked, answers: asked})
	})
}

// One that never pauses is closed all the same, with an answer to everything that
// was read.
func TestLifetimeBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newMortal()
		c, began := pipe(s, block, messages(echo{})), time.Now()
		for {
			if _, err := c.Write(framed("x")); err != nil {
				break
			}
			read(t, c)
			wait(DrainIdle / 2)
			if time.Since(began) > 2*lifetime {
				t.Fatal("it goes on")
			}
		}
		if took := time.Since(began); took < lifetime+idle || took > lifetime+idle+DrainIdle {
			t.Errorf("it ended after %v", took)
		}
		synctest.Wait()
		if q, a := block.Load(queries), block.Load(answers); q != a {
			t.Errorf("%d queries, %d answers", q, a)
		}
	})
}

// A client that does not read its answers keeps nobody else waiting.
func TestSlowReaderAlone(t *testing.T) {
	s, block := newSet(10, idle), new(counters.Block)
	l := listen(t, s, block, messages(echo{times: 1000}))
	slow := l.dial()
	go func() {
		for { // until its own answers fill every buffer
			if _, err := slow.Write(framed("0123456789012345678901234567890123456789")); err != nil {
				return
			}
		}
	}()
	until(t, "the answers to one client are stuck", func() bool {
		before := block.Load(answers)
		for range 3 {
			c := l.dial()
			write(t, c, framed("q"))
			read(t, c)
			c.Close()
		}
		return block.Load(queries) > 100 && block.Load(answers) == before+3
	})
	s.Close()
}
