package netio

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

// Sent is what one Send did.
type Sent struct {
	Packets uint64
	Bytes   uint64
	Failed  uint64 // the packets that have them have Drop set to counters.DropSend
}

// Answers in a row that go to one client and have one length, but for a shorter
// last one, are given to the kernel as one message, which it cuts where the
// device does not (UDP generic segmentation offload, udp(7)): the way through
// the kernel, four fifths of what an answer costs, is gone once. Balancers,
// forwarders and test tools send many queries from one port; where each query
// has its own, nothing is grouped and nothing lost.
const (
	// maxSegment is the longest answer that is grouped: it fits the least MTU of
	// IPv6, so that no device has to refuse it for its length.
	maxSegment = 1232

	maxGroup      = 64                    // segments; UDP_MAX_SEGMENTS of older kernels
	maxGroupBytes = burst.MaxPayload - 40 // behind the larger header of IPv6
)

// segmentSpace is the octets that the control message with the length of the
// segments takes.
const segmentSpace = (unix.SizeofCmsghdr + 2 + 7) &^ 7

// putSegment writes the control message that has the kernel cut what goes with
// it into datagrams of size octets.
func putSegment(control []byte, size int) {
	binary.NativeEndian.PutUint64(control, unix.SizeofCmsghdr+2)
	binary.NativeEndian.PutUint32(control[8:], unix.SOL_UDP)
	binary.NativeEndian.PutUint32(control[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint64(control[16:], 0)
	binary.NativeEndian.PutUint16(control[16:], uint16(size))
}

// cutsMessages reports whether the kernel knows UDP_SEGMENT. Those before 4.18
// do not, and take a message that asks for it by a control message as one large
// datagram.
var cutsMessages = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	return err == nil
})

// group is the message that is being filled.
type group struct {
	first   *burst.Packet // nil: no other answer may join
	size    int           // octets of each segment but the last
	parts   int           // packets
	answers int
	bytes   int
}

// joins reports whether p may go along with the answers of g.
func (u *UDP) joins(g *group, p *burst.Packet) bool {
	if g.first == nil || len(p.Reply) == 0 || g.bytes+len(p.Reply) > maxGroupBytes || g.answers+p.Answers() > maxGroup {
		return false
	}
	if p.Segment != 0 && int(p.Segment) != g.size || p.Segment == 0 && len(p.Reply) > g.size {
		return false
	}
	return p.Remote == g.first.Remote && (!u.Wildcard || p.Local == g.first.Local && p.IfIndex == g.first.IfIndex)
}

// Send sends the answers of out through u. It never blocks: what the kernel
// does not take at once is dropped and counted.
func (b *Batch) Send(u *UDP, out *burst.Burst) Sent {
	messages, parts := 0, 0
	var g group
	for i := range out.N {
		p := &out.Packets[i]
		if len(p.Reply) == 0 && !p.Empty {
			continue
		}
		b.txIndex[parts] = uint8(i)
		b.txIov[parts] = iovec(p.Reply)
		if u.joins(&g, p) {
			if g.answers == 1 {
				b.segment(messages-1, g.size)
			}
			g.parts++
			g.answers += p.Answers()
			g.bytes += len(p.Reply)
			b.tx[messages-1].hdr.SetIovlen(g.parts)
			if len(p.Reply)%g.size != 0 { // nothing may follow a shorter one
				g.first = nil
			}
		} else {
			b.message(u, messages, parts, p)
			messages++
			g = group{size: len(p.Reply), parts: 1, answers: p.Answers(), bytes: len(p.Reply)}
			if p.Segment != 0 {
				g.size = int(p.Segment)
				b.segment(messages-1, g.size)
			}
			if g.size > 0 && g.size <= maxSegment && len(p.Reply)%g.size == 0 && u.segments.Load() {
				g.first = p
			}
		}
		parts++
	}
	var s Sent
	for at := 0; at < messages; {
		n, errno := sendMessages(u, &b.tx[at], messages-at)
		switch {
		case errno == unix.EINTR:
		case errno != 0: // about the first message only: go on with the next
			if b.tx[at].hdr.Iovlen > 1 || out.Packets[b.txIndex[b.txFirst[at]]].Segment != 0 {
				b.sendSingly(u, out, at, errno, &s)
			} else {
				b.fail(out, int(b.txFirst[at]), &s)
			}
			at++
		default:
			for end := at + n; at < end; at++ {
				first := int(b.txFirst[at])
				parts := b.txIov[first : first+int(b.tx[at].hdr.Iovlen)]
				for i := range parts {
					s.Bytes += parts[i].Len
					s.Packets += uint64(out.Packets[b.txIndex[first+i]].Answers())
				}
			}
		}
	}
	return s
}

// message makes message m out of p, whose answer is part first.
func (b *Batch) message(u *UDP, m, first int, p *burst.Packet) {
	h := &b.tx[m].hdr
	b.txFirst[m] = uint8(first)
	h.Iov = &b.txIov[first]
	h.SetIovlen(1)
	h.Namelen = uint32(u.encodeName(b.txName[m][:], &p.Remote))
	h.Control = nil
	n := u.encodeControl(b.txCtl[m][:], p)
	if h.SetControllen(n); n != 0 {
		h.Control = &b.txCtl[m][0]
	}
}

// segment tells the kernel to cut message m into datagrams of size octets.
func (b *Batch) segment(m, size int) {
	h := &b.tx[m].hdr
	at := int(h.Controllen)
	putSegment(b.txCtl[m][at:at+segmentSpace], size)
	h.Control = &b.txCtl[m][0]
	h.SetControllen(at + segmentSpace)
}

// sendSingly sends the answers of message m, which the kernel has not taken for
// errno, each by itself.
func (b *Batch) sendSingly(u *UDP, out *burst.Burst, m int, errno unix.Errno, s *Sent) {
	first, n := int(b.txFirst[m]), int(b.tx[m].hdr.Iovlen)
	switch errno {
	case unix.EIO, unix.EINVAL, unix.EMSGSIZE, unix.EOPNOTSUPP:
		if out.Packets[b.txIndex[first]].Segment <= maxSegment {
			u.segments.Store(false) // not on this device, or not with this MTU: do not ask again
		}
	}
	h := &b.one.hdr
	*h = b.tx[m].hdr
	h.SetControllen(int(h.Controllen) - segmentSpace)
	if h.Controllen == 0 {
		h.Control = nil
	}
	h.SetIovlen(1)
	h.Iov = &b.oneIov
	for i := first; i < first+n; i++ {
		p := &out.Packets[b.txIndex[i]]
		failed := s.Failed
		for rest := p.Reply; len(rest) > 0; {
			var one []byte
			one, rest = p.Cut(rest)
			b.oneIov = iovec(one)
			errno := unix.EINTR
			for errno == unix.EINTR {
				_, errno = sendMessages(u, &b.one, 1)
			}
			if errno != 0 {
				s.Failed++
				continue
			}
			s.Packets++
			s.Bytes += uint64(len(one))
		}
		if s.Failed != failed {
			p.Reply, p.Drop = p.Reply[:0], counters.DropSend
		}
	}
}

// fail drops the answer that is part i.
func (b *Batch) fail(out *burst.Burst, i int, s *Sent) {
	p := &out.Packets[b.txIndex[i]]
	p.Reply, p.Empty, p.Drop = p.Reply[:0], false, counters.DropSend
	s.Failed++
}

// sendMessages is sendmmsg(2) for the n messages from first on.
func sendMessages(u *UDP, first *mmsghdr, n int) (int, unix.Errno) {
	k, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(u.FD), uintptr(unsafe.Pointer(first)), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	return int(k), errno
}
