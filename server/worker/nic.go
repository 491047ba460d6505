package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/dpdk/wire"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/logging"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/packet"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

// nic is what a lane has instead of sockets on the data path DPDK. To the directory
// a queue is a socket: the generation that reads the queues owns the wire, and no
// other touches a device. A lane that does not own it serves what comes out of rings
// and sends by way of a lane that does.
type nic struct {
	lane   *lane
	wire   wire.Wire
	layers []*packet.Layer // by device
	macs   []header.MAC    // by device
	taps   []*tapEnd       // by device; nil where the kernel has no part in it
	tx     []*nicTx        // by device

	queues  []nicQueue
	reading []wire.Queue // those that this lane reads now
	owns    bool         // its generation owns the wire
	parked  bool         // it does, and must not touch it
	relay   wire.Peer    // by whom it sends. Valid iff neither owns nor wire.Way is none
	peers   []wire.Peer  // workers that learn of neighbours what this one does

	listeners map[burst.Endpoint]int // by local address
	last      burst.Endpoint         // looked up last
	lastFound int

	frames   [burst.Max]packet.Frame
	out      [1]packet.Datagram
	replies  []byte
	listener [burst.Max]int // of each packet of a burst

	pause   time.Duration // of the next sleep
	idle    bool          // nothing came when it looked last
	ticks   int64         // when layers have something to do, mono ns
	seen    [][counters.NumReasons]uint64
	answers int // since the last flush
	made    uint64
	lost    logging.Seldom
	one     [1]packet.Frame
	pulled  func(device int, frame []byte)
}

// nicQueue is a queue of a device: read by the worker with its number, modulo the
// workers, as long as that lives.
type nicQueue struct {
	wire.Queue
	id      uint32
	owner   int
	emptied bool // the generation leaves, and what had waited is served
}

// nicTx is how everything leaves that this lane sends, but for what it relays.
type nicTx struct {
	packet.Tx
	lane *lane
	room []byte // of the frame that is under way
}

// Reserve implements packet.Tx.
func (t *nicTx) Reserve() []byte {
	t.room = t.Tx.Reserve()
	return t.room
}

// Commit implements packet.Tx.
func (t *nicTx) Commit(n int) {
	t.lane.traceFrame(t.room[:n])
	t.Tx.Commit(n)
}

// stride separates the buffers of answers: an odd number of cache lines.
const stride = 1<<16 + 65*64

func newNIC(l *lane) *nic {
	m := l.worker.m
	n := &nic{lane: l, replies: make([]byte, burst.Max*stride), listeners: make(map[burst.Endpoint]int), idle: true, ticks: math.MaxInt64}
	n.pulled = n.learn
	for _, q := range m.Queues {
		n.queues = append(n.queues, nicQueue{Queue: wire.Queue{Device: q.Device, Index: q.Queue}, id: q.ID, owner: q.Queue % m.Config.Workers})
	}
	for i := range m.Config.Listeners {
		for _, ap := range m.Config.Listeners[i].Address {
			for _, ip := range localAddresses(m.Config, ap.Addr()) {
				n.listeners[burst.EndpointOf(netip.AddrPortFrom(ip, ap.Port()))] = i
			}
		}
	}
	return n
}

// localAddresses returns the addresses of devices that a listener's stands for.
func localAddresses(cfg *config.Config, listener netip.Addr) (all []netip.Addr) {
	for _, d := range cfg.DPDK.Devices {
		for _, p := range d.Addresses {
			if a := p.Addr(); a == listener || listener.IsUnspecified() && a.Is4() == listener.Is4() {
				all = append(all, a)
			}
		}
	}
	return all
}

// How long a worker asks the primary for its lease: the process that had it before
// may still be cleared away.
const (
	leaseTime  = 10 * time.Second
	leasePause = 2 * time.Millisecond
)

// attach joins the devices. The calling goroutine is that of the lane from then on,
// and locked to its thread.
func (n *nic) attach(ctx context.Context) error {
	runtime.LockOSThread()
	m := n.lane.worker.m
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	lease, err := takeLease(ctx, m)
	if err != nil {
		return err
	}
	w, err := wire.Attach(lease)
	if err != nil {
		return err
	}
	return n.join(w)
}

