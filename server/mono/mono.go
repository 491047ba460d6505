// Package mono is the one clock of the data path: CLOCK_MONOTONIC, which every
// process of this machine (and time namespace) reads alike, so that a stamp
// written by one process can be compared by another.
//
// A time.Time cannot be shared between processes (its monotonic part counts
// from the start of its own process), and unix.ClockGettime is a real system
// call. So the offset between the two is taken once, and a reading costs what
// time.Since costs. Two processes read the same instant microseconds apart, where the
// machine is too busy to let a process start undisturbed up to a millisecond or so:
// every comparison of stamps is signed (see Age).
package mono

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

var start, base = origin()

// origin pairs one reading of the process clock with one of CLOCK_MONOTONIC. The
// thread may lose its processor between them, so of several pairs it takes the one
// that was read in the shortest time.
func origin() (best time.Time, ns int64) {
	const (
		pairs = 16
		tight = 2 * time.Microsecond // no better one is worth a wait
	)
	took := time.Duration(-1)
	for range pairs {
		var ts unix.Timespec
		t := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			panic(fmt.Sprintf("reading CLOCK_MONOTONIC: %v", err)) // cannot fail on Linux
		}
		if d := time.Since(t); took < 0 || d < took {
			best, ns, took = t, ts.Nano(), d
		}
		if took < tight {
			break
		}
	}
	return best, ns
}

// Now returns nanoseconds of CLOCK_MONOTONIC. It makes no system call.
func Now() int64 { return base + int64(time.Since(start)) }

// Millis returns Now in milliseconds, modulo 2^32 (it wraps every 49.7 days).
func Millis() uint32 { return uint32(Now() / int64(time.Millisecond)) }

// Age returns how many milliseconds stamp lies before now, signed: it is
// negative when the stamp was written by a process whose clock reads ahead.
// It is right for ages up to 2^31 ms (24.8 days).
func Age(now, stamp uint32) int32 { return int32(now - stamp) }

// Until returns the duration from now to the millisecond stamp deadline,
// negative when it has passed.
func Until(deadline uint32) time.Duration {
	return time.Duration(Age(deadline, Millis())) * time.Millisecond
}
