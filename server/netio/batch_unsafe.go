package netio

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// Batch holds the buffers of one lane: one burst in, one burst out. It is made
// once and moves every datagram of every socket of that lane.
type Batch struct {
	mem     []byte // payload buffers, rx then tx; mapped outside the Go heap
	rx, tx  [burst.Max]mmsghdr
	rxIov   [burst.Max]unix.Iovec
	txIov   [burst.Max]unix.Iovec
	rxName  [burst.Max][nameSize]byte
	txName  [burst.Max][nameSize]byte
	rxCtl   [burst.Max][controlSize]byte
	txCtl   [burst.Max][controlSize]byte
	txIndex [burst.Max]uint8 // packet behind each of txIov
	txFirst [burst.Max]uint8 // the first of txIov of each message to send
	one     mmsghdr          // a message that is sent alone
	oneIov  unix.Iovec       // of a part of a packet in it
}

// NewBatch returns the buffers of one lane. Of their 8 MiB only the pages that
// datagrams touch take memory.
func NewBatch() (*Batch, error) {
	mem, err := unix.Mmap(-1, 0, 2*burst.Max*stride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mapping datagram buffers: %w", err)
	}
	b := &Batch{mem: mem}
	for i := range burst.Max {
		in := mem[i*stride:]
		b.rxIov[i] = unix.Iovec{Base: &in[0], Len: 1 << 16}
		b.rx[i].hdr = unix.Msghdr{Name: &b.rxName[i][0], Iov: &b.rxIov[i], Iovlen: 1, Control: &b.rxCtl[i][0]}
		b.tx[i].hdr = unix.Msghdr{Name: &b.txName[i][0]}
	}
	return b, nil
}

// Close gives the buffers back. No burst of b may be in use.
func (b *Batch) Close() error { return unix.Munmap(b.mem) }

// reply returns the empty answer buffer of packet i.
func (b *Batch) reply(i int) []byte {
	at := (burst.Max + i) * stride
	return b.mem[at : at : at+burst.MaxPayload]
}

// Prepare gives the first n packets of out empty answer buffers, for bursts
// that were not filled by Recv.
func (b *Batch) Prepare(out *burst.Burst, n int) {
	for i := range n {
		p := &out.Packets[i]
		p.Reply, p.Drop, p.Class = b.reply(i), counters.NotDropped, counters.ClassPlain
	}
	out.N = n
}

// Recv and Send do not tell the scheduler of their system calls. These never
// block, and they take a few hundred microseconds at most; but sysmon takes the
// P from a busy lane that it meets inside an announced one, once in 10 ms, and
// then looks every 20 us whether it should do so again: 4% of the time of a
// lane at 20,000 packets a second.

// Recv reads up to burst.Max datagrams of u into out. Fewer than burst.Max
// mean that the socket was found empty. payload is their length in bytes. A datagram longer than the buffer, or
// one without a usable source, has its Drop set. It returns unix.EAGAIN where
// there was none at all.
func (b *Batch) Recv(u *UDP, out *burst.Burst) (payload uint64, err error) {
	out.N = 0
	controlLen := uint64(0)
	if u.Wildcard {
		controlLen = controlSize
	}
	for i := range burst.Max {
		h := &b.rx[i].hdr
		h.Namelen = nameSize
		h.Controllen = controlLen
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(u.FD), uintptr(unsafe.Pointer(&b.rx[0])), burst.Max, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	for i := range int(n) {
		h := &b.rx[i]
		p := &out.Packets[i]
		p.Payload = b.mem[i*stride : i*stride+int(h.len)]
		p.Reply, p.Drop, p.Class = b.reply(i), counters.NotDropped, counters.ClassPlain
		u.parse(p, b.rxName[i][:h.hdr.Namelen], b.rxCtl[i][:h.hdr.Controllen])
		switch {
		case h.hdr.Flags&unix.MSG_TRUNC != 0:
			p.Drop = counters.DropTruncated
		case p.Remote.Port == 0:
			p.Drop = counters.DropBadEndpoint
		}
		payload += uint64(h.len)
	}
	out.N = int(n)
	return payload, nil
}

// Drops returns how many datagrams the kernel has dropped on the socket since
// it was made, modulo 2^32, for want of buffer space or for a bad checksum
// (SO_MEMINFO).
func Drops(fd int) (uint64, error) { return memInfo(fd, 8) } // SK_MEMINFO_DROPS

// Queued returns how many bytes of its buffer the datagrams take that wait on
// the socket.
func Queued(fd int) (uint64, error) { return memInfo(fd, 0) } // SK_MEMINFO_RMEM_ALLOC

// memInfo returns one word of SO_MEMINFO.
func memInfo(fd, word int) (uint64, error) {
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("reading the memory of descriptor %d: SO_MEMINFO: %w", fd, errno)
	}
	return uint64(info[word]), nil
}

// epollWait is epoll_wait(2) for at most ms milliseconds, without a word to the
// scheduler: the thread keeps its P.
func epollWait(fd int, events []unix.EpollEvent, ms int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(ms), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
