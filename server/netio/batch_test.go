package netio

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

// listen returns a socket of BindUDP on addr as a lane uses it, and its address.
func listen(t testing.TB, addr string) (*UDP, netip.AddrPort) {
	t.Helper()
	fd, ap := bindUDP(t, addr)
	return NewUDP(fd, 7, 3, netip.AddrPortFrom(netip.MustParseAddr(addr), ap.Port())), ap
}

// client returns a socket on a free port of addr.
func client(t testing.TB, addr string) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addr)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t testing.TB, c *net.UDPConn, to netip.AddrPort, payload []byte) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort(payload, to); err != nil {
		t.Fatal(err)
	}
}

// recv waits for datagrams of u and reads a burst.
func recv(t testing.TB, b *Batch, u *UDP, out *burst.Burst) (payload uint64) {
	t.Helper()
	await(t, u.FD)
	payload, err := b.Recv(u, out)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// Whatever address is asked, also on a wildcard bind, the answer comes from it.
func TestAnswersComeFromTheAddressThatWasAsked(t *testing.T) {
	for _, c := range []struct{ bind, ask, from string }{
		{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"127.0.0.1", "127.0.0.1", "127.0.0.9"},
		{"0.0.0.0", "127.0.0.1", "127.0.0.1"},
		{"0.0.0.0", "127.0.1.5", "127.0.0.1"},
		{"0.0.0.0", "127.0.1.5", "127.0.1.5"},
		{"::1", "::1", "::1"},
		{"::", "::1", "::1"},
	} {
		t.Run(fmt.Sprintf("%s asked by %s as %s", c.bind, c.from, c.ask), func(t *testing.T) {
			b, out := newBatch(t), new(burst.Burst)
			u, bound := listen(t, c.bind)
			asked := netip.AddrPortFrom(netip.MustParseAddr(c.ask), bound.Port())
			from := client(t, c.from)
			send(t, from, asked, []byte("question"))
			if n := recv(t, b, u, out); n != 8 || out.N != 1 {
				t.Fatalf("received %d datagrams, %d octets", out.N, n)
			}
			p := &out.Packets[0]
			if string(p.Payload) != "question" || len(p.Reply) != 0 || cap(p.Reply) != burst.MaxPayload || p.Drop != counters.NotDropped {
				t.Errorf("payload %q, reply %d of %d octets, drop %v", p.Payload, len(p.Reply), cap(p.Reply), p.Drop)
			}
			if p.Socket != u.ID || p.Local.AddrPort() != asked || p.Remote.AddrPort() != from.LocalAddr().(*net.UDPAddr).AddrPort() {
				t.Errorf("socket %d, local %v, remote %v", p.Socket, p.Local.AddrPort(), p.Remote.AddrPort())
			}
			if (p.IfIndex != 0) != u.Wildcard {
				t.Errorf("wildcard %v, interface %d", u.Wildcard, p.IfIndex)
			}
			p.Reply = append(p.Reply, "answer"...)
			if s := b.Send(u, out); s != (Sent{Packets: 1, Bytes: 6}) {
				t.Errorf("sent %+v", s)
			}
			buf := make([]byte, 16)
			n, source, err := from.ReadFromUDPAddrPort(buf)
			if err != nil {
				t.Fatal(err)
			}
			if string(buf[:n]) != "answer" || source != asked {
				t.Errorf("%q came from %v, asked was %v", buf[:n], source, asked)
			}
		})
	}
}

// 130 datagrams are bursts of 64, 64 and 2, in order and whole; then there is
// nothing.
func TestBursts(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "127.0.0.1")
	c := client(t, "127.0.0.1")
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, i*11) }
	const total = 2*burst.Max + 2
	for i := range total {
		send(t, c, ap, content(i))
	}
	seen := 0
	for _, want := range []int{burst.Max, burst.Max, 2} {
		payload := recv(t, b, u, out)
		if out.N != want {
			t.Fatalf("a burst of %d, want %d", out.N, want)
		}
		sum := uint64(0)
		for i := range out.N {
			if p := &out.Packets[i]; !bytes.Equal(p.Payload, content(seen)) || p.Drop != counters.NotDropped {
				t.Fatalf("datagram %d: %d octets %v", seen, len(p.Payload), p.Drop)
			}
			sum += uint64(len(out.Packets[i].Payload))
			seen++
		}
		if payload != sum {
			t.Errorf("%d octets, said %d", sum, payload)
		}
	}
	blocking(t, u.FD)
	if _, err := b.Recv(u, out); !errors.Is(err, unix.EAGAIN) || out.N != 0 {
		t.Errorf("an empty socket gave %d, %v", out.N, err)
	}
}

