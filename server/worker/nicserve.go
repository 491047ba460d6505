package worker

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/dnsapp/dnsapp/dpdk/wire"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/packet"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// How a lane looks for packets when it has found none: it goes on looking for a
// while, and then sleeps, each time twice as long. One that is idle wakes up
// five hundred times a second, which takes one or two hundredths of a processor.
const (
	spinTime = 20 * time.Microsecond
	pauseMin = 20 * time.Microsecond
	pauseMax = 2 * time.Millisecond
	// From this pause on it does not spin before it sleeps.
	pauseLong = 200 * time.Microsecond
	// A busy lane passes a boundary at least so often.
	busySpin = 10 * time.Microsecond
)

// turn does what there is to do once, and reports whether the lane is to go on
// without waiting in its poller. busy: it has done something already.
func (n *nic) turn(busy bool) bool {
	l := n.lane
	var spin, sleep time.Duration
	if len(n.reading) > 0 && !busy && n.idle && (l.rings == nil || l.rings.sleep()) {
		spin, sleep = n.rest()
	}
	got := n.receive(spin, sleep)
	n.idle = !got
	if got {
		n.pause = 0
	}
	if n.tick() {
		got = true
	}
	if n.fromKernel() {
		got = true
	}
	n.flush()
	return got || len(n.reading) > 0
}

// rest returns how long to look, and how long to sleep.
func (n *nic) rest() (spin, sleep time.Duration) {
	if n.lane.worker.m.Config.DPDK.Poll == config.Busy {
		return busySpin, 0
	}
	n.pause = min(max(2*n.pause, pauseMin), pauseMax)
	if n.pause < pauseLong {
		spin = spinTime
	}
	return spin, n.pause
}

// receive serves one burst, and what is in rings of frames. It reports whether
// there was anything.
func (n *nic) receive(spin, sleep time.Duration) bool {
	l := n.lane
	if l.noteRead && len(n.reading) > 0 {
		l.view.NoteRead()
		l.noteRead = false
	}
	got, device, ringing := n.wire.Receive(n.frames[:], spin, sleep, l.wake)
	if got > 0 {
		l.block.Add(counters.Bursts, 1)
		n.input(device, n.frames[:got])
	}
	if ringing && !n.parked {
		n.wire.Pull(n.pulled)
		n.wire.Relay()
	}
	return got > 0 || ringing && !n.parked
}

// input serves frames of a device.
func (n *nic) input(device int, frames []packet.Frame) {
	l, layer, b := n.lane, n.layers[device], &n.lane.in
	b.Now, b.N = mono.Now(), 0
	l.traceFrames(frames, b.Now)
	layer.Input(frames, b.Now)
	n.ticks = b.Now // it may have something to do soon
	bytes := 0
	for i := range frames {
		f := &frames[i]
		switch f.Verdict {
		case packet.Deliver:
			listener := n.listenerOf(&f.Local)
			if listener < 0 {
				l.block.Add(counters.Received, 1)
				l.block.Add(counters.Dropped+counters.ID(counters.DropNoService), 1)
				break
			}
			p := &b.Packets[b.N]
			p.Payload, p.Remote, p.Local, p.ECN = f.Payload, f.Remote, f.Local, f.ECN
			p.IfIndex, p.Socket, p.Hash, p.Way = uint32(device)+1, 0, 0, wayOf(&f.Link)
			n.listener[b.N] = listener
			bytes += len(f.Payload)
			b.N++
		case packet.Transmit:
			n.send(device, f.Data)
		case packet.Error:
			n.fault(device, f, b.Now)
		case packet.ToKernel:
			n.taps[device].Write(f.Data)
		}
		if f.Share {
			n.share(device, f.Data)
			n.tellKernel(device, f.Data)
		}
	}
	n.noteDrops(device)
	if b.N == 0 {
		return
	}
	l.block.Add(counters.Received, uint64(b.N))
	l.block.Add(counters.RxBytes, uint64(bytes))
	n.serve(b)
}

// wayOf is how a frame came, in one word: from whom, and by which tag. The rest of
// a header.Link is the device's own.
func wayOf(l *header.Link) uint64 {
	var mac [8]byte
	copy(mac[2:], l.Peer[:])
	return binary.BigEndian.Uint64(mac[:])<<16 | uint64(l.TCI)
}

