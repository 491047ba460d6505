//go:build dpdk

package eal

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poller looks at queues and rings, and waits for them, in one call. It is for the
// goroutine locked to the thread of Init.
type Poller struct{ p *C.struct_dn_poll }

// NewPoller returns a Poller that looks at nothing.
func NewPoller() *Poller {
	c := C.calloc(1, C.sizeof_struct_dn_poll)
	p := &Poller{(*C.struct_dn_poll)(c)}
	runtime.AddCleanup(p, func(c unsafe.Pointer) { C.free(c) }, c)
	return p
}

// Watch says what Poll looks at from now on.
func (p *Poller) Watch(queues []Queue, rings []Ring) {
	if len(queues) > len(p.p.queue) || len(rings) > len(p.p.ring) {
		panic(fmt.Sprintf("eal: watching %d queues and %d rings", len(queues), len(rings)))
	}
	for i, q := range queues {
		p.p.queue[i].port, p.p.queue[i].queue = C.uint16_t(q.Port), C.uint16_t(q.Index)
	}
	for i, r := range rings {
		p.p.ring[i] = C.uint32_t(r)
	}
	p.p.queues, p.p.rings, p.p.next = C.uint32_t(len(queues)), C.uint32_t(len(rings)), 0
}

// Poll receives into b, which is empty, from the first queue that has packets, and
// returns how many and the index of that queue. Where no queue has any, and all rings
// are empty, it goes on looking for spin and then sleeps for at most sleep (a few
// milliseconds; 0: not at all), or until wake, an eventfd, is written to; without spin it
// sleeps before it looks. ringing: some ring is not empty.
//
// While it sleeps it keeps its P, as a lane of sockets does at first: told of each
// sleep, the scheduler's monitor would look every 20 us whether to take the P away, which
// takes more time than all the sleeps.
func (p *Poller) Poll(b *Burst, spin, sleep time.Duration, wake int) (n, queue int, ringing bool) {
	if spin == 0 && sleep > 0 { // it has looked a moment ago
		doze(sleep, wake)
		sleep = 0
	}
	for {
		b.N = int(C.dn_poll(p.p, b.first(0), MaxBurst, C.uint(spin)))
		if ringing = bool(p.p.ringing); b.N > 0 || ringing || sleep == 0 {
			return b.N, int(p.p.from), ringing
		}
		doze(sleep, wake)
		spin, sleep = 0, 0 // and looks once more
	}
}

// doze sleeps for d, or until wake is written to.
func doze(d time.Duration, wake int) {
	f := unix.PollFd{Fd: int32(wake), Events: unix.POLLIN}
	t := unix.NsecToTimespec(int64(d))
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&f)), 1, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
	if int(n) == 1 {
		var count uint64 // somebody else may have read it: that is all the same
		_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(wake), uintptr(unsafe.Pointer(&count)), unsafe.Sizeof(count))
	}
}
