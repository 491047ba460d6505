package netio

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for a lane's descriptors without holding a thread: they are in
// an epoll set of the lane's own, and that set's descriptor waits in Go's
// netpoller. (A blocking system call on a locked thread costs 40 to 70% more at
// low load.)
//
// Registration is edge-triggered: after an event, and after Add, the caller
// reads until EAGAIN before it lets the poller wait again.
type Poller struct {
	file   *os.File
	conn   syscall.RawConn
	fd     int
	events [32]unix.EpollEvent
}

// NewPoller returns a poller with nothing to wait for.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating a poller: epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else os.NewFile would not hand it to the netpoller
		unix.Close(fd)
		return nil, fmt.Errorf("creating a poller: %w", err)
	}
	file := os.NewFile(uintptr(fd), "lane epoll")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("creating a poller: %w", err)
	}
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		file.Close()
		return nil, fmt.Errorf("creating a poller: the runtime cannot wait on epoll descriptors: %w", err)
	}
	return &Poller{file: file, conn: conn, fd: fd}, nil
}

// Add waits for fd to become readable. token comes back from Ready.
func (p *Poller) Add(fd int, token int32) error {
	return p.add(fd, token, unix.EPOLLIN|unix.EPOLLET)
}

// AddExclusive is Add for a descriptor on which several lanes wait: the kernel
// need not wake all of them.
func (p *Poller) AddExclusive(fd int, token int32) error {
	return p.add(fd, token, unix.EPOLLIN|unix.EPOLLET|unix.EPOLLEXCLUSIVE)
}

func (p *Poller) add(fd int, token int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: token}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("waiting on descriptor %d: epoll_ctl: %w", fd, err)
	}
	return nil
}

// Remove stops waiting for fd.
func (p *Poller) Remove(fd int) error {
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil); err != nil {
		return fmt.Errorf("no longer waiting on descriptor %d: epoll_ctl: %w", fd, err)
	}
	return nil
}

// Ready calls f with the token of each descriptor that has become readable. It
// does not block. It reports whether there may be more.
func (p *Poller) Ready(f func(token int32)) bool {
	n, err := unix.EpollWait(p.fd, p.events[:], 0)
	if err != nil { // EINTR; anything else would be a bug of ours
		return errors.Is(err, unix.EINTR)
	}
	for i := range n {
		f(p.events[i].Fd)
	}
	return n == len(p.events)
}

// Run calls turn whenever a descriptor may have become readable, or wake-up
// time has come (WakeAt), and waits in between; it returns when turn returns
// true. turn runs until it has nothing left to do.
func (p *Poller) Run(turn func() bool) error {
	f := func(uintptr) bool { return turn() }
	for {
		err := p.conn.Read(f)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := p.file.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// WakeAt makes Run call turn at t, once; the zero time means never.
func (p *Poller) WakeAt(t time.Time) error { return p.file.SetReadDeadline(t) }

// Close ends the poller. Run must have returned.
func (p *Poller) Close() error { return p.file.Close() }

// NewWake returns an eventfd: whoever has it hastens a lane that waits on it.
func NewWake() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("creating an eventfd: %w", err)
	}
	return fd, nil
}

// wakeOne is the eight bytes that Wake writes.
var wakeOne = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// Wake hastens the lane behind the eventfd. A full counter means that it is
// awake anyway, so no error is worth reporting.
func Wake(fd int) { _, _ = unix.Write(fd, wakeOne) }
