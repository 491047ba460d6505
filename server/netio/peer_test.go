package netio

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
)

// silent returns a UDP socket that nobody reads, and its address.
func silent(t *testing.T, host string) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(host)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestDialUDP(t *testing.T) {
	_, server := silent(t, "127.0.0.1:0")
	ports := map[int]bool{}
	for _, source := range []netip.Addr{{}, netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("127.0.0.9")} {
		fd, from, err := DialUDP(server, source)
		if err != nil {
			t.Fatal(err)
		}
		defer Close(fd)
		sa, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		at := sa.(*unix.SockaddrInet4)
		if want := netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)); from != want {
			t.Errorf("it leaves from %v, and says %v", want, from)
		}
		if source.IsValid() && from.Addr() != source {
			t.Errorf("it leaves from %v, not from %v", from, source)
		}
		if ports[at.Port] {
			t.Errorf("port %d twice", at.Port)
		}
		ports[at.Port] = true
	}
	if _, _, err := DialUDP(server, netip.MustParseAddr("192.0.2.77")); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("from an address of nobody: %v", err)
	}
}

// What the kernel does not segment goes datagram by datagram.
func TestPeersWithoutSegments(t *testing.T) {
	c, server := silent(t, "127.0.0.1:0")
	fd, _, err := DialUDP(server, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	p, err := NewPeers()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// With checksums off the kernel refuses to segment.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	var b burst.Burst
	which := []uint8{0, 1, 2, 3}
	for _, i := range which {
		b.Packets[i].Payload = []byte{'0' + i, 'x'}
	}
	if n, err := p.Send(fd, &b, which, nil); n != len(which) || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for _, i := range which {
		in := make([]byte, 10)
		n, err := c.Read(in)
		if err != nil || n != 2 || in[0] != '0'+i {
			t.Fatalf("datagram %d: %q, %v", i, in[:n], err)
		}
	}
	if p.segments != 1 {
		t.Errorf("it will ask again for segments of %d octets", p.segments)
	}
}

// A client that is told by ICMP sees what it would see of a closed port.
func TestUnreachable(t *testing.T) {
	v4, v6, err := OpenICMP()
	if errors.Is(err, unix.EPERM) {
		t.Skip("NOT TESTED: raw sockets take CAP_NET_RAW")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer Close(v4)
	defer Close(v6)
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		_, server := silent(t, host)
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		local, remote := burst.EndpointOf(server), burst.EndpointOf(c.LocalAddr().(*net.UDPAddr).AddrPort())
		NewICMP(0, 0).Unreachable(&local, &remote) // has no socket: does nothing
		NewICMP(v4, v6).Unreachable(&local, &remote)
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%v: %v, want a refusal", server, err)
		}
	}
}