// takeLease asks until there is a lease, or ctx ends.
func takeLease(ctx context.Context, m *Manifest) (*primary.Lease, error) {
	c := primary.NewClient(filepath.Dir(m.Config.Control))
	tick := time.NewTicker(leasePause)
	defer tick.Stop()
	for {
		lease, err := c.Lease(ctx, primary.LeaseRequest{PID: os.Getpid(), Slot: m.Slot, Worker: m.Index})
		var refused *primary.RefusedError
		if !errors.As(err, &refused) {
			return lease, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// join makes the hosts that the devices are.
func (n *nic) join(w wire.Wire) error {
	n.wire = w
	cfg := n.lane.worker.m.Config
	devices := w.Devices()
	if len(devices) != len(cfg.DPDK.Devices) {
		return fmt.Errorf("the primary has %d devices, the configuration %d", len(devices), len(cfg.DPDK.Devices))
	}
	n.openTAPs(len(devices))
	n.seen = make([][counters.NumReasons]uint64, len(devices))
	for i, d := range devices {
		n.tx = append(n.tx, &nicTx{Tx: w.Tx(i), lane: n.lane})
		layer, err := packet.New(hostConfig(&cfg.DPDK.Devices[i], d, n.taps[i] != nil), n.tx[i])
		if err != nil {
			return fmt.Errorf("device %s: %w", cfg.DPDK.Devices[i].Name, err)
		}
		for at := range n.listeners {
			if ap := at.AddrPort(); slices.ContainsFunc(cfg.DPDK.Devices[i].Addresses, func(p netip.Prefix) bool { return p.Addr() == ap.Addr() }) {
				if err := layer.Listen(ap.Addr(), ap.Port(), ap.Port()); err != nil {
					return fmt.Errorf("device %s: %w", cfg.DPDK.Devices[i].Name, err)
				}
			}
		}
		n.layers, n.macs = append(n.layers, layer), append(n.macs, d.MAC)
	}
	return nil
}

// hostConfig is the host that a device is.
func hostConfig(d *config.Device, w wire.Device, kernel bool) packet.Config {
	vlan := uint16(d.VLAN)
	c := packet.Config{MAC: w.MAC, MTU: d.MTU, Kernel: kernel}
	for _, p := range d.Addresses {
		c.Addresses = append(c.Addresses, packet.Address{IP: p.Addr(), VLAN: vlan})
		r := route.Route{To: p.Masked(), VLAN: vlan}
		if !slices.Contains(c.Routes, r) {
			c.Routes = append(c.Routes, r)
		}
	}
	for _, g := range d.Gateways {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if g.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		c.Routes = append(c.Routes, route.Route{To: all, Via: g, VLAN: vlan})
	}
	for _, k := range d.Neighbours {
		c.Neighbours = append(c.Neighbours, packet.Neighbour{IP: k.IP, VLAN: vlan, MAC: header.MAC(k.MAC)})
	}
	return c
}

// mayRead reports whether this lane may read q when its generation may.
func (n *nic) mayRead(q *nicQueue) bool {
	l := n.lane
	switch {
	case l.stopping:
		return false
	case q.owner == l.worker.index:
		return !l.absent
	}
	return l.standsIn>>q.owner&1 != 0
}

// setReading watches the queues that this lane is to read.
func (n *nic) setReading(want func(socket uint32) bool) {
	n.reading = n.reading[:0]
	for i := range n.queues {
		if q := &n.queues[i]; n.mayRead(q) && want(q.id) {
			n.reading = append(n.reading, q.Queue)
		}
	}
	n.wire.Watch(n.reading)
	n.watchTAPs()
}

// park lets go of the wire: what others have sent by way of this lane goes first.
// What comes later stays in the rings.
func (n *nic) park() {
	if n.parked || !n.owns {
		return
	}
	n.wire.Relay()
	n.flush()
	n.parked = true
	n.wire.SetWay(wire.Way{})
}

// look obeys the generation slots: who owns the wire, and who else lives.
func (n *nic) look() {
	l, w := n.lane, n.lane.worker
	epoch, now := l.owner.Epoch(), mono.Now()
	n.flush()
	n.parked = false
	owns := slices.ContainsFunc(n.queues, func(q nicQueue) bool { return w.dir.Reader(epoch, q.id) == w.slot })
	for _, layer := range n.layers {
		switch {
		case owns && !n.owns:
			layer.Own(now)
		case !owns && n.owns:
			layer.Disown()
		}
	}
	n.owns = owns
	if owns {
		n.ticks = now
		n.wire.SetWay(wire.ByQueue(w.index))
	} else {
		n.wire.SetWay(wire.Way{})
	}
	n.peers = n.peers[:0]
	for slot := range directory.MaxSlots {
		g := w.dir.Generation(slot)
		if g.State == directory.Free {
			continue
		}
		var alive []wire.Peer
		for i := range g.Workers {
			p := wire.Peer{Slot: slot, Worker: (w.index + i) % g.Workers}
			if (slot != w.slot || p.Worker != w.index) && !w.dir.Worker(slot, p.Worker).IsGone() {
				alive = append(alive, p)
			}
		}
		n.peers = append(n.peers, alive...)
		if !owns && g.Epoch == epoch && slot != w.slot && len(alive) > 0 {
			n.relay = alive[0]
			n.wire.SetWay(wire.ByPeer(n.relay))
		}
	}
}

// leave serves what waits in queues that nobody reads after this generation.
func (n *nic) leave(epoch uint32) {
	l := n.lane
	for i := range n.queues {
		q := &n.queues[i]
		if q.emptied || !n.mayRead(q) || !l.worker.dir.Leftover(epoch, q.id, l.worker.slot) {
			continue
		}
		q.emptied = true
		n.wire.Watch([]wire.Queue{q.Queue})
		n.empty()
	}
}

// empty serves what waits in the queues that are watched.
func (n *nic) empty() {
	for range stopBursts {
		if !n.receive(0, 0) {
			return
		}
	}
}

// close gives everything back.
func (n *nic) close() {
	if n.wire != nil {
		n.flush()
		n.wire.Close()
	}
}
