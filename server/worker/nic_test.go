package worker

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/wire"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/packet"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

// fabric is a device and its rings in the memory of the test.
type fabric struct {
	t    testing.TB
	mu   sync.Mutex
	rx   [][]byte                // what waits in the one queue
	sent [][]byte                // by the device
	ring map[wire.Peer][][2]any  // frames, and whether they are to be sent, by who has them
	read map[wire.Peer]bool      // who watches the queue
	wake map[wire.Peer]chan bool // unused where lanes are not run
}

var serverMAC, clientMAC = header.MAC{2, 0, 0, 0, 0, 1}, header.MAC{2, 0, 0, 0, 0, 9}

func newFabric(t testing.TB) *fabric {
	return &fabric{t: t, ring: map[wire.Peer][][2]any{}, read: map[wire.Peer]bool{}}
}

func (f *fabric) put(frames ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rx = append(f.rx, frames...)
}

func (f *fabric) take() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sent
	f.sent = nil
	return s
}

// cable is the wire.Wire of one worker on a fabric.
type cable struct {
	*fabric
	me      wire.Peer
	way     wire.Way
	buffers [burst.Max][2048]byte
	room    [2048]byte
	pending [][]byte
	quiet   bool // it keeps nothing of what is sent
	count   int  // of what was sent
}

func (f *fabric) cable(slot, worker int) *cable {
	return &cable{fabric: f, me: wire.Peer{Slot: slot, Worker: worker}}
}

func (c *cable) Devices() []wire.Device { return devices }

var devices = []wire.Device{{Name: "wan", MAC: serverMAC, MTU: 1500, Queues: 1}}

func (c *cable) Watch(queues []wire.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[c.me] = len(queues) > 0
}

func (c *cable) Receive(frames []packet.Frame, _, sleep time.Duration, wake int) (n, device int, ringing bool) {
	c.mu.Lock()
	if c.read[c.me] {
		for who, reads := range c.read {
			if reads && who != c.me {
				c.t.Errorf("%v and %v read the queue", c.me, who)
			}
		}
		for n < len(frames) && n < len(c.rx) {
			frames[n] = packet.Frame{Data: c.buffers[n][:copy(c.buffers[n][:], c.rx[n])]}
			n++
		}
		if !c.quiet {
			c.rx = c.rx[n:]
		}
	}
	ringing = len(c.ring[c.me]) > 0
	c.mu.Unlock()
	if n == 0 && !ringing && sleep > 0 {
		var count [8]byte
		fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
		if got, err := unix.Poll(fds, 1); got == 1 && err == nil {
			_, _ = unix.Read(wake, count[:])
		}
	}
	return n, 0, ringing
}

