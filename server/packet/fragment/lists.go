package fragment

import "github.com/dnsapp/dnsapp/server/counters"

// create makes an empty datagram for p; where there is no room it gives up the
// oldest of the same source, or of all.
func (r *Reassembler) create(p *Part, bucket *int32, now int64) int32 {
	if r.freeGrams < 0 {
		// As many datagrams as chunks: this one is the oldest, whoever sent it.
		r.remove(r.age.head, counters.DropFragLimit)
	}
	s, known := r.bySource[p.Src]
	for known && r.sources[s].charge+1 > r.cfg.PerSource/chunkSize {
		r.remove(r.sources[s].all.head, counters.DropFragLimit)
		s, known = r.bySource[p.Src]
	}
	if !known {
		s = r.freeSource // as many sources as datagrams, and one of those is free
		r.freeSource = r.sources[s].chain
		r.sources[s] = source{ip: p.Src, all: list{-1, -1}}
		r.bySource[p.Src] = s
	}
	i := r.freeGrams
	g := &r.datagrams[i]
	r.freeGrams = g.chain
	*g = datagram{key: p.Key, deadline: now + r.cfg.Timeout, total: -1, charge: 1, source: s, chain: *bucket}
	for c := range g.chunks {
		g.chunks[c] = -1
	}
	*bucket = i
	r.sources[s].charge++
	r.push(&r.age, byAge, i)
	r.push(&r.sources[s].all, bySource, i)
	return i
}

// condemn drops what i holds and keeps its name, so that what still comes of it
// is dropped too (RFC 5722 4).
func (r *Reassembler) condemn(i int32) {
	g := &r.datagrams[i]
	r.empty(g, counters.DropFragOverlap)
	g.dead = true
}

// empty gives up what g holds.
func (r *Reassembler) empty(g *datagram, reason counters.Reason) {
	r.dropped[reason] += uint64(g.n)
	r.pending -= g.n
	g.n, g.have = 0, 0
	for c := range g.chunks {
		if g.chunks[c] >= 0 {
			r.freeChunks = append(r.freeChunks, g.chunks[c])
			g.chunks[c] = -1
		}
	}
	r.sources[g.source].charge -= g.charge - 1
	g.held, g.charge = 0, 1
}

// remove forgets datagram i and what it holds.
func (r *Reassembler) remove(i int32, reason counters.Reason) {
	g := &r.datagrams[i]
	r.empty(g, reason)
	s := &r.sources[g.source]
	s.charge--
	r.unlink(&r.age, byAge, i)
	r.unlink(&s.all, bySource, i)
	if s.all.head < 0 {
		delete(r.bySource, s.ip)
		s.chain, r.freeSource = r.freeSource, g.source
	}
	at := r.bucket(&g.key)
	for *at != i {
		at = &r.datagrams[*at].chain
	}
	*at = g.chain
	g.chain, r.freeGrams = r.freeGrams, i
}

func (r *Reassembler) push(l *list, which int, i int32) {
	r.datagrams[i].links[which].prev, r.datagrams[i].links[which].next = l.tail, -1
	if l.tail >= 0 {
		r.datagrams[l.tail].links[which].next = i
	} else {
		l.head = i
	}
	l.tail = i
}

func (r *Reassembler) unlink(l *list, which int, i int32) {
	k := r.datagrams[i].links[which]
	if k.prev >= 0 {
		r.datagrams[k.prev].links[which].next = k.next
	} else {
		l.head = k.next
	}
	if k.next >= 0 {
		r.datagrams[k.next].links[which].prev = k.prev
	} else {
		l.tail = k.prev
	}
}
