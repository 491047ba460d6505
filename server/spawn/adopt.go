package spawn

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotChild is matched by the error of Wait when the process has ended and its
// status went to whoever started it.
// It matches ECHILD, too.
var ErrNotChild = fmt.Errorf("it was started by another process, which alone is told how it ended: %w", unix.ECHILD)

// Adopt returns a process that somebody else has started: the one with this pid
// and start time, and no later one with that pid. A process that is gone is an
// error that matches os.ErrProcessDone.
func Adopt(pid int, start uint64) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.10
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("adopting process %d: %w", pid, err)
	}
	// The pidfd is of the process that has this start time now, or of one that
	// came later still: then the start time would be another.
	if got := startTime(pid); got != start {
		unix.Close(fd)
		return nil, fmt.Errorf("adopting process %d: it started at tick %d, not %d: %w", pid, got, start, os.ErrProcessDone)
	}
	p := &Process{PID: pid, Start: start}
	if err := p.adoptPidfd(fd); err != nil {
		return nil, fmt.Errorf("adopting process %d: %w", pid, err)
	}
	return p, nil
}

// Release lets go of a process that is not waited for.
func (p *Process) Release() { _ = p.pidfd.Close() }

// AdoptNow returns the process that has this pid now, whoever started it.
func AdoptNow(pid int) (*Process, error) { return Adopt(pid, startTime(pid)) }

// Self returns this process's pid and start time.
func Self() (pid int, start uint64) { return os.Getpid(), startTime(os.Getpid()) }