func (c *cable) rings(sends bool) (frames [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rest [][2]any
	for _, e := range c.ring[c.me] {
		if e[1] == sends {
			frames = append(frames, e[0].([]byte))
		} else {
			rest = append(rest, e)
		}
	}
	c.ring[c.me] = rest
	return frames
}

func (c *cable) Pull(f func(device int, frame []byte)) {
	for _, frame := range c.rings(false) {
		f(0, frame)
	}
}

func (c *cable) push(to wire.Peer, frame []byte, sends bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring[to] = append(c.ring[to], [2]any{frame, sends})
}

func (c *cable) Give(_ int, frame []byte, to wire.Peer) bool {
	c.push(to, bytes.Clone(frame), false)
	return true
}

func (c *cable) Tx(int) packet.Tx { return c }

func (c *cable) Reserve() []byte { return c.room[:] }

func (c *cable) Commit(n int) {
	c.count++
	if !c.quiet {
		c.pending = append(c.pending, bytes.Clone(c.room[:n]))
	}
}

func (c *cable) SetWay(w wire.Way) { c.way = w }

func (c *cable) Relay() {
	if c.way != (wire.Way{}) {
		c.pending = append(c.pending, c.rings(true)...)
	}
}

func (c *cable) Flush() int {
	switch {
	case c.way == wire.Way{}:
		return 0
	case c.way == wire.ByQueue(c.me.Worker):
		c.mu.Lock()
		if !c.read[c.me] && len(c.pending) > 0 {
			c.t.Errorf("%v sends by a device that it does not read", c.me)
		}
		c.sent = append(c.sent, c.pending...)
		c.mu.Unlock()
	default:
		for slot := range 4 {
			for worker := range 4 {
				if to := (wire.Peer{Slot: slot, Worker: worker}); c.way == wire.ByPeer(to) {
					for _, frame := range c.pending {
						c.push(to, frame, true)
					}
				}
			}
		}
	}
	c.pending = nil
	return 0
}

func (c *cable) Close() {}

// netHost is a host on the other end.
type netHost struct {
	*packet.Layer
	t      testing.TB
	ip     netip.Addr
	frames [][]byte // of its own
}

func (c *netHost) Reserve() []byte { return make([]byte, 2048) }

func (c *netHost) Commit(int) {}

func newNetHost(t testing.TB) *netHost {
	t.Helper()
	c := &netHost{t: t, ip: netip.MustParseAddr("192.0.2.9")}
	var err error
	c.Layer, err = packet.New(packet.Config{
		MAC: clientMAC, MTU: 1500, Addresses: []packet.Address{{IP: c.ip}},
		Routes:     []route.Route{{To: netip.MustParsePrefix("192.0.2.0/24")}},
		Neighbours: []packet.Neighbour{{IP: netip.MustParseAddr("192.0.2.1"), MAC: serverMAC}},
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Listen(c.ip, 1, 65535); err != nil {
		t.Fatal(err)
	}
	return c
}

// datagram returns the frame of a datagram to a port of the server.
func (c *netHost) datagram(from, to uint16) []byte {
	c.t.Helper()
	d := []packet.Datagram{{
		Buf: append(make([]byte, packet.Headroom), "who"...), N: 3,
		Local:  burst.EndpointOf(netip.AddrPortFrom(c.ip, from)),
		Remote: burst.EndpointOf(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), to)),
	}}
	c.Output(d, mono.Now())
	if d[0].Verdict != packet.Transmit {
		c.t.Fatalf("%v, %v", d[0].Verdict, d[0].Drop)
	}
	return d[0].Frame
}

// answers returns what came for datagrams of this client, as "PORT TEXT".
func (c *netHost) answers(frames [][]byte) (all []string) {
	for _, data := range frames {
		f := []packet.Frame{{Data: data}}
		c.Input(f, mono.Now())
		if f[0].Verdict == packet.Deliver {
			all = append(all, fmt.Sprintf("%d %s", f[0].Local.Port, bytes.TrimSpace(f[0].Payload)))
		}
	}
	return all
}

// onDevice makes w a world of one device with one queue, and two listeners.
func (w *world) onDevice() *fabric {
	w.dpdk = config.Primary{Poll: config.Adaptive, Devices: []config.Device{{
		Name: "wan", Queues: 1, MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
	}}}
	w.queues = []QueueRef{{ID: 7}}
	for i, affinity := range []config.Affinity{config.AffinityFlow, config.AffinityNone} {
		w.listeners = append(w.listeners, config.Listener{
			Name: fmt.Sprint("l", i), UDP: true, Service: config.ServiceIdentify, Affinity: affinity,
			Address: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(5000+i))},
		})
	}
	return newFabric(w.t)
}

// plug joins the workers of g to the device.
func (g *generation) plug(f *fabric) *generation {
	g.w.t.Helper()
	for i, o := range g.workers {
		if err := o.lanes[0].nic.join(f.cable(g.slot, i)); err != nil {
			g.w.t.Fatal(err)
		}
	}
	return g
}

