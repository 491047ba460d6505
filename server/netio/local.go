package netio

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// LocalAddr returns the address that a socket is bound to, without a zone; of one
// that is not bound the port is 0.
func LocalAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the address of a socket: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("reading the address of a socket: it is of another family (%T)", sa)
}
