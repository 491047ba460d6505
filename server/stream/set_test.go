package stream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
)

// A drain ends idle connections soon, lets busy ones finish, answers what comes
// until then, and does the same with connections that it finds later.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(10, idle), new(counters.Block)
		release := make(chan struct{})
		h := messages(echo{release: release})
		silent, busy, late := pipe(s, block, h), pipe(s, block, h), pipe(s, block, h)
		write(t, silent, framed("one"))
		read(t, silent)
		write(t, busy, framed("?wait"))
		synctest.Wait()
		if conns, n := s.Open(); conns != 3 || n != 1 {
			t.Errorf("%d connections, %d queries in flight", conns, n)
		}
		s.Drain()
		began := time.Now()
		wait(DrainIdle - time.Millisecond)
		write(t, late, framed("two"))
		if m := read(t, late); m != "TWO" {
			t.Errorf("while draining: %q", m)
		}
		ends(t, silent, began, DrainIdle)
		ends(t, late, began, 2*DrainIdle-time.Millisecond)
		began = time.Now()
		ends(t, pipe(s, block, h), began, DrainIdle) // accepted just before its lane stopped
		wait(idle)
		if conns, n := s.Open(); conns != 1 || n != 1 {
			t.Errorf("%d connections, %d queries in flight", conns, n)
		}
		close(release)
		if m := read(t, busy); m != "?WAIT" {
			t.Errorf("the busy one: %q", m)
		}
		began = time.Now()
		ends(t, busy, began, DrainIdle)
		synctest.Wait()
		if conns, n := s.Open(); conns != 0 || n != 0 {
			t.Errorf("%d connections, %d queries are left", conns, n)
		}
		wantCounters(t, block, map[counters.ID]uint64{accepted: 4, closed: 4, queries: 3, answers: 3})
	})
}

// ends checks that c ends this long after began, or a last look later.
func ends(t *testing.T, c net.Conn, began time.Time, after time.Duration) {
	t.Helper()
	wantEnd(t, c)
	if took := time.Since(began); took < after || took > after+lastLook {
		t.Errorf("it ended after %v, want %v", took, after)
	}
}

// An idle time below that of a drain stays.
func TestDrainDoesNotLengthen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = DrainIdle / 4
		s, block := newSet(1, short), new(counters.Block)
		c := pipe(s, block, messages(echo{}))
		synctest.Wait()
		s.Drain()
		ends(t, c, time.Now(), short)
	})
}

// A drain that begins while a connection sets its own deadline counts, whichever
// of the two is set last.
func TestDrainMeetsDeadline(t *testing.T) {
	for name, hook := range map[string]func(apply, drain func()){
		"before": func(apply, drain func()) { drain(); apply() },
		"after":  func(apply, drain func()) { apply(); drain() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, block := newSet(1, idle), new(counters.Block)
				here, there := net.Pipe()
				began := time.Now()
				c := &hooked{Conn: there}
				c.deadline = func(apply func()) { c.deadline = nil; hook(apply, s.Drain) }
				s.Serve(c, block, messages(echo{}))
				ends(t, here, began, DrainIdle)
			})
		})
	}
}

// hooked is a connection of which a test takes over some methods.
type hooked struct {
	net.Conn
	deadline func(apply func()) // in place of SetReadDeadline
	read     func([]byte) (int, error)
	close    func()
}

func (c *hooked) SetReadDeadline(at time.Time) (err error) {
	if c.deadline == nil {
		return c.Conn.SetReadDeadline(at)
	}
	c.deadline(func() { err = c.Conn.SetReadDeadline(at) })
	return err
}

func (c *hooked) Read(b []byte) (int, error) {
	if c.read == nil {
		return c.Conn.Read(b)
	}
	return c.read(b)
}

func (c *hooked) Close() error {
	if c.close != nil {
		c.close()
	}
	return c.Conn.Close()
}

// A connection counts as open until it is closed.
func TestOpenUntilClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		here, there := net.Pipe()
		closing := make(chan struct{})
		s.Serve(&hooked{Conn: there, close: func() { <-closing }}, block, handlerFunc(func(*Conn) {}))
		synctest.Wait()
		if conns, _ := s.Open(); conns != 1 || block.Load(closed) != 0 || len(s.Changed()) != 0 {
			t.Errorf("while it closes: %d open, %d closed, %d changes", conns, block.Load(closed), len(s.Changed()))
		}
		close(closing)
		wantEnd(t, here)
		<-s.Changed()
		if conns, _ := s.Open(); conns != 0 || block.Load(closed) != 1 {
			t.Errorf("closed: %d open, %d closed", conns, block.Load(closed))
		}
	})
}

