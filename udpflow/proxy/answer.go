package proxy

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
)

// Ready notes that a conn may have received something.
func (l *Lane) Ready(at int32) {
	c := l.slab.at(at)
	if c == nil || c.queued || c.state == closed { // an event that was under way when its socket was closed
		return
	}
	c.queued = true
	l.enqueue(at)
}

func (l *Lane) enqueue(at int32) {
	l.slab.at(at).ready = none
	if l.lastReady == none {
		l.ready = at
	} else {
		l.slab.at(l.lastReady).ready = at
	}
	l.lastReady = at
}

func (l *Lane) dequeue() {
	if l.ready = l.slab.at(l.ready).ready; l.ready == none {
		l.lastReady = none
	}
}

// Serve does what there is to do without a datagram of a client: it passes one
// burst of answers back, takes datagrams over from other lanes, and ends flows
// whose time is over. It reports whether there may be more.
func (l *Lane) Serve() bool {
	busy := l.serveHandoffs()
	if l.sockets == 0 && l.ready == none {
		return busy
	}
	now := mono.Millis()
	if l.ready != none {
		l.passAnswers(now)
		busy = true
	}
	return l.expire(now) || busy
}

// passAnswers passes one burst of answers on.
func (l *Lane) passAnswers(now uint32) {
	out := &l.out
	out.N = 0
	socket := uint32(0)
	for l.ready != none && out.N < burst.Max {
		at := l.ready
		c := l.slab.at(at)
		if out.N > 0 && c.socket != socket {
			break // through another socket: the next burst
		}
		l.dequeue()
		if c.state == closed {
			c.queued = false
			l.slab.give(at)
			continue
		}
		first, room := out.N, burst.Max-out.N
		n, err := l.Net.Recv(int(c.fd), out)
		switch {
		case err == nil && n == room:
			l.enqueue(at) // others have their turn first
		case icmp(err):
			l.serverError(at, now)
			l.enqueue(at) // there may be datagrams behind it
		default:
			c.queued = false
		}
		switch {
		case n == 0:
		case c.state == active:
			socket = c.socket
			l.take(at, out, first, now)
		default:
			late := uint64(answers(out.Packets[first:out.N]))
			l.Block.Add(counters.ProxyIn, late)
			l.Block.Add(counters.ProxyLate, late)
			out.N = first
		}
	}
	l.flush(socket)
}

// take makes the datagrams of out from first on answers of the conn's flow.
func (l *Lane) take(at int32, out *burst.Burst, first int, now uint32) {
	c := l.slab.at(at)
	o := l.Listeners[c.listener]
	packets := out.Packets[first:out.N]
	n := uint32(answers(packets))
	if o.Responses > 0 {
		// What came behind the last answer is for nobody, and came late.
		left := uint64(c.requests)*uint64(o.Responses) - uint64(c.answers)
		if late := uint64(n) - min(uint64(n), left); late > 0 {
			n -= uint32(late)
			out.N = first + keep(packets, int(n))
			l.Block.Add(counters.ProxyIn, late)
			l.Block.Add(counters.ProxyLate, late)
		}
	}
	for i := first; i < out.N; i++ {
		p := &out.Packets[i]
		p.Remote, p.Local, p.IfIndex, p.Socket = c.remote, c.local, c.ifIndex, c.socket
	}
	l.counts[c.listener][c.member].From += uint64(n)
	if c.answers == 0 {
		o.Pool.Server(int(c.member)).Answered()
	}
	if c.answers += n; c.answers < n {
		c.answers -= n
	}
	c.last = now
	if o.Responses > 0 && uint64(c.answers) >= uint64(c.requests)*uint64(o.Responses) {
		l.wheel.remove(&l.slab, at)
		l.end(at, now, true)
		return
	}
	if o.Recorded && c.bound && now-c.touched > millis(l.Table.Idle())/touchPart {
		c.touched = now
		l.Table.Touch(c.hash.Load(), now)
	}
}

// touchPart is how often, in the idle time, a flow that only its server keeps
// alive is kept alive in the flow table.
const touchPart = 8

// flush sends the answers in l.out, and counts them afterwards: what is sent to a
// server and not counted as answered was lost with its worker, or by the server.
func (l *Lane) flush(socket uint32) {
	if l.out.N == 0 {
		return
	}
	n := answers(l.out.Packets[:l.out.N])
	unsent := l.Client.Answer(socket, &l.out)
	l.Block.Add(counters.ProxyIn, uint64(n))
	l.Block.Add(counters.ProxyUnsent, unsent)
}

// keep cuts packets to n datagrams, and returns how many packets those are.
func keep(packets []burst.Packet, n int) int {
	for i := range packets {
		p := &packets[i]
		if n == 0 {
			return i
		}
		if p.Answers() > n {
			p.Reply = p.Reply[:n*int(p.Segment)]
		}
		n -= p.Answers()
	}
	return len(packets)
}

// answers returns how many datagrams packets are.
func answers(packets []burst.Packet) (n int) {
	for i := range packets {
		n += packets[i].Answers()
	}
	return n
}

// expireMax bounds the flows that are looked at in one go.
const expireMax = 256

// lateness is the part of its time-out by which a flow may end late: a lane with
// many flows would else wake at every tick of the wheel.
const lateness = 16

// trimEvery is how often the pools are looked at, in milliseconds.
const trimEvery = 250

// expire ends flows whose time is over. It reports whether there are more to look
// at.
func (l *Lane) expire(now uint32) bool {
	for range expireMax {
		at := l.wheel.due(&l.slab, now)
		if at == none {
			return l.tidy(now)
		}
		c := l.slab.at(at)
		due := c.last + millis(l.Listeners[c.listener].Timeout)
		if int32(due-now) > 0 {
			l.wheel.add(&l.slab, at, due, now)
			continue
		}
		l.end(at, now, false)
	}
	return true
}

// tidy closes spare sockets and tells the counts, now and then.
func (l *Lane) tidy(now uint32) bool {
	if int32(now-l.trimmed) < trimEvery {
		return false
	}
	l.trimmed = now
	for listener, counts := range l.counts {
		for member := range counts {
			l.Listeners[listener].Pool.Server(member).Count(counts[member])
			counts[member] = backend.Counts{}
		}
	}
	if l.trim(now) {
		l.trimmed = now - trimEvery
		return true
	}
	return false
}

// Wait returns how long the lane may sleep if nothing happens; false if for ever.
func (l *Lane) Wait() (time.Duration, bool) {
	if l.sockets == 0 {
		return 0, false
	}
	now := mono.Millis()
	ms := max(trimEvery-int32(now-l.trimmed), 0)
	if due, ok := l.wheel.wait(now); ok {
		ms = min(ms, max(due, l.slack))
	}
	return time.Duration(ms) * time.Millisecond, true
}

// icmp reports whether err is what an ICMP message has said about an earlier
// datagram on a connected socket.
func icmp(err error) bool {
	return err != nil && (errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) ||
		errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.EPROTO))
}
