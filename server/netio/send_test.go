package netio

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

// answer is what a test sends to one of its clients.
type answer struct{ to, size int }

// fill puts answers into out; their octets tell them apart.
func fill(b *Batch, out *burst.Burst, ask netip.AddrPort, clients []*net.UDPConn, answers []answer) {
	b.Prepare(out, len(answers))
	for i, a := range answers {
		p := &out.Packets[i]
		p.Local = burst.EndpointOf(ask)
		p.Remote = burst.EndpointOf(clients[a.to].LocalAddr().(*net.UDPAddr).AddrPort())
		p.Reply = append(p.Reply, bytes.Repeat([]byte{byte(i)}, a.size)...)
	}
}

// wantReceived checks that each client gets its answers, whole, in order and
// from the address that was asked.
func wantReceived(t rapid.TB, ask netip.AddrPort, clients []*net.UDPConn, answers []answer) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for i, a := range answers {
		if a.size == 0 {
			continue
		}
		n, from, err := clients[a.to].ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != ask || !bytes.Equal(buf[:n], bytes.Repeat([]byte{byte(i)}, a.size)) {
			t.Fatalf("answer %d of %d octets came as %d octets of %d from %v", i, a.size, n, buf[0], from)
		}
	}
}

// What goes along in one message arrives as it would have alone.
func TestGroupsArriveAsDatagrams(t *testing.T) {
	for _, c := range []struct{ bind, ask string }{
		{"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"}, {"::1", "::1"}, {"::", "::1"},
	} {
		b, out := newBatch(t), new(burst.Burst)
		u, ap := listen(t, c.bind)
		if !u.segments.Load() {
			t.Skip("SKIPPED: the kernel does not cut messages (UDP_SEGMENT, Linux 4.18)")
		}
		ask := netip.AddrPortFrom(netip.MustParseAddr(c.ask), ap.Port())
		var clients []*net.UDPConn
		for range 3 {
			clients = append(clients, client(t, c.ask))
		}
		rapid.Check(t, func(t *rapid.T) {
			answers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) answer {
				return answer{
					to:   rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "to"),
					size: rapid.SampledFrom([]int{0, 1, 30, 30, 30, 100, maxSegment, maxSegment + 1}).Draw(t, "size"),
				}
			}), 1, burst.Max).Draw(t, "answers")
			fill(b, out, ask, clients, answers)
			want := Sent{}
			for _, a := range answers {
				if a.size != 0 {
					want.Packets++
					want.Bytes += uint64(a.size)
				}
			}
			if s := b.Send(u, out); s != want {
				t.Fatalf("sent %+v, want %+v", s, want)
			}
			if !u.segments.Load() {
				t.Fatal("the kernel has refused a group")
			}
			wantReceived(t, ask, clients, answers)
		})
	}
}

// Only answers in a row to one client go along, and nothing behind a shorter one.
func TestGroups(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "127.0.0.1")
	if !u.segments.Load() {
		t.Skip("SKIPPED: the kernel does not cut messages (UDP_SEGMENT, Linux 4.18)")
	}
	clients := []*net.UDPConn{client(t, "127.0.0.1"), client(t, "127.0.0.1")}
	full := make([]answer, burst.Max)
	for i := range full {
		full[i] = answer{0, maxSegment}
	}
	for name, c := range map[string]struct {
		answers []answer
		groups  []int
	}{
		"one client":            {[]answer{{0, 50}, {0, 50}, {0, 50}}, []int{3}},
		"two clients":           {[]answer{{0, 50}, {0, 50}, {1, 50}, {0, 50}}, []int{2, 1, 1}},
		"nothing between":       {[]answer{{0, 50}, {0, 0}, {0, 50}}, []int{2}},
		"a shorter one ends it": {[]answer{{0, 50}, {0, 50}, {0, 40}, {0, 40}, {0, 50}}, []int{3, 1, 1}},
		"a longer one begins":   {[]answer{{0, 50}, {0, 60}, {0, 60}}, []int{1, 2}},
		"too long to go along":  {[]answer{{0, maxSegment + 1}, {0, maxSegment + 1}}, []int{1, 1}},
		"as much as a datagram": {full, []int{53, 11}},
		"one behind the other":  {[]answer{{1, 20}, {1, 20}, {0, 20}, {0, 20}}, []int{2, 2}},
	} {
		fill(b, out, ap, clients, c.answers)
		if s := b.Send(u, out); s.Failed != 0 || s.Packets == 0 {
			t.Errorf("%s: sent %+v", name, s)
		}
		for m, want := range c.groups {
			if n := int(b.tx[m].hdr.Iovlen); n != want {
				t.Errorf("%s: message %d has %d answers, want %d", name, m, n, want)
			}
		}
		wantReceived(t, ap, clients, c.answers)
	}
}

