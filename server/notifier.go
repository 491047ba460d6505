package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/fdstore"
)

// notifier speaks sd_notify(3) to the service manager that started this process.
// Its methods never wait: a manager that does not read holds up nobody, and what
// has changed meanwhile is told in its newest form. A nil notifier tells nobody.
type notifier struct {
	log  *slog.Logger
	addr *net.UnixAddr

	mu     sync.Mutex
	states []datagram // to send, oldest first
	status string     // STATUS to send after them, "": none
	told   string     // the last STATUS
	closed bool
	wake   chan struct{} // there is something to send, or the end
	done   chan struct{} // closed when everything is sent
}

// datagram is what is sent at once. The descriptor is its own; -1: none.
type datagram struct {
	text string
	fd   int
}

// notifyTimeout is how long the service manager may take to read a datagram, and
// lastTimeout how long it may take to read what is left at the end.
const (
	notifyTimeout = 30 * time.Second
	lastTimeout   = 2 * time.Second
)

// newNotifier returns the notifier of the socket that NOTIFY_SOCKET names, nil
// if there is none.
func newNotifier(log *slog.Logger) *notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	n := &notifier{
		log: log, addr: &net.UnixAddr{Name: path, Net: "unixgram"},
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go n.run()
	return n
}

// ready tells that the service serves, or serves again after reloading.
func (n *notifier) ready(status string) {
	n.tell(fmt.Sprintf("READY=1\nMAINPID=%d", os.Getpid()), status)
}

// reloading tells that a reload has begun: in one datagram with the time, as
// Type=notify-reload wants it, which must not lie before the manager's own order.
func (n *notifier) reloading(status string) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil { // cannot fail on Linux
		n.log.Error("reading the clock", "error", err)
	}
	n.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000), status)
}

// main tells that another process is the service from now on.
func (n *notifier) main(pid int, status string) {
	n.tell(fmt.Sprintf("MAINPID=%d", pid), status)
}

// stopping tells that the service ends.
func (n *notifier) stopping(status string) { n.tell("STOPPING=1", status) }

// extend asks for patience: the manager's time-out must not be over before d is.
func (n *notifier) extend(d time.Duration, status string) {
	n.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()), status)
}

// keep has the manager keep a descriptor, which stays the caller's: see package
// fdstore.
func (n *notifier) keep(name string, fd int) {
	if n == nil {
		return
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		n.log.Warn("giving a descriptor to the service manager", "name", name, "error", err)
		return
	}
	n.queue(datagram{fdstore.Keep(name), own})
}

// drop has the manager keep it no longer.
func (n *notifier) drop(name string) { n.queue(datagram{fdstore.Drop(name), -1}) }

func (n *notifier) queue(d datagram) {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.states = append(n.states, d)
	n.mu.Unlock()
	n.hasten()
}

// tell queues a datagram with a status in it.
func (n *notifier) tell(state, status string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.states = append(n.states, datagram{state + "\nSTATUS=" + status, -1})
	n.status, n.told = "", status
	n.mu.Unlock()
	n.hasten()
}

// say tells the status, if it is news.
func (n *notifier) say(status string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	news := status != n.told
	if news {
		n.status, n.told = "STATUS="+status, status
	}
	n.mu.Unlock()
	if news {
		n.hasten()
	}
}

func (n *notifier) hasten() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// close waits, for a while, until everything is sent.
func (n *notifier) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.hasten()
	select {
	case <-n.done:
	case <-time.After(lastTimeout):
	}
}

// run sends what there is to send until close.
func (n *notifier) run() {
	defer close(n.done)
	for range n.wake {
		for {
			d, end := n.next()
			if d.text != "" {
				if err := n.send(d); err != nil {
					n.log.Warn("notifying the service manager", "error", err)
				}
				continue
			}
			if end {
				return
			}
			break
		}
	}
}

// next returns what is to be sent next, without a text if there is nothing.
func (n *notifier) next() (d datagram, end bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.states) > 0 {
		d, n.states = n.states[0], n.states[1:]
		return d, false
	}
	d, n.status = datagram{n.status, -1}, ""
	return d, n.closed
}

func (n *notifier) send(d datagram) error {
	var rights []byte
	if d.fd >= 0 {
		defer unix.Close(d.fd)
		rights = unix.UnixRights(d.fd)
	}
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), []byte(d.text), rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}
