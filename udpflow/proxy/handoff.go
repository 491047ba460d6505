package proxy

import (
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
)

// hand gives p to the lane that has its flow, and reports whether there is one. A
// full ring drops p.
func (l *Lane) hand(hash uint64, p *burst.Packet, stamp int64) bool {
	for n, other := range l.Group.lanes {
		if other == l || other == nil || !other.index.has(&other.slab, hash) {
			continue
		}
		if !l.outlets[n].Push(p, stamp, 0) {
			p.Drop = counters.DropRingFull
			return true
		}
		l.pushed[n] = true
		l.Block.Add(counters.ProxyHandoffs, 1)
		return true
	}
	return false
}

// publish shows the other lanes what was pushed, and wakes those that sleep.
func (l *Lane) publish() {
	for n, pushed := range l.pushed {
		if !pushed {
			continue
		}
		l.pushed[n] = false
		l.outlets[n].Publish()
		if l.outlets[n].NeedsWake() {
			l.Group.wake(n)
		}
	}
}

// serveHandoffs serves a burst that other lanes have handed over, and reports
// whether there was one. They have counted it.
func (l *Lane) serveHandoffs() bool {
	if l.inbox == nil {
		return false
	}
	l.inbox.Awake()
	if l.drainer.Fill(&l.in, &l.from) == 0 {
		return false
	}
	now := mono.Now()
	for i := range l.in.N {
		// Those of several listeners may be mixed. One at a time keeps the order,
		// and this is not the way that most datagrams take.
		one := &l.single.Packets[0]
		*one = l.in.Packets[i]
		one.Drop = counters.NotDropped
		l.single.N, l.single.Now = 1, now
		if listener := l.Client.Listener(one.Socket); listener >= 0 && l.Listeners[listener] != nil {
			l.serve(&l.single, listener, false)
		} else {
			one.Drop = counters.DropNoService
		}
		if one.Drop != counters.NotDropped {
			l.Block.Add(counters.ProxyHandoffLost, 1)
		}
	}
	l.drainer.Release()
	return true
}

// Sleep reports whether the other lanes allow this one to wait: from then on
// whoever hands something over wakes it.
func (l *Lane) Sleep() bool { return l.inbox == nil || l.inbox.PrepareSleep() }