// linkOf is the inverse of wayOf. Way 0 is none.
func linkOf(way uint64, own header.MAC) (l header.Link) {
	if way == 0 {
		return l
	}
	var mac [8]byte
	binary.BigEndian.PutUint64(mac[:], way>>16)
	l.TCI = uint16(way)
	l.Peer, l.Own, l.Tag = header.MAC(mac[2:]), own, l.TCI != 0
	return l
}

// listenerOf returns the listener that serves a local address, -1 if none does.
func (n *nic) listenerOf(local *burst.Endpoint) int {
	if *local != n.last {
		at, ok := n.listeners[*local]
		if !ok {
			return -1
		}
		n.last, n.lastFound = *local, at
	}
	return n.lastFound
}

// serve serves a burst that was received: the datagrams of each listener together.
func (n *nic) serve(b *burst.Burst) {
	l := n.lane
	for left := b.N; left > 0; {
		listener, g := n.listener[0], b
		b.N = left
		for i := 1; i < left; i++ {
			if n.listener[i] != listener {
				g = n.pick(b, left, listener)
				break
			}
		}
		left -= g.N
		if l.worker.m.Config.Listeners[listener].Affinity == config.AffinityFlow {
			l.split.Split(g)
		}
		n.answer(l.handlers[listener], g, counters.Served, counters.Dropped)
	}
}

// pick moves those of the first packets of b that are of a listener into the
// lane's group, and closes the gaps.
func (n *nic) pick(b *burst.Burst, left, listener int) *burst.Burst {
	g, kept := &n.lane.group, 0
	g.N, g.Now = 0, b.Now
	for i := range left {
		if n.listener[i] == listener {
			g.Packets[g.N] = b.Packets[i]
			g.N++
			continue
		}
		n.listener[kept] = n.listener[i]
		b.Packets[kept], b.Packets[i] = b.Packets[i], b.Packets[kept]
		kept++
	}
	return g
}

// slot is the buffer of answer i, with room for headers before it.
func (n *nic) slot(i int) []byte {
	return n.replies[i*stride : i*stride+packet.Headroom+burst.MaxPayload : i*stride+packet.Headroom+burst.MaxPayload]
}

// prepare gives the first count packets of b empty answer buffers.
func (n *nic) prepare(b *burst.Burst, count int) {
	for i := range count {
		p := &b.Packets[i]
		p.Reply, p.Drop, p.Class = n.slot(i)[packet.Headroom:packet.Headroom], counters.NotDropped, counters.ClassPlain
	}
	b.N = count
}

// answer gives b to a service, sends the answers, and counts what became of each
// datagram.
func (n *nic) answer(h burst.Handler, b *burst.Burst, served, dropped counters.ID) {
	if b.N == 0 {
		return
	}
	n.prepare(b, b.N)
	n.ticks = b.Now // neighbours may be asked for
	h.ServeBurst(b)
	bytes, sent := uint64(0), uint64(0)
	for i := range b.N {
		p := &b.Packets[i]
		if p.Drop != counters.NotDropped || len(p.Reply) == 0 && !p.Empty {
			continue
		}
		if p.Drop = n.reply(i, p, b.Now); p.Drop == counters.NotDropped {
			bytes += uint64(len(p.Reply))
			sent++
		}
	}
	n.answers += int(sent)
	n.lane.block.Add(counters.TxBytes, bytes)
	n.lane.account(b, served, dropped)
}

// reply sends the answer to p, which is number i of its burst, the way it came.
func (n *nic) reply(i int, p *burst.Packet, now int64) counters.Reason {
	device := int(p.IfIndex) - 1
	if device < 0 || device >= len(n.layers) {
		return counters.DropInternal
	}
	buf := n.slot(i)
	if len(p.Reply) > 0 && &p.Reply[0] != &buf[packet.Headroom] { // the service has changed the order
		if copy(buf[packet.Headroom:], p.Reply) < len(p.Reply) {
			return counters.DropTooLarge
		}
	}
	d := &n.out[0]
	*d = packet.Datagram{
		Buf: buf, N: len(p.Reply), Local: p.Local, Remote: p.Remote, ECN: p.ECN,
		Link: linkOf(p.Way, n.macs[device]),
	}
	n.layers[device].Output(n.out[:], now)
	switch d.Verdict {
	case packet.Transmit:
		if !n.send(device, d.Frame) {
			return counters.DropNoBuffer
		}
	case packet.Dropped:
		return d.Drop
	}
	return counters.NotDropped
}

