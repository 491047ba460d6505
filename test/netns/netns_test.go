package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var entering error

func TestMain(m *testing.M) {
	code, inside, err := Enter()
	entering = err
	if !inside && err == nil {
		os.Exit(code)
	}
	if err != nil && !errors.Is(err, ErrNotRoot) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Inside there is loopback alone, and any address of a prefix made local can be
// spoken to.
func TestInside(t *testing.T) {
	if entering != nil {
		t.Skip(entering)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 && l.Name != "lo" {
			t.Errorf("interface %s is up", l.Name)
		}
	}
	for _, a := range []string{"127.0.0.1:53", "127.9.8.7:53", "[::1]:53"} {
		exchange(t, a)
	}
	if err := AddLocal(netip.MustParsePrefix("fd64::/64")); err != nil {
		t.Fatal(err)
	}
	prefixed(t)
	if err := AddLocal(netip.MustParsePrefix("fd64::/64")); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := AddAddress(netip.MustParseAddr("fd65::1")); err != nil {
		t.Fatal(err)
	}
	exchange(t, "[fd65::1]:53")
}

func prefixed(t *testing.T) {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(t.Context(), "udp", "[fd64::5:6]:53")
	if err != nil {
		t.Fatal(err)
	}
	receive(t, pc)
}

func exchange(t *testing.T, address string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, pc)
}

// receive sends a datagram to pc and closes it. An address that is new may drop
// the first ones, and a socket may remember how it could not be reached.
func receive(t *testing.T, pc net.PacketConn) {
	t.Helper()
	defer pc.Close()
	var err error
	for range 50 {
		if err = send(pc); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	if err != nil {
		t.Errorf("%v: %v", pc.LocalAddr(), err)
	}
}

// send sends a datagram from a new socket to pc and reads it there.
func send(pc net.PacketConn) error {
	c, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	if err := pc.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	n, from, err := pc.ReadFrom(make([]byte, 9))
	if err == nil && (n != 1 || from.String() != c.LocalAddr().String()) {
		err = fmt.Errorf("%d bytes from %v", n, from)
	}
	return err
}

// What is opened in another namespace meets nothing of this one.
func TestNamespace(t *testing.T) {
	if entering != nil {
		t.Skip(entering)
	}
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	const address = "127.0.0.1:5353"
	here, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	var there net.PacketConn
	if err := n.Do(func() (err error) {
		there, err = net.ListenPacket("udp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := n.Do(func() error {
		receive(t, there)
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := here.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := here.ReadFrom(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a datagram of the other namespace: %v", err)
	}
	if own, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || own == link(t, n.Path()) {
		t.Errorf("%s is this namespace: %v", n.Path(), err)
	}
}

func link(t *testing.T, path string) string {
	t.Helper()
	l, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
