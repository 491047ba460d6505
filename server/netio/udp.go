package netio

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
)

// UDP is one lane's use of one UDP socket.
type UDP struct {
	FD       int
	ID       uint32         // socket id, as the directory lists it
	Answer   uint32         // id of the socket by which another process may answer; ID unless set
	Listener int            // index in the configuration
	Address  netip.AddrPort // it is bound to
	Wildcard bool           // bound to the unspecified address: PKTINFO in and out
	local    burst.Endpoint
	v6       bool
	segments atomic.Bool // the kernel cuts messages into datagrams; lanes that share u may all find out that it does not
}

// NewUDP wraps a socket of BindUDP that is bound to ap.
func NewUDP(fd int, id uint32, listener int, ap netip.AddrPort) *UDP {
	u := &UDP{
		FD: fd, ID: id, Answer: id, Listener: listener, Address: ap,
		Wildcard: ap.Addr().IsUnspecified(),
		local:    burst.EndpointOf(ap),
		v6:       ap.Addr().Is6() && !ap.Addr().Is4In6(),
	}
	u.segments.Store(cutsMessages())
	return u
}

const (
	nameSize    = unix.SizeofSockaddrInet6
	controlSize = 64 // PKTINFO of IPv6 takes 40, UDP_SEGMENT 24

	// stride separates the payload buffers. It holds the largest datagram, and
	// it is an odd number of cache lines, so that the heads of the buffers do
	// not fall into one set of the caches.
	stride = 1<<16 + 65*64
)

// parse fills p from what the kernel put beside the payload.
func (u *UDP) parse(p *burst.Packet, name, control []byte) {
	p.Socket = u.Answer
	p.Local = u.local
	p.IfIndex = 0
	p.ECN = 0
	p.Way = 0
	p.Hash = 0
	decodeName(&p.Remote, name)
	for len(control) >= unix.SizeofCmsghdr {
		n := int(binary.NativeEndian.Uint64(control)) // cmsg_len, a size_t
		if n < unix.SizeofCmsghdr || n > len(control) {
			break
		}
		level := binary.NativeEndian.Uint32(control[8:])
		typ := binary.NativeEndian.Uint32(control[12:])
		data := control[unix.SizeofCmsghdr:n]
		switch {
		case level == unix.IPPROTO_IP && typ == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			p.IfIndex = binary.NativeEndian.Uint32(data)
			p.Local.IP = mapped(data[4:8]) // ipi_spec_dst: the address asked; for a broadcast, ours
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			copy(p.Local.IP[:], data[:16])
			p.IfIndex = binary.NativeEndian.Uint32(data[16:])
		}
		next := (n + 7) &^ 7
		if next >= len(control) {
			break
		}
		control = control[next:]
	}
}

// mapped returns the IPv4-mapped form of a 4-byte address.
func mapped(a []byte) (ip [16]byte) {
	ip[10], ip[11] = 0xff, 0xff
	copy(ip[12:], a[:4])
	return ip
}

// decodeName sets e from a sockaddr_in or sockaddr_in6; from anything else it
// clears e.
func decodeName(e *burst.Endpoint, name []byte) {
	*e = burst.Endpoint{}
	if len(name) < 2 {
		return
	}
	switch family := binary.NativeEndian.Uint16(name); {
	case family == unix.AF_INET && len(name) >= 8:
		e.Port = binary.BigEndian.Uint16(name[2:])
		e.IP = mapped(name[4:8])
	case family == unix.AF_INET6 && len(name) >= unix.SizeofSockaddrInet6:
		e.Port = binary.BigEndian.Uint16(name[2:])
		copy(e.IP[:], name[8:24])
		e.Scope = binary.NativeEndian.Uint32(name[24:])
	}
}

// encodeName writes the socket address of e for a socket of u's family and
// returns its length.
func (u *UDP) encodeName(name []byte, e *burst.Endpoint) int {
	if !u.v6 {
		binary.NativeEndian.PutUint16(name, unix.AF_INET)
		binary.BigEndian.PutUint16(name[2:], e.Port)
		copy(name[4:8], e.IP[12:])
		clear(name[8:16])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(name, unix.AF_INET6)
	binary.BigEndian.PutUint16(name[2:], e.Port)
	clear(name[4:8])
	copy(name[8:24], e.IP[:])
	binary.NativeEndian.PutUint32(name[24:], e.Scope)
	return unix.SizeofSockaddrInet6
}

// encodeControl writes the PKTINFO message that makes the answer leave from
// p.Local, and returns its length with padding; 0 where the socket is bound to
// one address.
func (u *UDP) encodeControl(control []byte, p *burst.Packet) int {
	if !u.Wildcard {
		return 0
	}
	if u.v6 {
		const n = unix.SizeofCmsghdr + unix.SizeofInet6Pktinfo
		binary.NativeEndian.PutUint64(control, n)
		binary.NativeEndian.PutUint32(control[8:], unix.IPPROTO_IPV6)
		binary.NativeEndian.PutUint32(control[12:], unix.IPV6_PKTINFO)
		copy(control[16:32], p.Local.IP[:])
		ifindex := uint32(0)
		if p.Local.IP[0] == 0xfe && p.Local.IP[1]&0xc0 == 0x80 { // link-local: only its interface has it
			ifindex = p.IfIndex
		}
		binary.NativeEndian.PutUint32(control[32:], ifindex)
		clear(control[n : (n+7)&^7])
		return (n + 7) &^ 7
	}
	const n = unix.SizeofCmsghdr + unix.SizeofInet4Pktinfo
	binary.NativeEndian.PutUint64(control, n)
	binary.NativeEndian.PutUint32(control[8:], unix.IPPROTO_IP)
	binary.NativeEndian.PutUint32(control[12:], unix.IP_PKTINFO)
	clear(control[16:32])
	copy(control[20:24], p.Local.IP[12:]) // ipi_spec_dst: the source of the answer
	return (n + 7) &^ 7
}

// discardMax bounds what Discard takes: clients may send on.
const discardMax = 1 << 20

// Discard throws away the datagrams that wait on a UDP socket, and returns how many
// there were.
func Discard(fd int) (n uint64) {
	var none [1]byte
	for range discardMax {
		switch _, _, err := unix.Recvfrom(fd, none[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC); {
		case err == nil:
			n++
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOTSOCK):
			return n
		default: // a signal, or an ICMP error of an earlier answer
		}
	}
	return n
}
