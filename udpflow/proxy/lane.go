package proxy

import (
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// Lane is the flows of one lane, of all its listeners. Everything in it belongs to
// that lane's goroutine but for what other lanes may look up.
type Lane struct {
	Setup
	slab   slab
	index  index
	wheel  *wheel
	secret flow.Secret

	pools   [][]pool           // by listener and member
	sources int                // turns through Options.Sources
	counts  [][]backend.Counts // not told yet, by listener and member

	next    [burst.Max]uint8 // packets of the same flow in the burst at hand
	touched [burst.Max]int32 // conns that it has packets for
	which   [burst.Max]uint8
	header  []byte

	ready, lastReady int32 // list of conns that may have received something
	out              burst.Burst

	outlets []*ring.Producer // to the other lanes
	pushed  []bool           // outlets that hold unpublished records
	inbox   *ring.Inbox
	drainer *ring.Drainer
	from    [burst.Max]ring.Source
	in      burst.Burst // what other lanes have handed over
	single  burst.Burst // a datagram of it

	slack     int32         // milliseconds by which a flow may end late when nothing else happens
	trimmed   uint32        // mono.Millis of the last look at the pools
	sockets   int           // that are open
	restUntil atomic.Uint32 // mono.Millis until which a socket is in quarantine; 0: none was
	refusals  budget
}

// New returns a lane without flows.
func New(s Setup) *Lane {
	most, slack := 0, int32(trimEvery)
	for _, o := range s.Listeners {
		if o != nil {
			most += o.Flows
			slack = min(slack, int32(millis(o.Timeout)/lateness))
		}
	}
	// Resting sockets need conns, too: as many again, and some for a small limit.
	l := &Lane{
		Setup: s, slab: newSlab(2*most + 16*chunkSize), index: newIndex(most), wheel: newWheel(s.Now), secret: s.Table.Secret(),
		ready: none, lastReady: none, header: make([]byte, 0, headerMax), slack: slack, trimmed: s.Now, refusals: budget{left: refusalBurst, at: s.Now},
	}
	for _, o := range s.Listeners {
		var pools []pool
		if o != nil {
			for range o.Servers {
				pools = append(pools, newPool())
			}
		}
		l.pools = append(l.pools, pools)
		l.counts = append(l.counts, make([]backend.Counts, len(pools)))
	}
	if rings := s.Group.handoffs; rings != nil {
		for lane := range s.Group.lanes {
			l.outlets = append(l.outlets, rings.Producer(s.Lane, lane))
		}
		l.pushed = make([]bool, len(l.outlets))
		l.inbox = rings.Inbox(s.Lane)
		l.drainer = ring.NewDrainer(l.inbox.Consumers())
	}
	s.Group.lanes[s.Lane] = l
	return l
}

// Handler returns the handler of a listener's datagrams.
func (l *Lane) Handler(listener int) burst.Handler { return handler{l, listener} }

type handler struct {
	lane     *Lane
	listener int
}

// ServeBurst implements burst.Handler.
func (h handler) ServeBurst(b *burst.Burst) { h.lane.serve(b, h.listener, true) }

// millis returns a duration, or the time of a burst, in milliseconds.
func millis[T time.Duration | int64](ns T) uint32 { return uint32(ns / T(time.Millisecond)) }

// serve passes the datagrams of b on. Those of one flow leave together. If hand,
// those whose flow another lane has go there.
func (l *Lane) serve(b *burst.Burst, listener int, hand bool) {
	now := millis(b.Now)
	o := l.Listeners[listener]
	n, handed := 0, false
	for i := range b.N {
		p := &b.Packets[i]
		hash := p.Hash
		if hash == 0 {
			hash = flow.Hash(&l.secret, flow.UDP, &p.Local, &p.Remote)
		}
		at := l.find(hash, p, o, now)
		if at == none {
			if hand && l.outlets != nil && l.hand(hash, p, b.Now) {
				handed = true
				continue
			}
			if at = l.begin(hash, p, listener, now); at == none {
				continue
			}
		}
		c := l.slab.at(at)
		if c.requests++; c.requests == 0 {
			c.requests--
		}
		c.socket, c.ifIndex = p.Socket, p.IfIndex
		if !c.inBurst {
			c.inBurst, c.head = true, uint8(i)
			l.touched[n] = at
			n++
		} else {
			l.next[c.tail] = uint8(i)
		}
		c.tail = uint8(i)
	}
	if handed {
		l.publish()
	}
	for _, at := range l.touched[:n] {
		l.send(at, b, now)
	}
}

// find returns the conn that is to have p, none if a flow is to begin.
func (l *Lane) find(hash uint64, p *burst.Packet, o *Listener, now uint32) int32 {
	at := l.index.find(&l.slab, hash, p)
	if at == none {
		return none
	}
	c := l.slab.at(at)
	switch {
	case o.Requests > 0 && int(c.requests) >= o.Requests:
		l.unbind(at) // it still gets its answers
		return none
	case !c.inBurst && o.Pool.Server(int(c.member)).Order() == backend.Disabled:
		l.wheel.remove(&l.slab, at)
		l.end(at, now, false)
		return none
	}
	return at
}

// send sends what the burst has for a conn.
func (l *Lane) send(at int32, b *burst.Burst, now uint32) {
	c := l.slab.at(at)
	c.inBurst = false
	c.last = now
	n := 0
	for i := c.head; ; i = l.next[i] {
		l.which[n] = i
		n++
		if i == c.tail {
			break
		}
	}
	which := l.which[:n]
	header := l.header[:0]
	if !c.opened && l.Listeners[c.listener].ProxyProtocol {
		header = appendHeader(header, &c.remote, &c.local)
	}
	for retried := false; len(which) > 0; {
		sent, err := l.Net.Send(int(c.fd), b, which, header)
		l.Block.Add(counters.ProxyOut, uint64(sent))
		l.counts[c.listener][c.member].To += uint64(sent)
		if sent > 0 {
			c.opened, header = true, header[:0]
			which = which[sent:]
		}
		switch {
		case err == nil:
			return
		case icmp(err) && !retried: // about an earlier datagram; nothing was sent
			retried = true
			l.serverError(at, now)
		default:
			b.Packets[which[0]].Drop = counters.DropToServer
			which = which[1:]
		}
	}
}

// begin makes a flow for p, or sets why there is none.
func (l *Lane) begin(hash uint64, p *burst.Packet, listener int, now uint32) int32 {
	o := l.Listeners[listener]
	at, member := none, 0
	client, flows := clientOf(&l.secret, &p.Remote), &l.Group.flows[listener]
	room, counted := l.Group.clients[listener].begin(client, o.ClientFlows)
	switch {
	case !room:
		p.Drop = counters.DropClientLimit
	case flows.Add(1) > int64(o.Flows):
		p.Drop = counters.DropLimit
	default:
		at, member = l.takeServer(o, listener, p, now)
	}
	if at == none {
		if room {
			flows.Add(-1)
		}
		if counted {
			l.Group.clients[listener].end(client)
		}
		if o.Recorded { // whoever reads the wire next would give it to us
			l.Table.Remove(hash, l.Worker)
		}
		return none
	}
	c := l.slab.at(at)
	c.state, c.member, c.listener = active, int32(member), uint16(listener)
	c.remote, c.local = p.Remote, p.Local
	c.last, c.touched = now, now
	c.requests, c.answers = 0, 0
	c.opened, c.inBurst = false, false
	c.bound, c.counted = true, counted
	l.index.add(&l.slab, at, hash)
	l.wheel.add(&l.slab, at, now+millis(o.Timeout), now)
	o.Pool.Begin(member)
	l.counts[listener][member].Flows++
	l.Block.Add(counters.ProxyFlows, 1)
	return at
}

// takeServer chooses a server for a new flow and returns it with a conn towards
// it, or sets why there is none.
func (l *Lane) takeServer(o *Listener, listener int, p *burst.Packet, now uint32) (at int32, member int) {
	member, ok := o.Pool.Pick(&p.Remote.IP, now)
	if !ok {
		p.Drop = counters.DropNoServer
		if l.refusals.take(now) {
			l.Client.Refuse(&p.Local, &p.Remote)
		}
		return none, 0
	}
	if at = l.takeConn(o, listener, member, p, now); at == none {
		p.Drop = counters.DropNoPort
	}
	return at, member
}

// unbind makes the client's next datagram begin a new flow.
func (l *Lane) unbind(at int32) {
	c := l.slab.at(at)
	if c.bound {
		c.bound = false
		l.index.remove(&l.slab, at)
	}
}

// end ends an active conn that has been taken out of the wheel. It is clean if all
// its answers have come.
func (l *Lane) end(at int32, now uint32, clean bool) {
	c := l.slab.at(at)
	o, listener := l.Listeners[c.listener], int(c.listener)
	if c.bound {
		if o.Recorded {
			l.Table.Remove(c.hash.Load(), l.Worker)
		}
		l.unbind(at)
	}
	if c.counted {
		l.Group.clients[listener].end(clientOf(&l.secret, &c.remote))
	}
	if o.Responses > 0 && c.answers == 0 {
		l.counts[listener][c.member].Silent++
		o.Pool.Server(int(c.member)).Failed(now, o.Passive)
	}
	o.Pool.End(int(c.member))
	l.Block.Add(counters.ProxyEnded, 1)
	l.rest(at, now, clean)
	if l.Group.flows[listener].Add(-1) == 0 {
		l.Idle()
	}
}

// serverError records that ICMP has said that the server of a conn does not serve,
// and tells its client, as the host of the server would have.
func (l *Lane) serverError(at int32, now uint32) {
	c := l.slab.at(at)
	l.Block.Add(counters.ProxyErrors, 1)
	if c.state != active {
		return
	}
	o := l.Listeners[c.listener]
	l.counts[c.listener][c.member].Refused++
	o.Pool.Server(int(c.member)).Failed(now, o.Passive)
	if l.refusals.take(now) {
		l.Client.Refuse(&c.local, &c.remote)
	}
}
