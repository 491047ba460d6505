package netio

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

// Peers moves the datagrams of connected sockets, for one lane. It is made once
// and serves all of them.
type Peers struct {
	mem      []byte // payload buffers, mapped outside the Go heap
	rx, tx   [burst.Max]mmsghdr
	rxIov    [burst.Max]unix.Iovec
	txIov    [burst.Max]unix.Iovec
	rxCtl    [burst.Max][groupSpace]byte
	control  [segmentSpace]byte
	segments int // largest segment that the kernel has not refused; 0: it cuts nothing
}

// NewPeers returns the buffers of one lane: 4 MiB, of which only the pages that
// datagrams touch take memory.
func NewPeers() (*Peers, error) {
	mem, err := unix.Mmap(-1, 0, burst.Max*stride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mapping datagram buffers: %w", err)
	}
	p := &Peers{mem: mem}
	if cutsMessages() {
		p.segments = burst.MaxPayload
	}
	for i := range burst.Max {
		p.rxIov[i] = unix.Iovec{Base: &mem[i*stride], Len: 1 << 16}
		p.rx[i].hdr = unix.Msghdr{Iov: &p.rxIov[i], Iovlen: 1, Control: &p.rxCtl[i][0]}
		p.rx[i].hdr.SetControllen(groupSpace)
	}
	return p, nil
}

// Close gives the buffers back.
func (p *Peers) Close() error { return unix.Munmap(p.mem) }

// Recv appends what fd has received to out, as answers, as far as there is room,
// and returns how many packets that were. Fewer than there was room for mean
// that the socket was found empty. Datagrams of one length that came in a row may be
// one packet (UDP_GRO): the way through the kernel, most of what one costs, is gone
// once. Its errors are those of recvmmsg(2): EAGAIN
// where there was nothing, and what an ICMP message has said about an earlier
// datagram.
func (p *Peers) Recv(fd int, out *burst.Burst) (int, error) {
	at := out.N
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&p.rx[at])), uintptr(burst.Max-at), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	for i := at; i < at+int(n); i++ {
		q := &out.Packets[i]
		q.Reply = p.mem[i*stride : i*stride+int(p.rx[i].len)]
		q.Empty = len(q.Reply) == 0
		q.Drop, q.Class = counters.NotDropped, counters.ClassPlain
		h := &p.rx[i].hdr
		q.Segment = groupSegment(p.rxCtl[i][:h.Controllen], len(q.Reply))
		h.SetControllen(groupSpace)
	}
	out.N += int(n)
	return int(n), nil
}

// Send sends the payloads of those packets of b that which lists, in that order,
// with header before the first one, and returns how many the kernel took before
// an error. It never blocks.
func (p *Peers) Send(fd int, b *burst.Burst, which []uint8, header []byte) (int, error) {
	sent := 0
	if len(header) > 0 {
		if err := p.sendHeaded(fd, b.Packets[which[0]].Payload, header); err != nil {
			return 0, err
		}
		sent++
	}
	for sent < len(which) {
		rest := which[sent:]
		var n int
		var err error
		switch k := segmentable(b, rest, p.segments); {
		case k > 1:
			if n, err = p.sendSegments(fd, b, rest[:k]); n == 0 && err == nil {
				continue // refused for its size: it goes as datagrams
			}
		case len(rest) == 1:
			n, err = p.sendOne(fd, b.Packets[rest[0]].Payload)
		default:
			n, err = p.sendMany(fd, b, rest)
		}
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// empty is where the iovec of a datagram without payload points.
var empty [1]byte

func iovec(payload []byte) unix.Iovec {
	if len(payload) == 0 {
		return unix.Iovec{Base: &empty[0]}
	}
	return unix.Iovec{Base: &payload[0], Len: uint64(len(payload))}
}

func (p *Peers) sendHeaded(fd int, payload, header []byte) error {
	p.txIov[0], p.txIov[1] = iovec(header), iovec(payload)
	p.tx[0].hdr = unix.Msghdr{Iov: &p.txIov[0], Iovlen: 2}
	return p.sendmsg(fd)
}

// sendmsg sends the first message.
func (p *Peers) sendmsg(fd int) error {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&p.tx[0].hdr)), unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}

func (p *Peers) sendOne(fd int, payload []byte) (int, error) {
	v := iovec(payload)
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(v.Base)), uintptr(v.Len), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return 1, nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}

// sendSegments sends datagrams of one size as one, which the kernel, or the
// network card, takes apart. It returns 0 and no error where that cannot be done
// for datagrams of this size, and remembers it.
func (p *Peers) sendSegments(fd int, b *burst.Burst, which []uint8) (int, error) {
	for n, i := range which {
		p.txIov[n] = iovec(b.Packets[i].Payload)
	}
	size := len(b.Packets[which[0]].Payload)
	putSegment(p.control[:], size)
	h := unix.Msghdr{Iov: &p.txIov[0], Iovlen: uint64(len(which)), Control: &p.control[0]}
	h.SetControllen(segmentSpace)
	p.tx[0].hdr = h
	err := p.sendmsg(fd)
	switch {
	case err == nil:
		return len(which), nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EIO), errors.Is(err, unix.EMSGSIZE): // larger than the MTU, or a device that cannot
		p.segments = size - 1
		return 0, nil
	}
	return 0, err
}

func (p *Peers) sendMany(fd int, b *burst.Burst, which []uint8) (int, error) {
	for n, i := range which {
		p.txIov[n] = iovec(b.Packets[i].Payload)
		p.tx[n].hdr = unix.Msghdr{Iov: &p.txIov[n], Iovlen: 1}
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&p.tx[0])), uintptr(len(which)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}
