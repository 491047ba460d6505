package stream

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
)

// Connections that wait hold no buffers, whether they have sent nothing, part of
// a message, or have got an answer.
func TestWaitingHoldsNothing(t *testing.T) {
	const conns = 300
	s, block := newSet(conns, idle), new(counters.Block)
	var exchanges atomic.Int64
	h := NewMessages(func() Answerer {
		exchanges.Add(1)
		return echo{}
	})
	l := listen(t, s, block, h)
	for i := range conns {
		c := l.dial()
		switch i % 3 {
		case 0:
			write(t, c, []byte{0, 100, 1})
		case 1:
			write(t, c, framed("x"))
			read(t, c)
		}
	}
	until(t, "all are served", func() bool { n, _ := s.Open(); return n == conns })
	// The pool loses some, under the race detector most.
	if n := exchanges.Load(); n > conns*3/4 {
		t.Errorf("%d exchanges for %d connections that wait", n, conns)
	}
}

// The server sleeps until a message can be complete, and hears of the end of a
// stream all the same.
func TestSleepsUntilComplete(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	l := listen(t, s, block, messages(echo{}))
	c := l.dial()
	text := strings.Repeat("m", 1000)
	all := framed(text)
	low := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			err := c.Conn.(*Socket).raw.Control(func(fd uintptr) {
				n, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT)
			})
			if err != nil {
				t.Error(err)
			}
		}
		return n
	}
	write(t, c, all[:1])
	until(t, "it waits for the rest of the length", func() bool { return low() == 1 })
	write(t, c, all[1:10])
	until(t, "it waits for the rest of the message", func() bool { return low() == len(all)-10 })
	for _, b := range all[10:] {
		write(t, c, []byte{b})
	}
	if m := read(t, c); m != strings.ToUpper(text) {
		t.Errorf("an answer of %d octets", len(m))
	}
	write(t, c, framed("s")) // shorter than what it waited for
	if m := read(t, c); m != "S" {
		t.Errorf("answer %q", m)
	}
	write(t, c, []byte{1, 0, 7})
	until(t, "it waits for a long message", func() bool { return low() == 255 })
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, c)
	ended(t, s)
	wantCounters(t, block, map[counters.ID]uint64{accepted: 1, closed: 1, queries: 2, answers: 2})
}

// An empty message is taken as soon as it is there.
func TestEmptyMessage(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	c := listen(t, s, block, messages(echo{})).dial()
	write(t, c, framed(""))
	until(t, "it is taken", func() bool { return block.Load(dropped(counters.DropShort)) == 1 })
	write(t, c, framed("x"))
	if m := read(t, c); m != "X" {
		t.Errorf("answer %q", m)
	}
}

// The largest message arrives though it does not fit what the kernel waits for.
func TestLargestOverTCP(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	c := listen(t, s, block, messages(echo{})).dial()
	if err := setReceiveBuffer(s, 4096); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), maxMessage)
	go func() {
		if _, err := c.Write(framed(string(large))); err != nil {
			t.Error(err)
		}
	}()
	if m := read(t, c); len(m) != maxMessage {
		t.Errorf("an answer of %d octets", len(m))
	}
}

// setReceiveBuffer makes the buffers of all connections small, once there is one.
func setReceiveBuffer(s *Set, n int) (err error) {
	for done := false; !done; {
		s.mu.Lock()
		for c := range s.conns {
			done = true
			err = errors.Join(err, c.Conn.(*Socket).raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, n)
			}))
		}
		s.mu.Unlock()
	}
	return err
}

// A Socket knows both ends, and says so of a closed one without harm.
func TestSocketAddresses(t *testing.T) {
	s, block := newSet(1, idle), new(counters.Block)
	remote, local := make(chan string, 1), make(chan string, 1)
	l := listen(t, s, block, handlerFunc(func(c *Conn) {
		remote <- c.RemoteAddr().String()
		local <- c.LocalAddr().String()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if a := c.LocalAddr(); a != nil {
			t.Errorf("a closed connection has the address %v", a)
		}
	}))
	c := l.dial()
	if got := <-remote; got != c.LocalAddr().String() {
		t.Errorf("remote address %s, want %v", got, c.LocalAddr())
	}
	if got := <-local; got != l.Addr().String() {
		t.Errorf("local address %s, want %v", got, l.Addr())
	}
	c.Close()
	ended(t, s)
}

func TestAddrPort(t *testing.T) {
	for _, c := range []struct {
		sa   unix.Sockaddr
		want string
	}{
		{&unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 53}, "192.0.2.1:53"},
		{&unix.SockaddrInet6{Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}, Port: 53}, "[2001:db8::1]:53"},
		{&unix.SockaddrInet6{Addr: [16]byte{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}, Port: 53}, "192.0.2.1:53"},
		{&unix.SockaddrUnix{}, "invalid AddrPort"},
	} {
		if got := AddrPort(c.sa); got.String() != c.want || got == (netip.AddrPort{}) != (c.want == "invalid AddrPort") {
			t.Errorf("%+v is %v", c.sa, got)
		}
	}
}
