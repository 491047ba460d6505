package netio

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

// inRow returns n datagrams of size octets in a row, the last one of last; their
// octets tell them apart.
func inRow(n, size, last int) (all []byte, each [][]byte) {
	for i := range n {
		one := bytes.Repeat([]byte{byte(i)}, size)
		if i == n-1 {
			one = one[:last]
		}
		all = append(all, one...)
		each = append(each, one)
	}
	return all, each
}

// What a server sends in a row arrives as one packet, and leaves as one; the client
// has each datagram, whole and in order. So it is where the kernel does not cut it.
func TestGroupFromServerToClient(t *testing.T) {
	for _, c := range []struct {
		name          string
		n, size, last int
		refused       bool
	}{
		{"short", 10, 100, 100, false}, {"last one shorter", 7, 1200, 1, false}, {"longer than what is grouped here", 30, 1300, 1300, false},
		{"the kernel cuts nothing", 5, 1200, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, at := silent(t, "127.0.0.1:0")
			fd, from, err := DialUDP(at, netip.Addr{})
			if err != nil {
				t.Fatal(err)
			}
			defer Close(fd)
			if on, err := unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO); err != nil || on == 0 {
				t.Skip("SKIPPED: the kernel gives each datagram by itself (UDP_GRO, Linux 5.0)")
			}
			p, err := NewPeers()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			raw, err := server.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			all, each := inRow(c.n, c.size, c.last)
			single := []byte("one by itself")
			if err := raw.Control(func(s uintptr) {
				if err := unix.SetsockoptInt(int(s), unix.SOL_UDP, unix.UDP_SEGMENT, c.size); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			for _, b := range [][]byte{all, all, single} { // which may all leave as one
				if _, err := server.WriteToUDPAddrPort(b, from); err != nil {
					t.Fatal(err)
				}
			}

			out := new(burst.Burst)
			for deadline := time.Now().Add(patience); out.N < 3; {
				if _, err := p.Recv(fd, out); err != nil && time.Now().After(deadline) {
					t.Fatalf("%d packets, %v", out.N, err)
				}
			}
			for i := range 2 {
				if got := &out.Packets[i]; !bytes.Equal(got.Reply, all) || int(got.Segment) != c.size || got.Answers() != c.n {
					t.Fatalf("%d octets in datagrams of %d, %d of them", len(got.Reply), got.Segment, got.Answers())
				}
			}
			if got := &out.Packets[2]; !bytes.Equal(got.Reply, single) || got.Segment != 0 {
				t.Fatalf("%q in datagrams of %d", got.Reply, got.Segment)
			}

			client, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			b := newBatch(t)
			u, ap := listen(t, "127.0.0.1")
			if c.refused { // with checksums off the kernel refuses to cut
				if err := unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
					t.Fatal(err)
				}
			}
			for i := range out.N {
				q := &out.Packets[i]
				q.Local, q.Remote = burst.EndpointOf(ap), burst.EndpointOf(client.LocalAddr().(*net.UDPAddr).AddrPort())
			}
			sent := b.Send(u, out)
			if want := (Sent{Packets: uint64(2*c.n + 1), Bytes: uint64(2*len(all) + len(single))}); sent != want || out.Packets[0].Drop != counters.NotDropped {
				t.Errorf("sent %+v, want %+v", sent, want)
			}
			if err := client.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			in := make([]byte, 1<<16)
			for i, want := range slices.Concat(each, each, [][]byte{single}) {
				n, err := client.Read(in)
				if err != nil || !bytes.Equal(in[:n], want) {
					t.Fatalf("datagram %d has %d octets, want %d: %v", i, n, len(want), err)
				}
			}
		})
	}
}

// A control message of anybody is read with care.
func TestGroupSegment(t *testing.T) {
	good := make([]byte, groupSpace)
	putSegment(good, 100)
	good[12] = unix.UDP_GRO
	for name, c := range map[string]struct {
		control []byte
		size    int
		want    uint16
	}{
		"a group":            {good, 1000, 100},
		"one datagram":       {good, 100, 0},
		"nothing":            {nil, 1000, 0},
		"cut off":            {good[:unix.SizeofCmsghdr+2], 1000, 0},
		"of another kind":    {append(bytes.Clone(good[:12]), make([]byte, 12)...), 1000, 0},
		"of length 0":        {append(bytes.Clone(good[:16]), make([]byte, 8)...), 1000, 0},
		"longer than itself": {good, 50, 0},
	} {
		if got := groupSegment(c.control, c.size); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
