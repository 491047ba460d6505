package proxy_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/proxy"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// patience bounds every wait of these tests.
const patience = 10 * time.Second

// rig is a proxy on real sockets, one lane or more, all in the goroutine of the
// test: nothing happens but in turn.
type rig struct {
	t       *testing.T
	lanes   []*rigLane
	group   *proxy.Group
	table   *table.Table
	region  *backend.Region
	servers []*net.UDPConn
	refused []burst.Endpoint // clients told by ICMP
	short   []error          // that flows were refused for
}

// rigSockets is how many sockets towards servers a rig may have.
const rigSockets = 200

// rigLane is one lane of a rig with a listening socket of its own, whose id is the
// number of the lane.
type rigLane struct {
	*proxy.Lane
	rig    *rig
	poller *netio.Poller
	batch  *netio.Batch
	peers  *netio.Peers
	udp    *netio.UDP
	addr   netip.AddrPort
	block  *counters.Block
	in     burst.Burst
	ready  func(token int32)

	dialError error          // of the next sockets; nil: there are some
	next      netip.AddrPort // that the kernel gives to the next socket; not valid: any
	fds       map[int]bool   // towards servers
}

// newRig makes a proxy with so many servers, which the test plays.
func newRig(t *testing.T, o proxy.Options, lanes, servers int) *rig {
	t.Helper()
	r := &rig{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	r.region, err = backend.Format(shm.Heap(backend.RegionSize))
	must(err)
	r.region.Open(0, lanes)
	const slots = 1 << 12
	r.table, err = table.Format(shm.Heap(table.RegionSize(slots)), slots, 10*time.Second, flow.NewSecret())
	must(err)
	set, err := counters.Format(shm.Heap(counters.RegionSize))
	must(err)
	var members []backend.Member
	var addrs []netip.AddrPort
	for i := range servers {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		must(err)
		t.Cleanup(func() { c.Close() })
		r.servers = append(r.servers, c)
		r.region.Server(i).Reset(1)
		members = append(members, backend.Member{ID: i})
		addrs = append(addrs, c.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	r.group, err = proxy.NewGroup(lanes, []int{o.Flows}, rigSockets, func(int) {}) // until turns every lane
	must(err)
	for i := range lanes {
		l := &rigLane{rig: r, block: set.Block(0, i), fds: make(map[int]bool)}
		l.poller, err = netio.NewPoller()
		must(err)
		l.batch, err = netio.NewBatch()
		must(err)
		l.peers, err = netio.NewPeers()
		must(err)
		fd, _, err := netio.BindUDP(netip.MustParseAddrPort("127.0.0.1:0"))
		must(err)
		sa, err := unix.Getsockname(fd)
		must(err)
		l.addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(sa.(*unix.SockaddrInet4).Port))
		l.udp = netio.NewUDP(fd, uint32(i), 0, l.addr)
		t.Cleanup(func() {
			unix.Close(fd)
			l.poller.Close()
			l.batch.Close()
			l.peers.Close()
		})
		l.Lane = proxy.New(proxy.Setup{
			Group: r.group, Lane: i, Worker: 0, Table: r.table, Ports: r.region.Ports(), Block: l.block, Net: l, Client: l, NoSocket: func(err error) { r.short = append(r.short, err) }, Idle: func() {}, Now: mono.Millis(),
			Listeners: []*proxy.Listener{{
				Options: o, Servers: addrs, Pool: backend.NewPool(backend.RoundRobin, 0, r.region, r.region.Row(0, i), members),
			}},
		})
		l.ready = l.Lane.Ready
		r.lanes = append(r.lanes, l)
	}
	return r
}

func (l *rigLane) Dial(server netip.AddrPort, source netip.Addr) (fd int, from netip.AddrPort, err error) {
	switch {
	case l.dialError != nil:
		return -1, from, l.dialError
	case l.next.IsValid():
		from, l.next = l.next, netip.AddrPort{}
		fd, err = dialFrom(server, from)
	default:
		fd, from, err = netio.DialUDP(server, source)
	}
	l.fds[fd] = true
	return fd, from, err
}

// dialFrom is netio.DialUDP with a port that is known.
func dialFrom(server, from netip.AddrPort) (int, error) {
	to, family := netio.Sockaddr(server)
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	at, _ := netio.Sockaddr(from)
	if err := errors.Join(unix.Bind(fd, at), unix.Connect(fd, to)); err != nil {
		netio.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (l *rigLane) DialAs(server, client netip.AddrPort) (int, error) {
	return netio.DialUDPAs(server, client)
}

func (l *rigLane) Watch(fd int, conn int32) error { return l.poller.Add(fd, conn) }

func (l *rigLane) Close(fd int) {
	delete(l.fds, fd)
	netio.Close(fd)
}

// kill closes what the lane has towards servers, as the kernel does when a process
// is killed. It is not to be used any more.
func (l *rigLane) kill() {
	for fd := range l.fds {
		netio.Close(fd)
	}
}

func (l *rigLane) Send(fd int, b *burst.Burst, which []uint8, header []byte) (int, error) {
	return l.peers.Send(fd, b, which, header)
}

func (l *rigLane) Recv(fd int, out *burst.Burst) (int, error) { return l.peers.Recv(fd, out) }

func (l *rigLane) Answer(socket uint32, out *burst.Burst) uint64 {
	sent := l.batch.Send(l.rig.lanes[socket].udp, out)
	l.block.Add(counters.Sent, sent.Packets)
	return sent.Failed
}

func (l *rigLane) Refuse(_, remote *burst.Endpoint) { l.rig.refused = append(l.rig.refused, *remote) }

func (l *rigLane) Listener(uint32) int { return 0 }

// receive serves one burst of the listening socket and returns its datagrams.
func (l *rigLane) receive() []burst.Packet {
	if _, err := l.batch.Recv(l.udp, &l.in); err != nil {
		return nil
	}
	l.in.Now = mono.Now()
	for i := range l.in.Packets[:l.in.N] { // as the dispatcher does
		p := &l.in.Packets[i]
		p.Hash = l.rig.hashOf(&p.Local, &p.Remote)
		l.rig.table.Record(p.Hash, 0, mono.Millis())
	}
	l.Handler(0).ServeBurst(&l.in)
	return l.in.Packets[:l.in.N]
}

// turn does what there is to do on the servers' side.
func (l *rigLane) turn() {
	for {
		l.poller.Ready(l.ready)
		if !l.Lane.Serve() {
			return
		}
	}
}

// until turns all lanes until ok holds.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("not so after %v: %s", patience, what)
		}
		for _, l := range r.lanes {
			l.receive()
			l.turn()
		}
	}
}

// client returns a socket that sends to lane 0.
func (r *rig) client() *net.UDPConn { return r.clientAt(r.lanes[0]) }

// clientAt returns a socket that sends to l.
func (r *rig) clientAt(l *rigLane) *net.UDPConn {
	r.t.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.addr))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// send has a client send a datagram, and the lane that it sends to serve it. It
