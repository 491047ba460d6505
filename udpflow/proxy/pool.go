package proxy

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
)

// queue is conns that rest, by the end of their last flow.
type queue struct{ first, last int32 }

// pool is the sockets of one server that have no flow. A socket is taken again
// when it has rested, the one that has rested longest first.
type pool struct {
	clean queue // all answers had come
	late  queue // some may come yet
}

func newPool() pool { return pool{queue{none, none}, queue{none, none}} }

// cleanPart is which part of the quarantine a socket rests all of whose answers
// have come: what comes then is a duplicate.
const cleanPart = 10

// spare is for how long a rested socket is kept before it is closed, in
// milliseconds.
const spare = 2000

// rests returns for how many milliseconds the conns of both queues rest.
func (o *Options) rests() (clean, late uint32) {
	late = millis(o.Quarantine)
	return late / cleanPart, late
}

// takeConn returns a conn for a new flow: a rested one, or a new one; none if
// there is no socket to be had.
func (l *Lane) takeConn(o *Listener, listener, member int, p *burst.Packet, now uint32) int32 {
	if o.Transparent {
		return l.dialAs(o, member, p)
	}
	pool := &l.pools[listener][member]
	clean, late := o.rests()
	if at := l.pop(&pool.clean, clean, now); at != none {
		return at
	}
	if at := l.pop(&pool.late, late, now); at != none {
		return at
	}
	return l.dial(o, listener, member, now)
}

// dialMax bounds the sockets that are opened for one flow.
const dialMax = 32

// dial returns a conn with a new socket, none if there is none to be had. A port
// that a worker had when it was killed rests first, for as long as any other.
func (l *Lane) dial(o *Listener, listener, member int, now uint32) int32 {
	for range dialMax {
		if !l.mayOpen() {
			return none
		}
		fd, from, err := l.open(o, member)
		at := l.add(fd, err)
		if at == none {
			if icmp(err) { // there is no way to the server: others may be better
				o.Pool.Server(member).Failed(now, o.Passive)
			}
			return none
		}
		c, fresh := l.slab.at(at), false
		if c.claim, fresh = l.Ports.Claim(from); fresh || o.Quarantine == 0 {
			return at
		}
		c.listener, c.member = uint16(listener), int32(member)
		l.rest(at, now, false)
	}
	return none
}

// dialAs returns a conn with the client's address and port.
func (l *Lane) dialAs(o *Listener, member int, p *burst.Packet) int32 {
	if !l.mayOpen() {
		return none
	}
	return l.add(l.Net.DialAs(o.Servers[member], p.Remote.AddrPort()))
}

// mayOpen counts a socket that is to be opened, unless there are too many.
func (l *Lane) mayOpen() bool {
	if l.Group.sockets.Add(1) <= l.Group.most {
		return true
	}
	l.Group.sockets.Add(-1)
	l.NoSocket(unix.EMFILE)
	return false
}

// add returns a conn for a socket that was counted, none if err says that there is
// none.
func (l *Lane) add(fd int, err error) int32 {
	at, ok := none, false
	if err == nil {
		if at, ok = l.slab.take(); !ok {
			err = unix.ENOMEM
		} else if err = l.Net.Watch(fd, at); err != nil {
			l.slab.give(at)
		}
		if err != nil {
			l.Net.Close(fd)
		}
	}
	if err != nil {
		l.Group.sockets.Add(-1)
		l.NoSocket(err)
		return none
	}
	c := l.slab.at(at)
	c.fd, c.claim = int32(fd), backend.Claim{}
	l.sockets++
	return at
}

// open dials from each source address, in turn, until one has a port.
func (l *Lane) open(o *Listener, member int) (fd int, from netip.AddrPort, err error) {
	server := o.Servers[member]
	if len(o.Sources) == 0 {
		return l.Net.Dial(server, netip.Addr{})
	}
	for range o.Sources {
		l.sources++
		source := o.Sources[l.sources%len(o.Sources)]
		if source.Is4() != server.Addr().Is4() {
			continue
		}
		if fd, from, err = l.Net.Dial(server, source); err == nil {
			break
		}
	}
	return fd, from, err
}

// rest puts a conn whose flow has ended into its queue.
func (l *Lane) rest(at int32, now uint32, clean bool) {
	c := l.slab.at(at)
	o := l.Listeners[c.listener]
	if o.Transparent { // its port is the client's
		l.close(at)
		return
	}
	c.state, c.last, c.clean, c.next = resting, now, clean, none
	q := &l.pools[c.listener][c.member].late
	if clean {
		q = &l.pools[c.listener][c.member].clean
	}
	if q.last == none {
		q.first = at
	} else {
		l.slab.at(q.last).next = at
	}
	q.last = at
	if _, late := o.rests(); !clean && late > 0 {
		if until := l.restUntil.Load(); until == 0 || int32(now+late-until) > 0 {
			l.restUntil.Store(max(now+late, 1))
		}
	}
}

// pop takes out the conn that has rested longest, if it has rested for so many
// milliseconds.
func (l *Lane) pop(q *queue, rest, now uint32) int32 {
	at := q.first
	if at == none {
		return none
	}
	c := l.slab.at(at)
	if int32(now-c.last) < int32(rest) {
		return none
	}
	if q.first = c.next; q.first == none {
		q.last = none
	}
	return at
}

// close closes the socket of a conn that is in no list but that of the ready ones.
func (l *Lane) close(at int32) {
	c := l.slab.at(at)
	l.Ports.Release(c.claim)
	l.Net.Close(int(c.fd))
	l.sockets--
	l.Group.sockets.Add(-1)
	if c.queued { // it is given back when it comes up there
		c.state, c.fd = closed, -1
		return
	}
	l.slab.give(at)
}

// trimMax bounds the sockets of a server that are closed in one go.
const trimMax = 128

// trim closes sockets that have been spare for a while, some at a time, and
// reports whether there are more of them.
func (l *Lane) trim(now uint32) (more bool) {
	for listener, pools := range l.pools {
		for member := range pools {
			p := &pools[member]
			clean, late := l.Listeners[listener].rests()
			for n := 0; ; n++ {
				at := l.pop(&p.clean, clean+spare, now)
				if at == none {
					at = l.pop(&p.late, late+spare, now)
				}
				if at == none {
					break
				}
				l.close(at)
				if n == trimMax {
					more = true
					break
				}
			}
		}
	}
	return more
}
