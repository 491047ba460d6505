package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// transmit is the scratch memory of one sendmmsg call.
type transmit struct {
	m    [batchSize]mmsghdr
	iov  [batchSize]unix.Iovec
	buf  [batchSize][]byte
	flow [batchSize]*flow
}

// sendBatch sends up to n requests, of consecutive flows of one socket, and
// returns how many turns were used. A request that the kernel refuses is
// counted as skipped: the server has never seen it.
func (g *UDP) sendBatch(n int, now time.Duration) int {
	b := &g.tx
	src := g.order[g.cursor].source
	filled := 0
	for filled < n && g.cursor+filled < len(g.order) && g.order[g.cursor+filled].source == src {
		f := g.order[g.cursor+filled].flow
		b.buf[filled] = g.c.Protocol.AppendRequest(b.buf[filled][:0], f.index, f.next)
		b.iov[filled].Base = &b.buf[filled][0]
		b.iov[filled].SetLen(len(b.buf[filled]))
		h := &b.m[filled].hdr
		*h = unix.Msghdr{Name: &f.target[0], Namelen: uint32(len(f.target)), Iov: &b.iov[filled], Iovlen: 1}
		if f.control != nil {
			h.Control = &f.control[0]
			h.SetControllen(len(f.control))
		}
		b.flow[filled] = f
		filled++
	}
	sent, err := sendmmsg(src.fd, b.m[:filled])
	if err != nil {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			g.report.fail(fmt.Errorf("sending to %v: %w", src.target, err))
		}
		sent = 0
	}
	for _, f := range b.flow[:sent] {
		f.slots[f.next%uint32(len(f.slots))] = slot{at: now, seq: f.next, state: slotOpen}
		f.next++
		// A request that is still open when its slot is needed stays lost.
		f.oldest = max(f.oldest, f.next-min(f.next, uint32(len(f.slots))))
	}
	g.report.Sent += uint64(sent)
	g.report.Skipped += uint64(filled - sent)
	g.cursor = (g.cursor + filled) % len(g.order)
	return filled
}

// receive is the scratch memory of one recvmmsg call.
type receive struct {
	m       [batchSize]mmsghdr
	iov     [batchSize]unix.Iovec
	buf     [batchSize][maxDatagram]byte
	name    [batchSize][unix.SizeofSockaddrInet6]byte
	control [batchSize][maxControl]byte
}

// fill receives up to a batch.
func (b *receive) fill(fd int) (int, error) {
	for i := range b.m {
		b.iov[i].Base = &b.buf[i][0]
		b.iov[i].SetLen(maxDatagram)
		h := &b.m[i].hdr
		*h = unix.Msghdr{Name: &b.name[i][0], Namelen: unix.SizeofSockaddrInet6, Iov: &b.iov[i], Iovlen: 1, Control: &b.control[i][0]}
		h.SetControllen(maxControl)
	}
	return recvmmsg(fd, b.m[:])
}

// datagram returns datagram i of the batch, who sent it and to which address.
func (b *receive) datagram(i int) (payload []byte, from netip.AddrPort, at netip.Addr) {
	h := &b.m[i].hdr
	name := b.name[i][:h.Namelen]
	if len(name) >= unix.SizeofSockaddrInet4 {
		port := binary.BigEndian.Uint16(name[2:])
		switch binary.NativeEndian.Uint16(name) {
		case unix.AF_INET:
			from = netip.AddrPortFrom(netip.AddrFrom4([4]byte(name[4:8])), port)
		case unix.AF_INET6:
			from = netip.AddrPortFrom(netip.AddrFrom16([16]byte(name[8:24])), port)
		}
	}
	at, _ = arrivedAt(b.control[i][:h.Controllen])
	return b.buf[i][:b.m[i].len], from, at
}
