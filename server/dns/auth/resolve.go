package auth

import (
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// maxChain is the most CNAME records, synthesised ones included, in an answer.
// A longer chain is cut there; the client goes on from its end.
const maxChain = 16

// resolver follows one query through the zones (RFC 1034 4.3.2). It is reused.
type resolver struct {
	m       *response
	set     *zone.Set
	tcp     bool
	minimal bool
	qtype   wire.Type

	// The name that is looked up now: QNAME, then the targets of a chain.
	zone   *zone.Zone
	name   *wire.Name
	owner  int // offset of the name in the message
	origin int // offset of the zone's origin in the message

	chain  int                    // records followed
	names  [maxChain]uint64       // hashes of the names they were at
	dnames [maxChain]dnameRef     // the DNAMEs among them
	target wire.Name              // backs name behind the first record
	text   [2 * wire.MaxName]byte // a target, written out
}

type dnameRef struct {
	zone *zone.Zone
	node zone.Ref
}

// run answers for r.name. hint is its Candidate in r.zone.
func (r *resolver) run(hint zone.Ref) {
	for r.chain = 0; ; hint = zone.None {
		match := r.zone.Lookup(r.name, hint)
		switch match.Kind {
		case zone.NoName:
			r.negative(wire.NXDomain)
			return
		case zone.Redirect:
			if !r.dname(match.Node) {
				return
			}
		case zone.Delegation:
			// The cut itself has one authoritative type: DS is the parent's.
			if r.qtype != wire.TypeDS || !r.at(match.Node) {
				r.referral(match.Node, r.owner+r.name.Len()-len(match.Node.Name()))
				return
			}
			r.data(match.Node, false)
			return
		default:
			n := match.Node
			if match.Kind == zone.Wildcard && n.Cut() {
				r.referral(n, r.owner) // RFC 4592 4.2 leaves it open; the wildcard is expanded as ever
				return
			}
			if !n.CNAME() || r.qtype == wire.TypeCNAME || r.qtype == wire.TypeANY || r.hasType(n) {
				r.data(n, match.Kind == zone.Wildcard)
				return
			}
			if !r.cname(n) {
				return
			}
		}
	}
}

// at reports whether n is the name that is looked up, not one above it.
func (r *resolver) at(n zone.Node) bool { return len(n.Name()) == r.name.Len() }

// hasType reports whether n has the type in question beside its CNAME, which
// only RRSIG and NSEC may be (RFC 4034).
func (r *resolver) hasType(n zone.Node) bool {
	if r.qtype != wire.TypeRRSIG && r.qtype != wire.TypeNSEC {
		return false
	}
	_, ok := n.RRset(r.qtype)
	return ok
}

// delta returns how much further back the origin stands in the message than in
// a question for the name of n.
func (r *resolver) delta(n zone.Node) int {
	return r.origin - (wire.HeaderSize + len(n.Name()) - len(r.zone.Origin()))
}

// data answers with the records of n of the type in question, if it has any.
func (r *resolver) data(n zone.Node, wild bool) {
	m := r.m
	m.aa = true
	if r.qtype == wire.TypeANY {
		r.any(n)
		return
	}
	s, ok := n.RRset(r.qtype)
	if !ok {
		r.negative(wire.NoError)
		return
	}
	if r.qtype == wire.TypeDNAME && !wild && r.passed(n) {
		return // the chain put it there
	}
	at := m.put(s, r.owner, r.delta(n))
	if at == 0 {
		m.tc = true
		return
	}
	m.an += s.Count
	if r.minimal {
		return
	}
	if !wild {
		m.has(s)
	}
	// The zone's own name servers go along, unless they are the answer.
	apex := r.zone.Apex()
	ns, ok := apex.RRset(wire.TypeNS)
	nsAt := 0
	if ok && !m.has(ns) {
		if nsAt = m.put(ns, r.origin, r.delta(apex)); nsAt != 0 {
			m.ns += ns.Count
		}
	}
	r.additional(s, at, r.owner, maxNested)
	if nsAt != 0 {
		r.additional(ns, nsAt, r.origin, 0)
	}
}

// any answers QTYPE ANY: over TCP with all there is at n, over UDP, where it
// serves amplification mostly, with one RRset (RFC 8482 4.1).
func (r *resolver) any(n zone.Node) {
	m := r.m
	if n.RRsets() == 0 {
		r.negative(wire.NoError)
		return
	}
	s, ok := n.First(), true
	for i := 0; ok; i++ {
		if m.put(s, r.owner, r.delta(n)) == 0 {
			m.tc = m.an == 0
			return
		}
		m.an += s.Count
		if !r.tcp {
			return
		}
		s, ok = n.Next(s, i)
	}
}

// negative answers that there is no such name or no such type, with the SOA
// record that says for how long (RFC 2308 3).
func (r *resolver) negative(rcode wire.RCODE) {
	m := r.m
	m.rcode, m.aa = rcode, true
	if m.put(r.zone.Negative(), r.origin, r.origin-wire.HeaderSize) == 0 {
		m.tc = true
		return
	}
	m.ns++
}

// referral answers with the name servers of the zone below cut, whose name
// stands at offset owner. It is authoritative only for a chain that led there.
func (r *resolver) referral(cut zone.Node, owner int) {
	m := r.m
	m.aa = r.chain > 0
	ns, ok := cut.RRset(wire.TypeNS)
	if !ok {
		m.rcode, m.aa = wire.ServFail, false // a damaged image
		return
	}
	at := m.put(ns, owner, r.delta(cut))
	if at == 0 {
		m.tc = true
		return
	}
	m.ns += ns.Count
	// Glue that only this referral can bring comes first, and a referral
	// without all of it says so (RFC 9471 3.1).
	for i := range ns.Adds() {
		if a := ns.Add(i); a.Kind == zone.AddGlue && !r.add(a, at, owner, 0) {
			m.tc = !r.tcp // there is no larger transport to come back by
			return
		}
	}
	for i := range ns.Adds() {
		if a := ns.Add(i); a.Kind != zone.AddGlue && !r.add(a, at, owner, 0) {
			return
		}
	}
}

// maxNested is how far additional data brings additional data of its own: the
// addresses of an SRV that a NAPTR led to, of an SVCB that an alias led to.
const maxNested = 2

// additional adds the additional data of s, which stands at offset at and whose
// owner stands at offset owner, until the message is full.
func (r *resolver) additional(s zone.RRset, at, owner, nested int) {
	for i := range s.Adds() {
		if !r.add(s.Add(i), at, owner, nested) {
			return
		}
	}
}

// add adds what a asks for and reports whether there was room.
func (r *resolver) add(a zone.Add, at, owner, nested int) bool {
	m := r.m
	n := r.zone.Node(a.Node)
	name := n.Name()
	wild := len(name) > 1 && name[0] == 1 && name[1] == '*'
	if a.Pos != 0 {
		owner = at + a.Pos
	}
	for _, t := range a.Types() {
		s, ok := n.RRset(t)
		if !ok || !wild && m.has(s) {
			continue
		}
		if owner > wire.MaxPointer {
			if wild || !m.putNamed(s, name) {
				return false
			}
			m.ar += s.Count
			continue
		}
		at := m.put(s, owner, r.delta(n))
		if at == 0 {
			return false
		}
		m.ar += s.Count
		if nested > 0 && s.Adds() > 0 {
			r.additional(s, at, owner, nested-1)
		}
	}
	return true
}
