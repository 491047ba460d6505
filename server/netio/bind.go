package netio

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Buffer sizes that are asked for. 4 MiB holds 100 ms of 40-byte queries at
// 150k/s (a queued datagram takes 768 bytes of the buffer).
const (
	RecvBuffer = 16 << 20
	SendBuffer = 4 << 20
)

// tcpBacklog is the length of the accept queue; the kernel caps it at
// net.core.somaxconn.
const tcpBacklog = 4096

// Sockaddr returns the socket address and family of ap.
func Sockaddr(ap netip.AddrPort) (unix.Sockaddr, int) {
	a := ap.Addr()
	if a.Is4() || a.Is4In6() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.Unmap().As4()}, unix.AF_INET
	}
	sa := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16()}
	if zone := a.Zone(); zone != "" { // an interface, by name or by index
		if i, err := net.InterfaceByName(zone); err == nil {
			sa.ZoneId = uint32(i.Index)
		} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			sa.ZoneId = uint32(n)
		}
	}
	return sa, unix.AF_INET6
}

// Probe reports whether ap can be bound by a process that shares it with
// nobody: with SO_REUSEPORT a second instance would silently take half of the
// traffic. It leaves nothing bound. The error wraps EADDRINUSE where ap is taken.
func Probe(network string, ap netip.AddrPort) error {
	typ := unix.SOCK_DGRAM
	if network == "tcp" {
		typ = unix.SOCK_STREAM
	}
	sa, family := Sockaddr(ap)
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("probing %s %v: socket: %w", network, ap, err)
	}
	defer unix.Close(fd)
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fmt.Errorf("probing %s %v: IPV6_V6ONLY: %w", network, ap, err)
		}
	}
	if network == "tcp" { // else connections in TIME_WAIT hold the address
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("probing %s %v: SO_REUSEADDR: %w", network, ap, err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return fmt.Errorf("binding %s %v: %w", network, ap, err)
	}
	return nil
}

// OpenUDP returns a socket for the reuse-port group of ap that is not bound yet:
// it gets no datagrams before Bind. Short reports that the receive buffer is
// smaller than asked for (no CAP_NET_ADMIN).
func OpenUDP(ap netip.AddrPort) (fd int, short bool, err error) {
	_, family := Sockaddr(ap)
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, false, fmt.Errorf("opening udp %v: socket: %w", ap, err)
	}
	fail := func(what string, err error) (int, bool, error) {
		unix.Close(fd)
		return -1, false, fmt.Errorf("opening udp %v: %s: %w", ap, what, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fail("SO_REUSEPORT", err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fail("IPV6_V6ONLY", err)
		}
		// RFC 9715 and RFC 8899: answers fit the minimum MTU; never let a forged
		// packet-too-big message shrink them.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT); err != nil {
			return fail("IPV6_MTU_DISCOVER", err)
		}
	} else if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT); err != nil {
		return fail("IP_MTU_DISCOVER", err)
	}
	if ap.Addr().IsUnspecified() { // the answer must leave from the address that was asked
		if family == unix.AF_INET6 {
			// Free bind: an address that is ours by a route only answers, too, as
			// it does over IPv4.
			err = errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1),
			)
		} else {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
		if err != nil {
			return fail("PKTINFO", err)
		}
	}
	return fd, setBuffers(fd), nil
}

// BindUDP is OpenUDP and Bind.
func BindUDP(ap netip.AddrPort) (fd int, short bool, err error) {
	fd, short, err = OpenUDP(ap)
	if err != nil {
		return -1, false, err
	}
	if err := Bind(fd, ap); err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	return fd, short, nil
}

// Bind binds a socket of OpenUDP.
func Bind(fd int, ap netip.AddrPort) error {
	sa, _ := Sockaddr(ap)
	if err := unix.Bind(fd, sa); err != nil {
		return fmt.Errorf("binding udp %v: %w", ap, err)
	}
	return nil
}

// setBuffers asks for RecvBuffer and SendBuffer, past the system's limit where
// the capability allows, and reports whether the receive buffer fell short.
func setBuffers(fd int) (short bool) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, RecvBuffer) != nil {
		// Without CAP_NET_ADMIN the kernel clips to net.core.rmem_max: a short
		// buffer is reported by the caller, it is no reason to refuse.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, RecvBuffer)
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		short = err != nil || got < 2*RecvBuffer // the kernel reports twice what was set
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, SendBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, SendBuffer)
	}
	return short
}

// BindTCP returns a bound TCP socket that does not listen yet.
func BindTCP(ap netip.AddrPort) (int, error) {
	fd, err := OpenTCP(ap)
	if err != nil {
		return -1, err
	}
	sa, _ := Sockaddr(ap)
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding tcp %v: bind: %w", ap, err)
	}
	return fd, nil
}

// BindTCPBeside binds fd, a socket of OpenTCP, to ap, whatever of others, sockets of
// this process that may listen, is bound to an address that overlaps it. The kernel
// gives each connection to the socket with the narrower address.
func BindTCPBeside(fd int, ap netip.AddrPort, others ...int) error {
	for _, s := range append(others, fd) {
		if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return fmt.Errorf("binding tcp %v: SO_REUSEPORT: %w", ap, err)
		}
	}
	sa, _ := Sockaddr(ap)
	if err := unix.Bind(fd, sa); err != nil {
		return fmt.Errorf("binding tcp %v: bind: %w", ap, err)
	}
	return nil
}

// OpenTCP returns a TCP socket for ap that is not bound yet.
func OpenTCP(ap netip.AddrPort) (int, error) {
	_, family := Sockaddr(ap)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening tcp %v: socket: %w", ap, err)
	}
	fail := func(what string, err error) (int, error) {
		unix.Close(fd)
		return -1, fmt.Errorf("opening tcp %v: %s: %w", ap, what, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail("SO_REUSEADDR", err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fail("IPV6_V6ONLY", err)
		}
	}
	return fd, nil
}

// BindTCPShared is BindTCP into a reuse-port group, as servers do that know no
// hand-over. Only reload mode restart uses it.
func BindTCPShared(ap netip.AddrPort) (int, error) {
	sa, family := Sockaddr(ap)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("binding tcp %v: socket: %w", ap, err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
	)
	if err == nil && family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding tcp %v: %w", ap, err)
	}
	return fd, nil
}

// Listen makes a socket of BindTCP accept connections. Repeating it is harmless.
// An accepted connection inherits that its segments do not wait for each other.
func Listen(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Listen(fd, tcpBacklog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	return nil
}

// Unaccepted returns how many connections wait on the listening socket fd to be
// accepted.
func Unaccepted(fd int) (int, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("looking at the queue of a listener: TCP_INFO: %w", err)
	}
	return int(info.Unacked), nil // of a listener it is that
}
