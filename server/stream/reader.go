package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// reader reads from one connection into exchanges, and has none while it waits.
type reader struct {
	m *Messages
	c *Conn
	s *Socket // nil: the connection is no Socket, and waits with a buffer

	// What ready has read.
	x   *exchange
	n   int
	err error

	ready func(fd uintptr) bool // readNow, made once
}

func newReader(m *Messages, c *Conn) *reader {
	r := &reader{m: m, c: c}
	r.s, _ = c.Conn.(*Socket)
	r.ready = r.readNow
	return r
}

// read waits until at least want octets have come, or as many as the kernel waits
// for, and returns them in an exchange of the pool, which the caller gives back if
// it is not nil. At the end of the stream the error is io.EOF.
func (r *reader) read(want int) (x *exchange, n int, err error) {
	if r.s == nil {
		x = r.m.pool.Get().(*exchange)
		n, err = r.c.Read(x.in[:])
		return x, n, err
	}
	if err := r.s.WakeAt(want); err != nil {
		return nil, 0, err
	}
	r.x, r.n, r.err = nil, 0, nil
	if err = r.s.Wait(r.ready); err != nil && r.c.lookAgain(err) {
		err = r.s.Wait(r.ready)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case r.err != nil:
		return r.x, 0, fmt.Errorf("reading: %w", r.err)
	case r.n == 0:
		return r.x, 0, io.EOF
	}
	return r.x, r.n, nil
}

// readNow reads what there is, and reports whether there was anything.
func (r *reader) readNow(fd uintptr) bool {
	x := r.m.pool.Get().(*exchange)
	for {
		n, err := unix.Read(int(fd), x.in[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			r.m.pool.Put(x)
			return false
		}
		r.x, r.n, r.err = x, n, err
		return true
	}
}

// Read reads what there is.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 && c.lookAgain(err) {
		return c.Conn.Read(b)
	}
	return n, err
}

// lookAgain allows one more read after a deadline: a process that was off the CPU
// for that long may have queries waiting, and the runtime reports the deadline
// without reading. It does so once a query, or a client could live on by an octet
// for each look.
func (c *Conn) lookAgain(err error) bool {
	if c.looked || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.looked = true
	return c.SetReadDeadline(time.Now().Add(lastLook)) == nil
}