// blocking clears O_NONBLOCK, as any process that shares the socket might.
func blocking(t *testing.T, fd int) {
	t.Helper()
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

// The answers of a full burst leave in one call, each with its own content, to
// its own client, and what was left empty sends nothing.
func TestSendsAFullBurst(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "::1")
	clients := make([]*net.UDPConn, burst.Max)
	for i := range clients {
		clients[i] = client(t, "::1")
		send(t, clients[i], ap, []byte{byte(i)})
	}
	recv(t, b, u, out)
	if out.N != burst.Max {
		t.Fatalf("a burst of %d", out.N)
	}
	want := Sent{}
	for i := range out.N {
		p := &out.Packets[i]
		if i%5 == 3 {
			p.Drop = counters.DropShort
			continue
		}
		p.Reply = append(p.Reply, bytes.Repeat(p.Payload, 1+i)...)
		want.Packets++
		want.Bytes += uint64(1 + i)
	}
	if s := b.Send(u, out); s != want {
		t.Errorf("sent %+v, want %+v", s, want)
	}
	for i, c := range clients {
		if i%5 == 3 {
			if p := &out.Packets[i]; p.Drop != counters.DropShort {
				t.Errorf("the reason of packet %d became %v", i, p.Drop)
			}
			continue
		}
		buf := make([]byte, 2*burst.Max)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf[:n], bytes.Repeat([]byte{byte(i)}, 1+i)) {
			t.Errorf("client %d got %d octets %v", i, n, buf[:n])
		}
	}
}

// The largest datagrams pass, both ways, and so does an empty one.
func TestLargestAndSmallest(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		b, out := newBatch(t), new(burst.Burst)
		u, ap := listen(t, addr)
		c := client(t, addr)
		large := make([]byte, burst.MaxPayload)
		for i := range large {
			large[i] = byte(i * 7)
		}
		send(t, c, ap, large)
		send(t, c, ap, nil)
		send(t, c, ap, large)
		if n := recv(t, b, u, out); out.N != 3 || n != 2*burst.MaxPayload {
			t.Fatalf("%s: %d datagrams, %d octets", addr, out.N, n)
		}
		for i, want := range [][]byte{large, {}, large} {
			p := &out.Packets[i]
			if !bytes.Equal(p.Payload, want) || p.Drop != counters.NotDropped {
				t.Errorf("%s: datagram %d has %d octets, %v", addr, i, len(p.Payload), p.Drop)
			}
			p.Reply = append(p.Reply, large[:burst.MaxPayload-i]...)
		}
		if s := b.Send(u, out); s != (Sent{Packets: 3, Bytes: 3*burst.MaxPayload - 3}) {
			t.Errorf("%s: sent %+v", addr, s)
		}
		buf := make([]byte, 1<<16)
		for i := range 3 {
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(buf[:n], large[:burst.MaxPayload-i]) {
				t.Errorf("%s: answer %d has %d octets", addr, i, n)
			}
		}
	}
}

// A datagram that the buffer cuts short is marked, and those beside it are not.
func TestTruncatedDatagrams(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "127.0.0.1")
	c := client(t, "127.0.0.1")
	b.rxIov[1].Len = 8 // no datagram is longer than the buffers really are
	for range 3 {
		send(t, c, ap, []byte("sixteen octets.."))
	}
	recv(t, b, u, out)
	for i, want := range []counters.Reason{counters.NotDropped, counters.DropTruncated, counters.NotDropped} {
		if p := &out.Packets[i]; p.Drop != want {
			t.Errorf("datagram %d of %d octets: %v, want %v", i, len(p.Payload), p.Drop, want)
		}
	}
}

