package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is another network namespace. A thread keeps it.
type Namespace struct {
	tid   int
	calls chan func()
}

// New makes a namespace in which there is loopback alone.
func New() (*Namespace, error) {
	n := &Namespace{calls: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		n.tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if errors.Is(err, unix.EPERM) {
			err = ErrNotRoot
		}
		if err == nil {
			err = loopbackUp()
		}
		made <- err
		if err != nil {
			return
		}
		for call := range n.calls {
			call()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	return n, nil
}

// Path names the namespace to programs such as ip.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), n.tid) }

// Do calls f in the namespace: the sockets that it opens, and the processes that it
// starts, belong to it.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	n.calls <- func() { done <- f() }
	return <-done
}

// Close gives the namespace up. It lives on while sockets and processes do.
func (n *Namespace) Close() { close(n.calls) }
