package control

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerOf returns who is at the other end of a unix socket connection: who
// connected (seen from the server), or who listens (seen from the client). The
// pid is 0 if that process is outside our pid namespace.
func peerOf(c net.Conn) (*unix.Ucred, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("reading the peer of a %T: not a socket", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reading the peer: %w", err)
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("reading the peer: %w", err)
	}
	return cred, nil
}

// hungUp reports whether the other end of a unix socket connection is closed.
func hungUp(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var closed bool
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP needs no asking
		_, perr := unix.Poll(p, 0)
		closed = perr == nil && p[0].Revents&unix.POLLHUP != 0
	})
	return err == nil && closed
}

// mayControl reports whether a process of user uid may control a supervisor of
// user own.
func mayControl(uid, own uint32) bool { return uid == 0 || uid == own }