// A datagram from port 0 cannot be answered.
func TestSourcePortZero(t *testing.T) {
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if errors.Is(err, unix.EPERM) {
		t.Skip("SKIPPED: forging a source port takes CAP_NET_RAW")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "127.0.0.1")
	datagram := []byte{0, 0, byte(ap.Port() >> 8), byte(ap.Port()), 0, 12, 0, 0, 'p', 'i', 'n', 'g'} // no checksum
	if err := unix.Sendto(raw, datagram, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	recv(t, b, u, out)
	if p := &out.Packets[0]; out.N != 1 || string(p.Payload) != "ping" || p.Drop != counters.DropBadEndpoint {
		t.Errorf("%d datagrams, %q from %v: %v", out.N, p.Payload, p.Remote.AddrPort(), p.Drop)
	}
}

// An answer that the kernel refuses costs itself and no other.
func TestSendFailures(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, _ := listen(t, "127.0.0.1")
	c := client(t, "127.0.0.1")
	here := burst.EndpointOf(c.LocalAddr().(*net.UDPAddr).AddrPort())
	broadcast := burst.EndpointOf(netip.MustParseAddrPort("255.255.255.255:9")) // EACCES without SO_BROADCAST
	for _, bad := range []string{"", "x", "x.", ".x", "x..x", "xxxx", "xx.x", "-x-.x-."} {
		b.Prepare(out, len(bad))
		want := Sent{}
		for i, kind := range bad {
			p := &out.Packets[i]
			p.Remote = here
			switch kind {
			case 'x':
				p.Remote = broadcast
				p.Reply = append(p.Reply, byte(i))
				want.Failed++
			case '.':
				p.Reply = append(p.Reply, byte(i))
				want.Packets++
				want.Bytes++
			}
		}
		if s := b.Send(u, out); s != want {
			t.Errorf("%q: sent %+v, want %+v", bad, s, want)
		}
		for i, kind := range bad {
			p := &out.Packets[i]
			if (p.Drop == counters.DropSend) != (kind == 'x') || (len(p.Reply) == 0) != (kind != '.') {
				t.Errorf("%q: packet %d is dropped for %v with a reply of %d octets", bad, i, p.Drop, len(p.Reply))
			}
			if kind != '.' {
				continue
			}
			buf := make([]byte, 2)
			if n, err := c.Read(buf); err != nil || n != 1 || buf[0] != byte(i) {
				t.Errorf("%q: answer %d is %v, %v", bad, i, buf[:n], err)
			}
		}
	}
}

// The kernel's own drops are known to the datagram.
func TestDrops(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	u, ap := listen(t, "127.0.0.1")
	if err := unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, unix.SO_RCVBUF, 8192); err != nil {
		t.Fatal(err)
	}
	c := client(t, "127.0.0.1")
	const total = 500
	received := 0
	for range 2 {
		for range total {
			send(t, c, ap, make([]byte, 100))
		}
		for {
			if _, err := b.Recv(u, out); err != nil {
				break
			}
			received += out.N
		}
	}
	drops, err := Drops(u.FD)
	if err != nil {
		t.Fatal(err)
	}
	if drops == 0 || uint64(received)+drops != 2*total {
		t.Errorf("%d received and %d dropped of %d", received, drops, 2*total)
	}
	fd, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := Drops(fd); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("drops of an eventfd: %v", err)
	}
}

