package auth

import (
	"encoding/binary"
	"slices"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// response is a message under construction. Offsets count from start, where the
// message begins in buf.
type response struct {
	buf   []byte
	start int
	limit int // octets that header, question and records may take

	an, ns, ar int // records in the sections
	rcode      wire.RCODE
	ede        wire.EDE // goes out if the query had EDNS and there is room
	aa, tc     bool

	seen  [maxSeen]zone.Ref // RRsets of origin's zone that are already in
	nSeen int
}

// maxSeen bounds the search for RRsets that are already there. A repetition
// beyond it costs octets, nothing else.
const maxSeen = 64

// begin copies the header and the question from the query. There is always
// room: a datagram's is 512 octets at least.
func (m *response) begin(dst, query []byte, questionEnd, limit int) {
	m.start, m.limit = len(dst), limit
	m.buf = append(dst, query[:questionEnd]...)
	m.an, m.ns, m.ar = 0, 0, 0
	m.rcode, m.ede, m.aa, m.tc = wire.NoError, wire.EDENone, false, false
	m.nSeen = 0
}

// size returns the octets so far, which is also the offset of what comes next.
func (m *response) size() int { return len(m.buf) - m.start }

// put appends an RRset whose owner stands at offset owner. delta is how much
// further back the zone's origin stands than in a question for the node's own
// name. It returns the offset of the RRset, or 0 if there is no room.
func (m *response) put(s zone.RRset, owner, delta int) int {
	at := m.size()
	if at+len(s.Wire) > m.limit {
		return 0
	}
	m.buf = append(m.buf, s.Wire...)
	if delta != 0 {
		m.patch(s, at, delta)
	}
	if owner != wire.HeaderSize {
		rr := m.buf[m.start+at:]
		for range s.Count {
			binary.BigEndian.PutUint16(rr, wire.Pointer(owner))
			rr = rr[recordFixed+int(binary.BigEndian.Uint16(rr[recordFixed-2:])):]
		}
	}
	return at
}

// recordFixed is the octets of a record with a compressed owner, without RDATA.
const recordFixed = 12

// patch moves the pointers into the origin of an RRset at offset at.
func (m *response) patch(s zone.RRset, at, delta int) {
	patches := s.Patches()
	for i := range len(patches) / 2 {
		p := m.buf[m.start+at+zone.Patch(patches, i):]
		binary.BigEndian.PutUint16(p, binary.BigEndian.Uint16(p)+uint16(delta))
	}
}

// putNamed is put with the owner written out, for where no pointer reaches.
func (m *response) putNamed(s zone.RRset, owner []byte) bool {
	if m.size()+len(s.Wire)+s.Count*(len(owner)-2) > m.limit {
		return false
	}
	// Only additional data is written so, and its types hold names that are not
	// compressed: there is nothing to patch.
	rr := s.Wire
	for range s.Count {
		n := recordFixed + int(binary.BigEndian.Uint16(rr[recordFixed-2:]))
		m.buf = append(append(m.buf, owner...), rr[2:n]...)
		rr = rr[n:]
	}
	return true
}

// has reports whether the RRset is in the message already, and notes it.
func (m *response) has(s zone.RRset) bool {
	ref := s.Ref()
	if slices.Contains(m.seen[:m.nSeen], ref) {
		return true
	}
	if m.nSeen < maxSeen {
		m.seen[m.nSeen] = ref
		m.nSeen++
	}
	return false
}

// fail makes the answer an error with a reason.
func (m *response) fail(rcode wire.RCODE, ede wire.EDE) { m.rcode, m.ede = rcode, ede }

// finish writes counts and flags and returns the whole of buf.
func (m *response) finish(questions int) []byte {
	h := wire.Header(m.buf[m.start:])
	h.SetResponse(m.rcode, m.aa, m.tc)
	h.SetCounts(questions, m.an, m.ns, m.ar)
	return m.buf
}
