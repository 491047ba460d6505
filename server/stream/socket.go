package stream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is an accepted TCP connection. Beside net.TCPConn it costs no second
// descriptor, no system calls for options that the listener has already, and no
// buffer while it waits for the client.
type Socket struct {
	*os.File
	raw    syscall.RawConn
	remote netip.AddrPort
	low    int // SO_RCVLOWAT
}

// NewSocket wraps fd, which is non-blocking, and takes it over, also on error.
func NewSocket(fd int, remote netip.AddrPort) (*Socket, error) {
	f := os.NewFile(uintptr(fd), "connection")
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taking over a connection: %w", err), f.Close())
	}
	return &Socket{File: f, raw: raw, remote: remote, low: 1}, nil
}

// RemoteAddr implements net.Conn.
func (s *Socket) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote) }

// LocalAddr implements net.Conn. The address is nil if the kernel does not say.
func (s *Socket) LocalAddr() net.Addr {
	var a net.Addr
	_ = s.raw.Control(func(fd uintptr) {
		if sa, err := unix.Getsockname(int(fd)); err == nil {
			a = net.TCPAddrFromAddrPort(AddrPort(sa))
		}
	})
	return a
}

// CloseWrite sends a FIN.
func (s *Socket) CloseWrite() error {
	var err error
	return errors.Join(s.raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }), err)
}

// Wait calls ready whenever there may be something to read, until it returns
// true. Its error is that of the read deadline, or of a closed connection.
func (s *Socket) Wait(ready func(fd uintptr) bool) error { return s.raw.Read(ready) }

// WakeAt makes Wait sleep until n octets have come, or the client will send no
// more: what comes before cannot be answered. The kernel bounds n by half of the
// receive buffer.
func (s *Socket) WakeAt(n int) error {
	if n == s.low {
		return nil
	}
	s.low = n
	var err error
	return errors.Join(s.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) }), err)
}

// AddrPort returns the address that the kernel gave, without its zone; zero for
// one that is not of TCP.
func AddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
