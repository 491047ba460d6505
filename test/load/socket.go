package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	// recvBuffer holds two seconds of answers at 50k/s: the generator may be
	// off the CPU for long when the server has both cores.
	recvBuffer = 64 << 20

	maxDatagram = 4096

	cmsgHeader = 16 // struct cmsghdr on 64-bit Linux
	maxControl = 64
)

// openSocket returns a non-blocking UDP socket bound to any address and a free
// port, for datagrams to a target of the family of target.
func openSocket(target netip.Addr) (fd int, err error) {
	family, level, pktinfo := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	var any unix.Sockaddr = &unix.SockaddrInet6{}
	if target.Is4() {
		family, level, pktinfo = unix.AF_INET, unix.IPPROTO_IP, unix.IP_PKTINFO
		any = &unix.SockaddrInet4{}
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a load socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, recvBuffer) != nil {
		// Not root: what the kernel allows must do, and KernelDrops says whether it did.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer)
	}
	if err := unix.SetsockoptInt(fd, level, pktinfo, 1); err != nil {
		return -1, fmt.Errorf("asking a load socket for packet information: %w", err)
	}
	if family == unix.AF_INET6 {
		// Addresses of a local route count as ours only with this (IPv4 needs nothing).
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1); err != nil {
			return -1, fmt.Errorf("letting a load socket use any local address: %w", err)
		}
	}
	if err := unix.Bind(fd, any); err != nil {
		return -1, fmt.Errorf("binding a load socket: %w", err)
	}
	return fd, nil
}

// sockaddr returns ap as the kernel's struct sockaddr_in or sockaddr_in6.
func sockaddr(ap netip.AddrPort) []byte {
	if a := ap.Addr(); a.Is4() {
		b := make([]byte, unix.SizeofSockaddrInet4)
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		binary.BigEndian.PutUint16(b[2:], ap.Port())
		copy(b[4:], a.AsSlice())
		return b
	}
	b := make([]byte, unix.SizeofSockaddrInet6)
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], ap.Port())
	copy(b[8:], ap.Addr().AsSlice())
	return b
}

// sourceControl returns the control message that makes a datagram leave from
// src (ip(7) IP_PKTINFO, ipv6(7) IPV6_PKTINFO).
func sourceControl(src netip.Addr) []byte {
	if src.Is4() {
		b := make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))
		putCmsg(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		copy(b[cmsgHeader+4:], src.AsSlice()) // ipi_spec_dst
		return b
	}
	b := make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	putCmsg(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	copy(b[cmsgHeader:], src.AsSlice()) // ipi6_addr
	return b
}

func putCmsg(b []byte, level, typ, size int) {
	binary.NativeEndian.PutUint64(b, uint64(cmsgHeader+size))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(typ))
}

// arrivedAt returns the local address that a datagram with these control
// messages was sent to.
func arrivedAt(control []byte) (netip.Addr, bool) {
	for len(control) >= cmsgHeader {
		size := binary.NativeEndian.Uint64(control)
		if size < cmsgHeader || size > uint64(len(control)) {
			break
		}
		level := binary.NativeEndian.Uint32(control[8:])
		typ := binary.NativeEndian.Uint32(control[12:])
		data := control[cmsgHeader:size]
		switch {
		case level == unix.IPPROTO_IP && typ == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4([4]byte(data[8:12])), true // ipi_addr
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(data[:16])), true // ipi6_addr
		}
		control = control[min(uint64(len(control)), (size+7)&^7):]
	}
	return netip.Addr{}, false
}
