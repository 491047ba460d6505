package auth

import (
	"encoding/binary"
	"slices"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// enter notes that the chain passes the present name and reports whether it may:
// a chain ends where it comes back to a name, and at maxChain.
func (r *resolver) enter() bool {
	h := r.name.Hash(0)
	if r.chain == maxChain {
		return false
	}
	if slices.Contains(r.names[:r.chain], h) {
		return false
	}
	r.names[r.chain] = h
	r.dnames[r.chain] = dnameRef{}
	r.chain++
	return true
}

// passed reports whether the chain went through the DNAME of n already.
func (r *resolver) passed(n zone.Node) bool {
	ref := dnameRef{r.zone, n.Ref()}
	return slices.Contains(r.dnames[:r.chain], ref)
}

// cname answers with the CNAME of n and moves on to its target. It reports
// whether there is more to look up.
func (r *resolver) cname(n zone.Node) bool {
	m := r.m
	if !r.enter() {
		return false
	}
	m.aa = true
	s, _ := n.RRset(wire.TypeCNAME)
	at := m.put(s, r.owner, r.delta(n))
	if at == 0 {
		m.tc = true
		return false
	}
	m.an += s.Count
	// The target is whole, or ends in a pointer to the whole origin.
	rdata := s.Wire[recordFixed:]
	end := 0
	for rdata[end] != 0 && rdata[end] <= wire.MaxLabel {
		end += 1 + int(rdata[end])
	}
	size := copy(r.text[:], rdata[:end])
	if rdata[end] != 0 {
		size += copy(r.text[size:], r.zone.Origin())
	} else {
		r.text[size] = 0
		size++
	}
	return r.follow(at+recordFixed, size, rdata[end] != 0)
}

// dname answers with the DNAME of n and the CNAME that follows from it
// (RFC 6672 3.1), and moves on to the target. It reports whether there is more
// to look up.
func (r *resolver) dname(n zone.Node) bool {
	m := r.m
	m.aa = true
	s, ok := n.RRset(wire.TypeDNAME)
	if !ok {
		m.rcode, m.aa = wire.ServFail, false // a damaged image
		return false
	}
	target := s.Wire[recordFixed:]
	again := r.passed(n)
	if again && r.under(target, n.Name()) || !r.enter() {
		return false // each round would only make the name longer
	}
	r.dnames[r.chain-1] = dnameRef{r.zone, n.Ref()}
	prefix := r.name.Len() - len(n.Name())
	if !again {
		if m.put(s, r.owner+prefix, 0) == 0 {
			m.tc = true
			return false
		}
		m.an += s.Count
	}
	if prefix+len(target) > wire.MaxName {
		m.rcode = wire.YXDomain
		return false
	}
	size := copy(r.text[:], m.buf[m.start+r.owner:m.start+r.owner+prefix]) // with its case kept
	size += copy(r.text[size:], target)

	rdata := size
	origin := r.zone.Origin()
	compressed := len(origin) > 1 && r.under(target, origin)
	if compressed {
		rdata -= len(origin) - 2
	}
	at := m.size()
	if at+recordFixed+rdata > m.limit || r.owner > wire.MaxPointer {
		m.tc = true
		return false
	}
	m.buf = binary.BigEndian.AppendUint16(m.buf, wire.Pointer(r.owner))
	m.buf = append(m.buf, 0, byte(wire.TypeCNAME), 0, byte(wire.ClassIN))
	m.buf = binary.BigEndian.AppendUint32(m.buf, s.TTL())
	m.buf = binary.BigEndian.AppendUint16(m.buf, uint16(rdata))
	if compressed {
		m.buf = append(m.buf, r.text[:rdata-2]...)
		m.buf = binary.BigEndian.AppendUint16(m.buf, wire.Pointer(r.origin))
	} else {
		m.buf = append(m.buf, r.text[:size]...)
	}
	m.an++
	if r.qtype == wire.TypeCNAME || r.qtype == wire.TypeANY {
		return false // answered
	}
	return r.follow(at+recordFixed, size, compressed)
}

// under reports whether name, in any case, is at or below the lower-cased above.
func (r *resolver) under(name, above []byte) bool {
	for at := 0; len(name)-at >= len(above); at += 1 + int(name[at]) {
		if len(name)-at > len(above) {
			if name[at] == 0 {
				return false
			}
			continue
		}
		for i, c := range name[at:] {
			if wire.Lower(c) != above[i] {
				return false
			}
		}
		return true
	}
	return false
}

// follow makes the target in r.text[:size] the present name. It stands at offset
// at, as the end of the last record, ending in a pointer to the origin if it is
// compressed. follow reports whether the target is in a zone that is served.
func (r *resolver) follow(at, size int, compressed bool) bool {
	m := r.m
	if r.target.Set(r.text[:size]) != size {
		return false
	}
	z := findZone(r.set, &r.target, r.qtype)
	if z == nil {
		return false
	}
	r.name, r.owner = &r.target, at
	if z == r.zone {
		return true
	}
	// Records of another zone have pointers into its origin, so that origin has
	// to stand in the message in one piece.
	if compressed {
		if at+size > m.limit {
			m.tc = true
			return false
		}
		m.buf = append(m.buf[:m.start+at], r.text[:size]...)
		binary.BigEndian.PutUint16(m.buf[m.start+at-2:], uint16(size))
	}
	r.zone = z
	r.origin = at + r.target.Offset(r.target.Labels()-z.Labels())
	m.nSeen = 0 // Refs are the former zone's
	return true
}
