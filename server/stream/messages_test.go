package stream

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
)

// However the octets of the messages are cut into segments, each message gets its
// answer, in their order.
func TestSegments(t *testing.T) {
	all := framed("one", "!drop", "two", "", "three", strings.Repeat("x", 300))
	long := strings.ToUpper(strings.Repeat("x", 300))
	for size := 1; size <= len(all); size++ {
		synctest.Test(t, func(t *testing.T) {
			s, block := newSet(1, idle), new(counters.Block)
			c := pipe(s, block, messages(echo{}))
			go func() {
				for part := range slicesOf(all, size) {
					if _, err := c.Write(part); err != nil {
						t.Error(err)
					}
				}
			}()
			for _, want := range []string{"ONE", "TWO", "THREE", long} {
				if m := read(t, c); m != want {
					t.Errorf("in segments of %d: %q, want %q", size, m, want)
				}
			}
			c.Close()
			synctest.Wait()
			wantCounters(t, block, map[counters.ID]uint64{
				accepted: 1, closed: 1, queries: 6, answers: 4, dropped(counters.DropNotQuery): 1, dropped(counters.DropShort): 1,
			})
		})
	}
}

// slicesOf cuts b into parts of size octets.
func slicesOf(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// The answers to queries that come together leave together.
func TestAnswersLeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		c := pipe(s, block, messages(echo{}))
		var all []string
		for i := range 100 {
			all = append(all, fmt.Sprint("query ", i))
		}
		write(t, c, framed(all...))
		buf := make([]byte, readSize)
		n, err := c.Read(buf) // of a pipe: what one Write had
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.ToUpper(framed(all...)); !bytes.Equal(buf[:n], want) {
			t.Errorf("the first write had %d octets of %d", n, len(want))
		}
		c.Close()
	})
}

// The largest messages pass, and what has been gathered is bounded.
func TestLargest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		c := pipe(s, block, messages(echo{}))
		large := strings.Repeat("z", maxMessage)
		go func() {
			if _, err := c.Write(framed(large, "next", large)); err != nil {
				t.Error(err)
			}
		}()
		for _, want := range []int{maxMessage, 4, maxMessage} {
			if m := read(t, c); len(m) != want {
				t.Errorf("an answer of %d octets, want %d", len(m), want)
			}
		}
		c.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		const times = 100
		s, block := newSet(1, idle), new(counters.Block)
		c := pipe(s, block, messages(echo{times: times}))
		const n = 40
		write(t, c, framed(slicesRepeat(strings.Repeat("q", 98), n)...))
		most, total := 0, 0
		for buf := make([]byte, 1<<20); total < n*(lengthSize+98*times); {
			got, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			most, total = max(most, got), total+got
		}
		if most > flushSize+lengthSize+98*times {
			t.Errorf("a write of %d octets", most)
		}
		c.Close()
		synctest.Wait()
		wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: n, answers: n})
	})
}

func slicesRepeat(s string, n int) (all []string) {
	for range n {
		all = append(all, s)
	}
	return all
}

// A connection ends when it has asked nothing for the idle time, counted from its
// last answer, and not before.
func TestIdle(t *testing.T) {
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, block := newSet(1, idle), new(counters.Block)
				c := pipe(s, block, h)
				for range 3 {
					wait(idle - time.Millisecond)
					write(t, c, framed("query\n"))
					if _, err := io.ReadFull(c, make([]byte, lengthSize+6)); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				ends(t, c, began, idle)
				wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: 3, answers: 3})
			})
		})
	}
}

// handlers are those whose answer to "query\n" has eight octets.
var handlers = map[string]Handler{"messages": messages(echo{}), "lines": &Lines{Text: []byte("answer.\n")}}

// wait lets the time of a bubble pass.
func wait(d time.Duration) { <-time.After(d) }

// A client that never completes a message does not keep its connection by
// sending some of it, however often.
func TestDrip(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond, lastLook, lastLook / 2} {
		for name, h := range handlers {
			t.Run(fmt.Sprintf("%s, an octet each %v", name, every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, block := newSet(1, idle), new(counters.Block)
					c := pipe(s, block, h)
					began := time.Now()
					for {
						if _, err := c.Write([]byte{255}); err != nil || time.Since(began) > 2*idle {
							break
						}
						wait(every)
					}
					c.Close()
					if took := time.Since(began); took < idle || took > idle+2*every+lastLook {
						t.Errorf("it ended after %v", took)
					}
					synctest.Wait() // the set counts after it has closed
					wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1})
				})
			})
		}
	}
}

// A client that does not read its answers is given up.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		c := pipe(s, block, messages(echo{}))
		began := time.Now()
		write(t, c, framed("one", "two"))
		synctest.Wait()
		if _, n := s.Open(); n != 1 {
			t.Errorf("%d queries in flight", n)
		}
		<-s.Changed()
		if took := time.Since(began); took != writeTimeout {
			t.Errorf("it ended after %v", took)
		}
		wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: 2, dropped(counters.DropSend): 2})
		if conns, n := s.Open(); conns != 0 || n != 0 {
			t.Errorf("%d connections, %d queries are left", conns, n)
		}
		c.Close()
	})
}

// A client that says it has no more queries gets the answers to those it sent; half
// a message is none.
func TestHalfClose(t *testing.T) {
	for _, rest := range []string{"", "\x00", "\x00\x05hal"} {
		s, block := newSet(10, idle), new(counters.Block)
		release := make(chan struct{})
		l := listen(t, s, block, messages(echo{release: release}))
		c := l.dial()
		write(t, c, append(framed("one", "?two", "three"), rest...))
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		close(release)
		for _, want := range []string{"ONE", "?TWO", "THREE"} {
			if m := read(t, c); m != want {
				t.Errorf("%q, want %q", m, want)
			}
		}
		wantEnd(t, c)
		c.Close()
		ended(t, s)
		wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: 3, answers: 3})
	}
}

// What waits in the socket when a deadline is noticed late is read: it was the
// process that was late, not the client.
func TestLastLook(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialTimeout("tcp", l.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write(t, c, []byte("query"))
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(socket(t, accepted), block, handlerFunc(func(c *Conn) {
		buf := make([]byte, 100)
		n, tries := 0, 0
		for ; n == 0 && tries < 100; tries++ { // another try only where we are off the CPU for a last look
			if err := c.AwaitQuery(); err != nil {
				t.Error(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
				t.Error(err)
			}
			n, err = c.Read(buf)
		}
		if err != nil || string(buf[:n]) != "query" {
			t.Errorf("read %q, %v in %d tries", buf[:n], err, tries)
		}
	}))
	wantEnd(t, c)
	c.Close()
	s.Close()
}

// A read that ends the stream and has data, too, is answered.
func TestDataWithTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		here, there := net.Pipe()
		s.Serve(&hooked{Conn: there, read: iotest.DataErrReader(bytes.NewReader(framed("one", "two"))).Read}, block, messages(echo{}))
		for _, want := range []string{"ONE", "TWO"} {
			if m := read(t, here); m != want {
				t.Errorf("%q, want %q", m, want)
			}
		}
		wantEnd(t, here)
	})
}

type handlerFunc func(*Conn)

func (f handlerFunc) ServeStream(c *Conn) { f(c) }
