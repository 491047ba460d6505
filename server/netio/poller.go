package netio

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for a lane's descriptors, in an epoll set of the lane's own.
//
// It waits twice. For up to linger it stays in the system call without telling
// the scheduler, which keeps its P: at a few hundred packets a second and more the
// next one comes within that, and costs no hand-over between threads. Then it
// waits in a system call like any other, the P goes to whoever needs it, and an
// idle lane costs nothing. (Waiting in Go's netpoller costs one more epoll_wait
// and a scheduler round a wake-up; waiting in the second way alone costs 40 to
// 70% more at low load.)
//
// Connections do not suffer by the first wait: they have as many Ps of their own as
// there are lanes. (500 queries a second over TCP beside
// 20,000 over UDP, server and load on a core each: p50 0.16 ms and p99 1.5 ms with
// it, 0.20 and 2.8 without; Knot 0.20 and 18.)
//
// Registration is edge-triggered: after an event, and after Add, the caller
// reads until EAGAIN before it lets the poller wait again.
type Poller struct {
	fd     int
	events [128]unix.EpollEvent
	n      int       // events that Ready has not delivered yet
	wakeAt time.Time // zero: never
}

// linger is how long a wait holds on to its P. The garbage collector interrupts
// it by a signal, and so would sysmon after 10 ms. Packets come in bunches: with 1 ms
// the wait between two of them ended early at 5,000 a second, and a query cost
// 1.14 times Knot's CPU, and 1.04 times at 20,000; with 5 ms it costs 0.93 and 0.90.
const linger = 5 * time.Millisecond

// NewPoller returns a poller with nothing to wait for.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating a poller: epoll_create1: %w", err)
	}
	return &Poller{fd: fd}, nil
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
	if p.n == 0 {
		p.n, _ = epollWait(p.fd, p.events[:], 0)
	}
	n := p.n
	p.n = 0
	for i := range n {
		f(p.events[i].Fd)
	}
	return n == len(p.events)
}

// Run calls turn whenever a descriptor may have become readable, or wake-up
// time has come (WakeAt), and waits in between; it returns when turn returns
// true. turn runs until it has nothing left to do.
func (p *Poller) Run(turn func() bool) error {
	for !turn() {
		if err := p.wait(); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for an event or for wake-up time, whichever is first.
func (p *Poller) wait() error {
	for {
		timeout, hold := -1, int(linger/time.Millisecond)
		if !p.wakeAt.IsZero() {
			timeout = max(int((time.Until(p.wakeAt)+time.Millisecond-1)/time.Millisecond), 0)
			hold = min(hold, timeout)
		}
		n, err := epollWait(p.fd, p.events[:], hold)
		if n == 0 && err == nil && timeout != hold {
			if timeout > 0 {
				timeout -= hold
			}
			n, err = unix.EpollWait(p.fd, p.events[:], timeout)
		}
		switch {
		case errors.Is(err, unix.EINTR): // by the runtime, which has had its way
			continue
		case err != nil:
			return fmt.Errorf("waiting for events: epoll_wait: %w", err)
		}
		p.n, p.wakeAt = n, time.Time{}
		return nil
	}
}

// WakeAt makes Run call turn at t, once; the zero time means never. It is for
// the goroutine that runs turn.
func (p *Poller) WakeAt(t time.Time) { p.wakeAt = t }

// Close ends the poller. Run must have returned.
func (p *Poller) Close() error { return unix.Close(p.fd) }

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
