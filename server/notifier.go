package server

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// notifier speaks sd_notify(3) to the service manager that started this process.
// Its methods never wait: a manager that does not read holds up nobody, and what
// has changed meanwhile is told in its newest form. A nil notifier tells nobody.
type notifier struct {
	log  *slog.Logger
	addr *net.UnixAddr

	mu     sync.Mutex
	states []string // datagrams to send, oldest first
	status string   // STATUS to send after them, "": none
	told   string   // the last STATUS
	closed bool
	wake   chan struct{} // there is something to send, or the end
	done   chan struct{} // closed when everything is sent
}

// notifyTimeout is how long the service manager may take to read a datagram.
const notifyTimeout = 2 * time.Second

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

// tell queues a datagram with a status in it.
func (n *notifier) tell(state, status string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.states = append(n.states, state+"\nSTATUS="+status)
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
	case <-time.After(notifyTimeout):
	}
}

// run sends what there is to send until close.
func (n *notifier) run() {
	defer close(n.done)
	for range n.wake {
		for {
			text, end := n.next()
			if text != "" {
				if err := n.send(text); err != nil {
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

// next returns what is to be sent next, "" if there is nothing.
func (n *notifier) next() (text string, end bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.states) > 0 {
		text, n.states = n.states[0], n.states[1:]
		return text, false
	}
	text, n.status = n.status, ""
	return text, n.closed
}

func (n *notifier) send(text string) error {
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = c.Write([]byte(text))
	return err
}
