package shm

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The operations of futex(2), of words that processes share.
const (
	futexWait = 0
	futexWake = 1
)

// Await waits until Raise is called on word, which lies in a region, while it is
// still seen, but for at most d. It may return early. The thread keeps its P
// meanwhile, so d is to be a few milliseconds: in return nobody has to hand it over
// when the wait is over.
func Await(word *atomic.Uint32, seen uint32, d time.Duration) {
	if d <= 0 {
		return
	}
	timeout := unix.NsecToTimespec(int64(d))
	// What a failure means (the word has moved, a signal, the time is over) the
	// caller learns by looking.
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(seen), uintptr(unsafe.Pointer(&timeout)), 0, 0)
}

// Raise adds one to word and ends every Await on it, in whichever process. It returns
// how many there were.
func Raise(word *atomic.Uint32) int {
	word.Add(1)
	n, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0)
	if errno != 0 { // never: the word is mapped
		return 0
	}
	return int(n)
}
