// Package priority lets a process have its turn sooner while somebody waits for it.
//
// Invariant: it is the whole process that is in haste, or none of it: niceness belongs
// to threads, and a new one has that of the thread that made it, so Set goes on until it
// has seen all threads with the same.
//
// Raising a priority takes CAP_SYS_NICE, or a limit that permits it (RLIMIT_NICE,
// LimitNICE= of systemd): without, Set fails and everything goes on as it would have.
// Giving it back is always permitted.
package priority

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// haste is what a process that is in haste has less of niceness: about three times the
// weight where it competes for a processor.
const haste = 5

// idle is what somebody has more of it who takes what others leave.
const idle = 10

// The range of niceness.
const (
	lowest  = -20
	highest = 19
)

// Hasty returns the niceness of somebody in haste who has nice otherwise.
func Hasty(nice int) int { return max(nice-haste, lowest) }

// Idle returns the niceness of somebody who takes what others leave.
func Idle(nice int) int { return min(nice+idle, highest) }

// Niceness returns that of the calling thread, -20 to 19.
func Niceness() (int, error) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return 0, fmt.Errorf("reading the niceness: getpriority: %w", err)
	}
	return highest + 1 - raw, nil
}

// Set gives every thread of this process the niceness, -20 to 19. Its error matches
// unix.EACCES where it is lower than what they have and that is not permitted.
func Set(nice int) error {
	for changed := true; changed; {
		changed = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing threads: %w", err)
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
			if err != nil || highest+1-raw == nice {
				continue // it has ended, or is done
			}
			changed = true
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && err != unix.ESRCH {
				return fmt.Errorf("setting the niceness to %d: setpriority: %w", nice, err)
			}
		}
	}
	return nil
}

// SetThread gives the calling thread, which is locked to its goroutine, the niceness.
// Processes that it starts have it, too. Its error is that of Set.
func SetThread(nice int) error {
	if now, err := Niceness(); err == nil && now == nice {
		return nil
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil {
		return fmt.Errorf("setting the niceness to %d: setpriority: %w", nice, err)
	}
	return nil
}