// returns why it was dropped, if it was.
func (r *rig) send(c *net.UDPConn, text string) counters.Reason {
	r.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		r.t.Fatal(err)
	}
	at := slices.IndexFunc(r.lanes, func(l *rigLane) bool { return l.addr == c.RemoteAddr().(*net.UDPAddr).AddrPort() })
	var got []burst.Packet
	r.until("a datagram is received", func() bool {
		got = r.lanes[at].receive()
		return len(got) > 0
	})
	return got[0].Drop
}

// arrived returns what a server has received, and from which port of the proxy.
func (r *rig) arrived(server int) (string, netip.AddrPort) {
	r.t.Helper()
	b := make([]byte, 1<<16)
	c := r.servers[server]
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		r.t.Fatalf("server %d: %v", server, err)
	}
	return string(b[:n]), from
}

// answer has a server answer to a port of the proxy.
func (r *rig) answer(server int, to netip.AddrPort, text string) {
	r.t.Helper()
	if _, err := r.servers[server].WriteToUDPAddrPort([]byte(text), to); err != nil {
		r.t.Fatal(err)
	}
}

// got turns the proxy until a client has received a datagram, and returns it.
func (r *rig) got(c *net.UDPConn) string {
	r.t.Helper()
	var text string
	r.until("the client has an answer", func() (ok bool) {
		text, ok = peek(r.t, c)
		return ok
	})
	return text
}

// peek returns a datagram that a client has received already.
func peek(t *testing.T, c *net.UDPConn) (text string, ok bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	var n int
	if e := raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
		return true
	}); e != nil {
		t.Fatal(e)
	}
	return string(b[:max(n, 0)]), err == nil
}

func (r *rig) hashOf(local, remote *burst.Endpoint) uint64 {
	secret := r.table.Secret()
	return flow.Hash(&secret, flow.UDP, local, remote)
}

// hash returns the hash of a client's flow.
func (r *rig) hash(c *net.UDPConn) uint64 {
	local, remote := burst.EndpointOf(c.RemoteAddr().(*net.UDPAddr).AddrPort()), burst.EndpointOf(c.LocalAddr().(*net.UDPAddr).AddrPort())
	return r.hashOf(&local, &remote)
}

func (r *rig) count(id counters.ID) (n uint64) {
	for _, l := range r.lanes {
		n += l.block.Load(id)
	}
	return n
}

func (r *rig) flows() int {
	n, _ := r.group.Open(mono.Millis())
	return n
}

func (r *rig) want(what string, got, want any) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}