// A lane serves what comes by its queue: datagrams of several listeners in one burst,
// each by its own and back the way it came. What nobody serves is refused, and all of
// it is accounted for.
func TestNICServes(t *testing.T) {
	w := newWorld(t, 1, 1)
	f := w.onDevice()
	g := w.open(0).plug(f)
	w.boot(g)
	l, c := g.workers[0].lanes[0], newNetHost(t)
	l.boundary()
	l.nic.turn(false)
	f.take() // announcements
	f.put(c.datagram(1, 5000), c.datagram(2, 5001), c.datagram(3, 5000), c.datagram(4, 9), c.datagram(5, 5001))
	l.nic.turn(false)
	got := c.answers(f.take())
	slices.Sort(got)
	var want []string
	for _, port := range []int{1, 2, 3, 5} {
		want = append(want, fmt.Sprintf("%d %s config=test", port, by(g)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	text := uint64(len(by(g) + " config=test\n"))
	g.wantCounters(map[counters.ID]uint64{
		counters.Received: 5, counters.Served: 4, counters.Sent: 4, counters.RxBytes: 4 * 3, counters.TxBytes: 4 * text,
		counters.Bursts: 1, counters.Dropped + counters.ID(counters.DropNoListener): 1,
	})
}

// Serving takes no memory, whatever a burst is made of.
func TestNICDoesNotAllocate(t *testing.T) {
	for name, ports := range map[string][]uint16{"flow": {5000}, "none": {5001}, "both": {5000, 5001}} {
		w := newWorld(t, 1, 1)
		f := w.onDevice()
		g := w.open(0).plug(f)
		w.boot(g)
		l, c := g.workers[0].lanes[0], newNetHost(t)
		l.boundary()
		for i := range uint16(burst.Max) {
			f.put(c.datagram(100+i, ports[int(i)%len(ports)]))
		}
		wire := l.nic.wire.(*cable)
		wire.quiet = true // the same burst again and again
		if n := testing.AllocsPerRun(100, func() { l.boundary(); l.nic.turn(false) }); n != 0 {
			t.Errorf("%s: %v allocations a burst", name, n)
		}
		if wire.count < 100*burst.Max {
			t.Errorf("%s: %d answers", name, wire.count)
		}
	}
}

// A flow stays with the generation that it began with: its datagrams go by a ring to
// that, and the answers by a ring to the owner of the wire, which alone sends. New
// flows, and listeners without affinity, go to the new one.
func TestNICHandOver(t *testing.T) {
	w := newWorld(t, 1, 1)
	f := w.onDevice()
	c := newNetHost(t)
	one := w.open(0).plug(f)
	one.run()
	w.boot(one)
	served := func(port, to uint16, want string) {
		t.Helper()
		f.put(c.datagram(port, to))
		var got []string
		until(t, "an answer comes", func() bool { got = append(got, c.answers(f.take())...); return len(got) > 0 })
		if len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("%d %s ", port, want)) {
			t.Errorf("port %d: %q, want one answer by %s", port, got, want)
		}
	}
	served(1, 5000, by(one))
	served(1, 5000, by(one)) // a second datagram keeps it from being pushed out
	two := w.open(1, one).plug(f)
	two.run()
	w.handOver(one, two, true)
	for range 20 {
		served(1, 5000, by(one))
		served(2, 5000, by(two))
		served(3, 5001, by(two))
	}
}

// An ICMP error goes to the owner of the flow that it is about.
func TestNICFault(t *testing.T) {
	w := newWorld(t, 1, 1)
	f := w.onDevice()
	c := newNetHost(t)
	one := w.open(0).plug(f)
	w.boot(one)
	first := one.workers[0].lanes[0]
	first.boundary()
	for range 2 {
		f.put(c.datagram(1, 5000))
		first.nic.turn(false)
	}
	two := w.open(1, one).plug(f)
	second := two.workers[0].lanes[0]
	done := make(chan struct{})
	go func() { // park waits for the ack
		defer close(done)
		until(t, "the park", func() bool { first.boundary(); return first.owner.IsPark() })
	}()
	w.handOver(one, two, true)
	<-done
	first.boundary()
	second.boundary()
	frame := tooBig(c.datagram(1, 5000), 600)
	f.put(frame)
	second.nic.turn(false)
	first.nic.turn(false)
	to := burst.EndpointOf(netip.AddrPortFrom(c.ip, 1))
	for _, x := range []struct {
		l    *lane
		want int
	}{{first, 1}, {second, 0}} {
		if n := x.l.nic.layers[0].PathMTUs(); n != x.want {
			t.Errorf("%v: %d paths of %v are known, want %d", x.l.worker.epoch, n, to, x.want)
		}
	}
}

// tooBig returns the error of a router about the answer to a datagram.
func tooBig(query []byte, mtu int) []byte {
	ip := header.IPv4(query[header.EthernetSize:])
	client, server := ip.Src(), ip.Dst()
	quote := make([]byte, header.IPv4Size+header.UDPSize)
	header.PutIPv4(quote, &header.IPFields{Src: &server, Dst: &client, Proto: header.UDP, HopLimit: 64, Length: header.UDPSize})
	header.PutUDP(quote[header.IPv4Size:], 5000, 1, header.UDPSize, 0, true)
	m := header.ICMPSize + len(quote)
	frame := make([]byte, header.EthernetSize+header.IPv4Size+m)
	link := header.Link{Peer: serverMAC, Own: clientMAC}
	at := link.Put(frame, header.TypeIPv4)
	header.PutIPv4(frame[at:], &header.IPFields{Src: &client, Dst: &server, Proto: header.ICMP, HopLimit: 64, Length: m})
	message := frame[at+header.IPv4Size:]
	copy(message[header.ICMPSize:], quote)
	header.PutICMP(message, header.Unreachable, header.CodeFragNeeded, uint32(mtu), 0)
	return frame
}