// Over the limit connections are closed at once, and counted; when one ends there
// is room again.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(2, idle), new(counters.Block)
		h := messages(echo{})
		first, second := pipe(s, block, h), pipe(s, block, h)
		began := time.Now()
		wantEnd(t, pipe(s, block, h))
		if took := time.Since(began); took != 0 {
			t.Errorf("closed after %v", took)
		}
		first.Close()
		<-s.Changed()
		third := pipe(s, block, h)
		for _, c := range []net.Conn{second, third} {
			write(t, c, framed("x"))
			read(t, c)
		}
		s.Close()
		wantEnd(t, second)
		wantEnd(t, third)
		wantCounters(t, block, map[counters.ID]uint64{
			accepted: 4, closed: 4, dropped(counters.DropLimit): 1, queries: 2, answers: 2,
		})
	})
}

// Close ends whatever goes on: reading, answering, and waiting for the client's
// end.
func TestClose(t *testing.T) {
	s, block := newSet(10, idle), new(counters.Block)
	release := make(chan struct{})
	l := listen(t, s, block, messages(echo{release: release, times: 100}))
	reading, answering, writing := l.dial(), l.dial(), l.dial()
	write(t, answering, framed("?"))
	go func() { // it reads nothing: the answers fill the socket buffers
		for {
			if _, err := writing.Write(framed(strings.Repeat("x", 600))); err != nil {
				return
			}
		}
	}()
	write(t, reading, []byte{0})
	until(t, "all are at it", func() bool {
		_, n := s.Open()
		return n == 2 && block.Load(accepted) == 3
	})
	go close(release)
	s.Close()
	if conns, n := s.Open(); conns != 0 || n != 0 {
		t.Errorf("%d connections, %d queries are left", conns, n)
	}
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// A connection that the server ends is not reset, though the client has sent more:
// the client gets the whole last answer, then the end.
func TestNoReset(t *testing.T) {
	s, block := newSet(10, idle), new(counters.Block)
	answer := bytes.Repeat([]byte("last answer"), 20_000)
	l := listen(t, s, block, handlerFunc(func(c *Conn) {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if err := c.WriteAnswer(answer); err != nil {
			t.Error(err)
		}
	}))
	c := l.dial()
	write(t, c, bytes.Repeat([]byte{1}, 10_000)) // of which one octet is read
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, answer) {
		t.Errorf("read %d octets of %d, %v", len(got), len(answer), err)
	}
	if _, err := c.Write([]byte{2}); err != nil { // it still listens
		t.Error(err)
	}
	c.Close()
	ended(t, s)
}

// A client that never ends its side is not waited for for ever.
func TestLingerIsBounded(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	l := listen(t, s, block, handlerFunc(func(*Conn) {}))
	c := l.dial()
	wantEnd(t, c)
	ended(t, s) // without an end from us
	until(t, "the server has closed its side", func() bool {
		_, err := c.Write([]byte{1})
		return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
	})
}

// Lines are answered one by one, also the last one without its end.
func TestLines(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	l := listen(t, s, block, &Lines{Text: []byte("answer\n")})
	c := l.dial()
	for _, part := range []string{"one\ntwo\n\nth", "ree\nfour"} {
		write(t, c, []byte(part))
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != strings.Repeat("answer\n", 5) {
		t.Errorf("%q, %v", got, err)
	}
	c.Close()
	ended(t, s)
	wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: 5, answers: 5})
}

// A line without an end ends the connection, not the memory.
func TestLineTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		c := pipe(s, block, &Lines{Text: []byte("answer\n")})
		began := time.Now()
		n, err := c.Write(bytes.Repeat([]byte{'x'}, 2*maxLine))
		if err != io.ErrClosedPipe || n < maxLine-1 || n > maxLine+readSize {
			t.Errorf("wrote %d octets, %v", n, err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1})
	})
}

func TestLinesSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, block := newSet(1, idle), new(counters.Block)
		c := pipe(s, block, &Lines{Text: []byte("answer\n")})
		write(t, c, []byte("line\n"))
		<-s.Changed()
		wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: 1, dropped(counters.DropSend): 1})
		c.Close()
	})
}
