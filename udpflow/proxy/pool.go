package proxy

import (
	"net/netip"

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
		return l.dial(o, member, p)
	}
	pool := &l.pools[listener][member]
	clean, late := o.rests()
	if at := l.pop(&pool.clean, clean, now); at != none {
		return at
	}
	if at := l.pop(&pool.late, late, now); at != none {
		return at
	}
	return l.dial(o, member, p)
}

// dial returns a conn with a new socket, none if there is none to be had.
func (l *Lane) dial(o *Listener, member int, p *burst.Packet) int32 {
	at, ok := l.slab.take()
	if !ok {
		return none
	}
	fd, err := l.open(o, member, p)
	if err == nil {
		if err = l.Net.Watch(fd, at); err != nil {
			l.Net.Close(fd)
		}
	}
	if err != nil {
		l.slab.give(at)
		return none
	}
	l.slab.at(at).fd = int32(fd)
	l.sockets++
	return at
}

// open dials from each source address, in turn, until one has a port.
func (l *Lane) open(o *Listener, member int, p *burst.Packet) (fd int, err error) {
	server := o.Servers[member]
	if o.Transparent {
		return l.Net.DialAs(server, p.Remote.AddrPort())
	}
	if len(o.Sources) == 0 {
		return l.Net.Dial(server, netip.Addr{})
	}
	for range o.Sources {
		l.sources++
		source := o.Sources[l.sources%len(o.Sources)]
		if source.Is4() != server.Addr().Is4() {
			continue
		}
		if fd, err = l.Net.Dial(server, source); err == nil {
			return fd, nil
		}
	}
	return fd, err
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
	l.Net.Close(int(c.fd))
	l.sockets--
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