// Prepare makes packets whose answers can be sent, without Recv.
func TestPrepare(t *testing.T) {
	b, out := newBatch(t), new(burst.Burst)
	for i := range out.Packets {
		out.Packets[i].Drop = counters.DropSend
	}
	b.Prepare(out, 5)
	if out.N != 5 {
		t.Errorf("%d packets", out.N)
	}
	for i := range out.N {
		p := &out.Packets[i]
		if p.Drop != counters.NotDropped || len(p.Reply) != 0 || cap(p.Reply) != burst.MaxPayload {
			t.Errorf("packet %d: %v, reply %d of %d", i, p.Drop, len(p.Reply), cap(p.Reply))
		}
		p.Reply = append(p.Reply, bytes.Repeat([]byte{byte(i)}, burst.MaxPayload)...)
	}
	for i := range out.N { // the buffers do not overlap
		if r := out.Packets[i].Reply; r[0] != byte(i) || r[len(r)-1] != byte(i) {
			t.Errorf("the answer of packet %d was overwritten by %d", i, r[0])
		}
	}
}

// echo is a burst of datagrams there and back again.
type echo struct {
	clientBatch, serverBatch   *Batch
	clientSocket, serverSocket *UDP
	clientBurst, serverBurst   *burst.Burst
}

func newEcho(t testing.TB, addr string, size int) *echo {
	e := &echo{clientBatch: newBatch(t), serverBatch: newBatch(t), clientBurst: new(burst.Burst), serverBurst: new(burst.Burst)}
	var ap netip.AddrPort
	e.serverSocket, ap = listen(t, addr)
	e.clientSocket, _ = listen(t, addr)
	e.clientBatch.Prepare(e.clientBurst, burst.Max)
	for i := range burst.Max {
		e.clientBurst.Packets[i].Remote = burst.EndpointOf(ap)
		e.clientBurst.Packets[i].Reply = append(e.clientBurst.Packets[i].Reply, make([]byte, size)...)
	}
	return e
}

func (e *echo) trip(t testing.TB) {
	if s := e.clientBatch.Send(e.clientSocket, e.clientBurst); s.Packets != burst.Max {
		t.Fatalf("sent %+v", s)
	}
	if _, err := e.serverBatch.Recv(e.serverSocket, e.serverBurst); err != nil || e.serverBurst.N != burst.Max {
		t.Fatalf("the server got %d, %v", e.serverBurst.N, err)
	}
	for i := range burst.Max {
		p := &e.serverBurst.Packets[i]
		p.Reply = append(p.Reply, p.Payload...)
	}
	if s := e.serverBatch.Send(e.serverSocket, e.serverBurst); s.Packets != burst.Max {
		t.Fatalf("answered %+v", s)
	}
	if _, err := e.clientBatch.Recv(e.clientSocket, e.clientBurst); err != nil || e.clientBurst.N != burst.Max {
		t.Fatalf("the client got %d, %v", e.clientBurst.N, err)
	}
	for i := range burst.Max {
		p := &e.clientBurst.Packets[i]
		p.Reply = append(p.Reply, p.Payload...)
	}
}

func TestBurstsDoNotAllocate(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		e := newEcho(t, addr, 48)
		if n := testing.AllocsPerRun(100, func() { e.trip(t) }); n != 0 {
			t.Errorf("%s: %v allocations for four bursts", addr, n)
		}
	}
	wildcard, ap := listen(t, "0.0.0.0")
	e := newEcho(t, "127.0.0.1", 48)
	e.serverSocket = wildcard
	for i := range burst.Max {
		e.clientBurst.Packets[i].Remote = burst.EndpointOf(netip.AddrPortFrom(netip.MustParseAddr("127.0.1.5"), ap.Port()))
	}
	if n := testing.AllocsPerRun(100, func() { e.trip(t) }); n != 0 {
		t.Errorf("wildcard: %v allocations for four bursts", n)
	}
}

// A burst of 64 datagrams of 48 octets to a server and back, over loopback;
// ns/op is per datagram, of four calls.
func BenchmarkEcho(b *testing.B) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		b.Run(addr, func(b *testing.B) {
			e := newEcho(b, addr, 48)
			b.ReportAllocs()
			for i := 0; i < b.N; i += burst.Max {
				e.trip(b)
			}
		})
	}
}
