package auth

import (
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/querylog"
)

// Lane answers the queries of one receive loop or one stream. It is not safe
// for concurrent use. It takes about 8 KiB, and 90 KiB more from its first burst
// on.
type Lane struct {
	e        *Engine
	block    *counters.Block
	msg      response
	resolver resolver
	single   item             // for Answer
	work     *[burst.Max]item // for ServeBurst; nil before the first
	at       int              // the packet in hand, for what is left after a panic
	sink     byte             // what Touch returned, so that it is not optimised away

	// What the burst counted, folded into block at its end. pending lists the
	// entries of counts that are not zero.
	counts  [numCounts]uint16
	pending [burst.Max]uint16
	waiting int
	tally   tally

	log   *querylog.Sampler // nil: nothing is logged
	rcode wire.RCODE        // of what Answer answered last
}

// numCounts is the number of counters of one transport.
const numCounts = counters.NumTypes * counters.NumRcodes

// item is a packet between the steps of a burst.
type item struct {
	query   wire.Query
	verdict wire.Verdict
	zone    *zone.Zone
	hint    zone.Ref
}

// ServeBurst answers the datagrams of b. It implements burst.Handler.
func (l *Lane) ServeBurst(b *burst.Burst) {
	if l.work == nil {
		l.work = new([burst.Max]item)
	}
	set := l.e.zones.Load()
	for i := range b.Packets[:b.N] {
		p, w := &b.Packets[i], &l.work[i]
		w.zone, w.hint = nil, zone.None
		if w.verdict = w.query.Parse(p.Payload); w.verdict == wire.Valid && w.query.QClass == wire.ClassIN {
			w.zone = findZone(set, &w.query.Name, w.query.QType)
		}
	}
	l.at = 0
	for l.at < b.N {
		l.serve(b, set)
	}
	for _, id := range l.pending[:l.waiting] {
		l.block.Add(counters.Queries+counters.ID(id), uint64(l.counts[id]))
		l.counts[id] = 0
	}
	l.waiting = 0
	l.tally.flush(l.e.counts)
}

// serve answers the packets from l.at on. A panic over one of them (a damaged
// zone image, or a bug) costs that packet its answer, not the process its life.
func (l *Lane) serve(b *burst.Burst, set *zone.Set) {
	defer func() {
		if l.at < b.N && recover() != nil {
			p := &b.Packets[l.at]
			p.Reply, p.Drop = p.Reply[:0], counters.DropInternal
			l.at++
		}
	}()
	for i := l.at; i < b.N; i++ {
		if w := &l.work[i]; w.zone != nil {
			w.hint = w.zone.Candidate(w.query.Name.Hash(0))
		}
	}
	for i := l.at; i < b.N; i++ {
		if w := &l.work[i]; w.hint != zone.None {
			l.sink += w.zone.Touch(w.hint)
		}
	}
	for ; l.at < b.N; l.at++ {
		p, w := &b.Packets[l.at], &l.work[l.at]
		var rcode wire.RCODE
		limit := min(cap(p.Reply), l.e.udpLimit(&w.query.EDNS))
		p.Reply, rcode, p.Drop = l.answer(p.Reply, p.Payload, w, set, counters.UDP, limit)
		if p.Drop != counters.NotDropped {
			continue
		}
		p.Class = counters.ClassOf(uint16(rcode))
		l.countZone(w.zone, counters.ZoneUDP, rcode, p.Reply)
		if r := l.log.Begin(); r != nil {
			r.IP, r.Port, r.TCP = p.Remote.IP, p.Remote.Port, false
			w.record(r, rcode, len(p.Reply))
			l.log.Commit()
		}
		qtype := uint16(0)
		if w.query.Question {
			qtype = uint16(w.query.QType)
		}
		id := uint16(counters.QueryID(counters.UDP, qtype, uint16(rcode)) - counters.Queries)
		if l.counts[id] == 0 {
			l.pending[l.waiting] = id
			l.waiting++
		}
		l.counts[id]++
	}
}

// Answer appends the answer to the message query to dst and returns it, or says
// why there is none. The answer takes at most maxSize octets, and over UDP at
// most what the query and the engine allow. If dst has room for that, nothing
// is allocated.
func (l *Lane) Answer(dst, query []byte, t counters.Transport, maxSize int) (out []byte, reason counters.Reason) {
	start := len(dst)
	defer func() {
		if recover() != nil {
			out, reason = dst[:start], counters.DropInternal
		}
	}()
	set := l.e.zones.Load()
	w := &l.single
	w.zone, w.hint = nil, zone.None
	if w.verdict = w.query.Parse(query); w.verdict == wire.Valid && w.query.QClass == wire.ClassIN {
		w.zone = findZone(set, &w.query.Name, w.query.QType)
	}
	limit := min(maxSize, wire.MaxMessage)
	if t == counters.UDP {
		limit = min(limit, l.e.udpLimit(&w.query.EDNS))
	}
	out, rcode, reason := l.answer(dst, query, w, set, t, limit)
	if reason == counters.NotDropped {
		l.rcode = rcode
		by := counters.ZoneUDP
		if t == counters.TCP {
			by = counters.ZoneTCP
		}
		l.countZone(w.zone, by, rcode, out[start:])
		l.tally.flush(l.e.counts)
		qtype := uint16(0)
		if w.query.Question {
			qtype = uint16(w.query.QType)
		}
		l.block.Add(counters.QueryID(t, qtype, uint16(rcode)), 1)
	}
	return out, reason
}

// Class returns the class of the last answer of Answer.
func (l *Lane) Class() counters.Class { return counters.ClassOf(uint16(l.rcode)) }

// udpLimit returns the most octets of an answer over UDP (RFC 6891 6.2.3).
func (e *Engine) udpLimit(opt *wire.EDNS) int {
	if !opt.Present {
		return wire.MinUDPSize
	}
	return min(max(int(opt.UDPSize), wire.MinUDPSize), e.maxUDP)
}

// findZone returns the zone that answers for name: the closest one, except that
// DS is the parent's (RFC 4035 3.1.4.1), if that is served here too.
func findZone(set *zone.Set, name *wire.Name, qtype wire.Type) *zone.Zone {
	z := set.Find(name, name.Labels())
	if qtype == wire.TypeDS && z != nil && z.Labels() == name.Labels() && z.Labels() > 0 {
		if parent := set.Find(name, z.Labels()-1); parent != nil {
			return parent
		}
	}
	return z
}