// Where the kernel takes no group, its answers go out singly, then and from
// then on.
func TestGroupsRefused(t *testing.T) {
	for _, bind := range []string{"127.0.0.1", "0.0.0.0"} {
		b, out := newBatch(t), new(burst.Burst)
		u, ap := listen(t, bind)
		if err := unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil { // there is no cutting without a checksum
			t.Fatal(err)
		}
		ask := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), ap.Port())
		clients := []*net.UDPConn{client(t, "127.0.0.1"), client(t, "127.0.0.1")}
		answers := []answer{{0, 50}, {1, 70}, {1, 70}, {1, 30}, {0, 20}, {0, 20}}
		for range 2 {
			fill(b, out, ask, clients, answers)
			if s := b.Send(u, out); s != (Sent{Packets: 6, Bytes: 260}) {
				t.Errorf("sent %+v", s)
			}
			wantReceived(t, ask, clients, answers)
		}
		if u.segments.Load() {
			t.Error("it would be tried again")
		}
	}
}

// Each answer of a group that cannot be sent is counted.
func TestGroupsFail(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, _ := listen(t, "127.0.0.1")
	segments := u.segments.Load()
	b.Prepare(out, 3)
	for i := range out.N {
		p := &out.Packets[i]
		p.Remote = burst.EndpointOf(netip.MustParseAddrPort("255.255.255.255:9")) // EACCES without SO_BROADCAST
		p.Reply = append(p.Reply, 1, 2, 3)
	}
	if s := b.Send(u, out); s != (Sent{Failed: 3}) {
		t.Errorf("sent %+v", s)
	}
	for i := range out.N {
		if p := &out.Packets[i]; p.Drop != counters.DropSend || len(p.Reply) != 0 {
			t.Errorf("packet %d is dropped for %v with a reply of %d octets", i, p.Drop, len(p.Reply))
		}
	}
	if u.segments.Load() != segments {
		t.Error("an error that has nothing to do with groups ends them")
	}
}

// A client that has asked two addresses of a wildcard bind gets each answer from
// the one that it asked, though they are answered in a row.
func TestGroupsOfOneAddress(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "0.0.0.0")
	c := client(t, "127.0.0.1")
	answers := []answer{{0, 50}, {0, 50}, {0, 50}}
	fill(b, out, ap, []*net.UDPConn{c}, answers)
	asked := []string{"127.0.0.2", "127.0.0.2", "127.0.0.3"}
	for i, a := range asked {
		out.Packets[i].Local = burst.EndpointOf(netip.AddrPortFrom(netip.MustParseAddr(a), ap.Port()))
	}
	if s := b.Send(u, out); s != (Sent{Packets: 3, Bytes: 150}) {
		t.Errorf("sent %+v", s)
	}
	for i, want := range asked {
		buf := make([]byte, 100)
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil || n != 50 || buf[0] != byte(i) || from.Addr().Unmap() != netip.MustParseAddr(want) {
			t.Errorf("answer %d: %d octets of %d from %v, want it from %s: %v", i, n, buf[0], from, want, err)
		}
	}
}
