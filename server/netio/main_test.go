package netio

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests: it only ends a test that fails.
const patience = 10 * time.Second

// bindUDP returns a socket of BindUDP on a free port of addr.
func bindUDP(t testing.TB, addr string) (fd int, ap netip.AddrPort) {
	t.Helper()
	fd, _, err := BindUDP(netip.AddrPortFrom(netip.MustParseAddr(addr), 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, name(t, fd)
}

// bindTCP returns a socket of BindTCP on a free port of addr.
func bindTCP(t *testing.T, addr string) (fd int, ap netip.AddrPort) {
	t.Helper()
	fd, err := BindTCP(netip.AddrPortFrom(netip.MustParseAddr(addr), 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, name(t, fd)
}

// name returns what a socket is bound to.
func name(t testing.TB, fd int) netip.AddrPort {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	t.Fatalf("socket name %T", sa)
	return netip.AddrPort{}
}

// await waits until fd is readable.
func await(t testing.TB, fd int) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		switch {
		case n == 1:
			return
		case errors.Is(err, unix.EINTR):
		case err != nil:
			t.Fatal(err)
		default:
			t.Fatalf("descriptor %d is not readable after %v", fd, patience)
		}
	}
}

func newBatch(t testing.TB) *Batch {
	t.Helper()
	b, err := NewBatch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}
