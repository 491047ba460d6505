package netio

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
)

// DialUDP returns a socket that is connected to a server, with a port of its own
// that no other socket of this host has. It leaves from source, or from where the
// kernel chooses if that is not valid; from is what it leaves from. EAGAIN and
// EADDRNOTAVAIL mean that source has no port left.
func DialUDP(server netip.AddrPort, source netip.Addr) (fd int, from netip.AddrPort, err error) {
	if fd, err = dialUDP(server, netip.AddrPortFrom(source, 0), false); err != nil {
		return -1, from, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return -1, from, fmt.Errorf("dialling udp %v: getsockname: %w", server, err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		from = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return fd, from, nil
}

// DialUDPAs is DialUDP with the address and port of somebody else
// (IP_TRANSPARENT). It needs CAP_NET_RAW or CAP_NET_ADMIN.
func DialUDPAs(server, client netip.AddrPort) (int, error) { return dialUDP(server, client, true) }

func dialUDP(server, source netip.AddrPort, transparent bool) (int, error) {
	to, family := Sockaddr(server)
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("dialling udp %v: socket: %w", server, err)
	}
	fail := func(what string, err error) (int, error) {
		unix.Close(fd)
		return -1, fmt.Errorf("dialling udp %v: %s: %w", server, what, err)
	}
	// Datagrams of any size pass: what does not fit the path is fragmented.
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT)
	}
	if err != nil {
		return fail("MTU_DISCOVER", err)
	}
	// What comes in a row arrives as one where the kernel knows how (Linux 5.0).
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	if transparent {
		option, level := unix.IP_TRANSPARENT, unix.IPPROTO_IP
		if family == unix.AF_INET6 {
			option, level = unix.IPV6_TRANSPARENT, unix.IPPROTO_IPV6
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return fail("IP_TRANSPARENT", err)
		}
		// One client has flows at several servers, and in two generations.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fail("SO_REUSEADDR", err)
		}
	}
	if source.Addr().IsValid() {
		from, _ := Sockaddr(source)
		if err := unix.Bind(fd, from); err != nil {
			return fail("bind", err)
		}
	}
	if err := unix.Connect(fd, to); err != nil {
		return fail("connect", err)
	}
	return fd, nil
}

// Close closes a socket of DialUDP. An error has no remedy.
func Close(fd int) { _ = unix.Close(fd) }

// groupSpace is the octets that the control message with the length of the datagrams
// of a group takes: an int.
const groupSpace = (unix.SizeofCmsghdr + 4 + 7) &^ 7

// groupSegment returns what this control message says of a message of size octets: the
// length of its datagrams, 0 if it is one.
func groupSegment(control []byte, size int) uint16 {
	if len(control) < unix.SizeofCmsghdr+4 || binary.NativeEndian.Uint32(control[8:]) != unix.SOL_UDP || binary.NativeEndian.Uint32(control[12:]) != unix.UDP_GRO {
		return 0
	}
	if n := binary.NativeEndian.Uint32(control[unix.SizeofCmsghdr:]); n > 0 && int(n) < size {
		return uint16(n)
	}
	return 0
}

// maxHeaders leaves room for the headers of IPv6 in what is segmented.
const maxHeaders = 64

// segmentable reports how many datagrams of b, beginning with which[0], can leave
// as one with segments (UDP_SEGMENT): all have the size of the first, the last may
// be shorter. 1 means none.
func segmentable(b *burst.Burst, which []uint8, limit int) int {
	size := len(b.Packets[which[0]].Payload)
	if size == 0 || size > limit {
		return 1
	}
	total, n := size, 1
	for _, i := range which[1:] {
		next := len(b.Packets[i].Payload)
		if next == 0 || next > size || total+next > burst.MaxPayload-maxHeaders {
			break
		}
		total += next
		n++
		if next < size {
			break
		}
	}
	return n
}