// send sends a frame as it is.
func (n *nic) send(device int, frame []byte) bool {
	tx := n.tx[device]
	room := tx.Reserve()
	if len(room) < len(frame) {
		return false
	}
	tx.Commit(copy(room, frame))
	return true
}

// flush sends what is left, wakes who relays it, and counts what was sent.
func (n *nic) flush() {
	lost := n.wire.Flush()
	n.lane.block.Add(counters.Sent, uint64(max(n.answers-lost, 0)))
	made := uint64(0)
	for _, layer := range n.layers {
		made += layer.Stats.Made
	}
	if !n.owns && (n.answers > 0 || made != n.made) {
		n.lane.worker.wakeWorker(n.relay.Slot, n.relay.Worker)
	}
	n.answers, n.made = 0, made
	if lost > 0 {
		if skipped, ok := n.lost.Now(); ok {
			n.lane.log.Warn("a device, or the worker that sends for this one, does not take all frames", "lane", n.lane.global, "lost", lost, "not_logged", skipped)
		}
	}
}

// noteDrops counts what a layer has dropped of its own accord: to the ledger it was
// received and dropped.
func (n *nic) noteDrops(device int) {
	seen, now := &n.seen[device], &n.layers[device].Stats.Dropped
	if *seen == *now {
		return
	}
	for r := range counters.NumReasons {
		if d := now[r] - seen[r]; d > 0 {
			n.lane.block.Add(counters.Received, d)
			n.lane.block.Add(counters.Dropped+counters.ID(r), d)
		}
	}
	*seen = *now
}

// tick does what is due in layers, and reports whether anything was.
func (n *nic) tick() bool {
	now := mono.Now()
	if now < n.ticks || n.parked {
		return false
	}
	n.ticks = math.MaxInt64
	for device, layer := range n.layers {
		n.ticks = min(n.ticks, layer.Tick(now))
		n.noteDrops(device)
	}
	return n.ticks <= now
}

// share gives a frame that says something of neighbours to everybody who resolves
// any.
func (n *nic) share(device int, frame []byte) {
	for _, p := range n.peers {
		n.give(device, frame, p)
	}
}

// give gives a frame to a worker. One that has no room for it does without.
func (n *nic) give(device int, frame []byte, to wire.Peer) {
	if n.wire.Give(device, frame, to) {
		n.lane.worker.wakeWorker(to.Slot, to.Worker)
	}
}

// fault passes an ICMP error on to the owner of the flow that it is about. Of a flow
// that nobody has recorded, as those of listeners without affinity, every worker
// of this generation may have sent something.
func (n *nic) fault(device int, f *packet.Frame, now int64) {
	w := n.lane.worker
	slot, worker, known := n.lane.split.Owner(&f.Local, &f.Remote, now)
	if known && (slot != w.slot || worker != w.index) {
		n.give(device, f.Data, wire.Peer{Slot: slot, Worker: worker})
		return
	}
	n.layers[device].Believe(f, now)
	for _, p := range n.peers {
		if !known && p.Slot == w.slot {
			n.give(device, f.Data, p)
		}
	}
}

// learn takes a frame that another worker has given.
func (n *nic) learn(device int, frame []byte) {
	now := mono.Now()
	n.ticks = now
	layer := n.layers[device]
	if header.Discovery(frame) {
		layer.Learn(frame, now)
		return
	}
	n.one[0] = packet.Frame{Data: frame}
	layer.Input(n.one[:], now)
	if f := &n.one[0]; f.Verdict == packet.Error {
		layer.Believe(f, now)
	}
	n.noteDrops(device)
}

// answerRecords serves the datagrams of b, which came out of rings.
func (n *nic) answerRecords(b *burst.Burst, served, dropped counters.ID) {
	g := &n.lane.group
	for at := 0; at < b.N; {
		listener := n.listenerOf(&b.Packets[at].Local)
		g.N, g.Now = 0, mono.Now()
		for ; at < b.N && n.listenerOf(&b.Packets[at].Local) == listener; at++ {
			g.Packets[g.N] = b.Packets[at]
			g.N++
		}
		if listener < 0 {
			n.lane.block.Add(dropped+counters.ID(counters.DropNoSocket), uint64(g.N))
			continue
		}
		n.answer(n.lane.handlers[listener], g, served, dropped)
	}
}
