package netio

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
)

// OpenICMP returns raw sockets to send ICMP and ICMPv6 by, for ICMP. They receive
// nothing. It needs CAP_NET_RAW.
func OpenICMP() (v4, v6 int, err error) {
	v4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
	if err != nil {
		return -1, -1, fmt.Errorf("opening a raw socket for ICMP: %w", err)
	}
	const all = -1 // every type is filtered out
	if err = unix.SetsockoptInt(v4, unix.SOL_RAW, unix.ICMP_FILTER, all); err != nil {
		unix.Close(v4)
		return -1, -1, fmt.Errorf("opening a raw socket for ICMP: ICMP_FILTER: %w", err)
	}
	v6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6)
	if err != nil { // a host without IPv6 has no clients by it
		return v4, -1, nil
	}
	var filter unix.ICMPv6Filter
	for i := range filter.Data {
		filter.Data[i] = 0xffffffff
	}
	if err = unix.SetsockoptICMPv6Filter(v6, unix.SOL_ICMPV6, unix.ICMPV6_FILTER, &filter); err != nil {
		unix.Close(v4)
		unix.Close(v6)
		return -1, -1, fmt.Errorf("opening a raw socket for ICMPv6: ICMPV6_FILTER: %w", err)
	}
	return v4, v6, nil
}

// ICMP tells clients that nobody serves what they sent to. It is safe for
// concurrent use.
type ICMP struct{ v4, v6 int }

// NewICMP wraps sockets of OpenICMP; 0 and less is none, and nothing is sent.
func NewICMP(v4, v6 int) *ICMP { return &ICMP{v4, v6} }

const (
	unreachable4, port4 = 3, 3 // destination unreachable, port (RFC 792)
	unreachable6, port6 = 1, 4 // the same (RFC 4443 3.1)

	icmpHead = 8
	ip4Head  = 20
	ip6Head  = 40
	udpHead  = 8
)

// Unreachable tells remote that the port of local is unreachable, as the host of
// local would if nothing were bound there. What cannot be sent at once is not
// sent: nobody relies on ICMP.
func (c *ICMP) Unreachable(local, remote *burst.Endpoint) {
	var b [icmpHead + ip6Head + udpHead]byte
	udp := func(at int) {
		binary.BigEndian.PutUint16(b[at:], remote.Port)
		binary.BigEndian.PutUint16(b[at+2:], local.Port)
		binary.BigEndian.PutUint16(b[at+4:], udpHead)
	}
	if remote.Is4() {
		if c.v4 <= 0 {
			return
		}
		const n = icmpHead + ip4Head + udpHead
		b[0], b[1] = unreachable4, port4
		ip := b[icmpHead:]
		ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(ip[2:], ip4Head+udpHead)
		copy(ip[12:], remote.IP[12:])
		copy(ip[16:], local.IP[12:])
		binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ip4Head]))
		udp(icmpHead + ip4Head)
		binary.BigEndian.PutUint16(b[2:], checksum(b[:n]))
		to := unix.SockaddrInet4{Addr: [4]byte(remote.IP[12:])}
		_ = unix.Sendto(c.v4, b[:n], unix.MSG_DONTWAIT, &to)
		return
	}
	if c.v6 <= 0 {
		return
	}
	b[0], b[1] = unreachable6, port6 // the kernel adds the checksum
	ip := b[icmpHead:]
	ip[0], ip[6], ip[7] = 0x60, unix.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(ip[4:], udpHead)
	copy(ip[8:], remote.IP[:])
	copy(ip[24:], local.IP[:])
	udp(icmpHead + ip6Head)
	to := unix.SockaddrInet6{Addr: remote.IP, ZoneId: remote.Scope}
	_ = unix.Sendto(c.v6, b[:], unix.MSG_DONTWAIT, &to)
}

// checksum is the Internet checksum of b (RFC 1071), of an even length.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
