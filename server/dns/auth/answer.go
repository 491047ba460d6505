package auth

import (
	"bytes"
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// answer appends the answer to the parsed query in w to dst.
func (l *Lane) answer(dst, query []byte, w *item, set *zone.Set, t counters.Transport, limit int) ([]byte, wire.RCODE, counters.Reason) {
	q := &w.query
	switch w.verdict {
	case wire.Short:
		return dst, 0, counters.DropShort
	case wire.Response:
		return dst, 0, counters.DropNotQuery
	}
	m := &l.msg
	var options []byte
	if q.EDNS.Present {
		options = l.e.optionsFor(&q.EDNS, t)
		if limit -= wire.OPTSize + len(options); limit < q.End {
			limit += len(options)
			options = nil
		}
	}
	m.begin(dst, query, q.End, limit)
	switch w.verdict {
	case wire.Malformed:
		m.rcode = wire.FormErr
	case wire.Unsupported:
		m.fail(wire.NotImp, wire.EDENotSupported)
	case wire.BadVersion:
		m.rcode = wire.BadVers
	default:
		l.query(q, w, set, t)
	}
	if t == counters.TCP && m.tc { // an RRset of nearly 64 KiB: there is no larger transport
		m.begin(dst, query, q.End, limit)
		m.rcode = wire.ServFail
	}
	if q.EDNS.Present {
		if m.size()+wire.EDESize > m.limit {
			m.ede = wire.EDENone
		}
		m.buf = wire.AppendOPT(m.buf, uint16(l.e.maxUDP), m.rcode, q.EDNS.DO, options, m.ede)
		m.ar++
	}
	questions := 0
	if q.Question {
		questions = 1
	}
	return m.finish(questions), m.rcode, counters.NotDropped
}

// optionsFor returns the EDNS options of the answer to a query with opt.
func (e *Engine) optionsFor(opt *wire.EDNS, t counters.Transport) []byte {
	i := 0
	if opt.NSID {
		i |= 1
	}
	if opt.Keepalive && t == counters.TCP {
		i |= 2
	}
	if e.leave.Load() {
		return e.options[1][i]
	}
	return e.options[0][i]
}

// query answers a well-formed query of opcode QUERY.
func (l *Lane) query(q *wire.Query, w *item, set *zone.Set, t counters.Transport) {
	m := &l.msg
	switch {
	case q.QClass == wire.ClassCH:
		l.chaos(q)
	case w.zone == nil:
		m.fail(wire.Refused, wire.EDENotAuthoritative)
	case q.QType == wire.TypeAXFR && t == counters.UDP: // RFC 5936 4.2: over TCP only
		m.fail(wire.NotImp, wire.EDENotSupported)
	case q.QType == wire.TypeAXFR || q.QType == wire.TypeIXFR && t == counters.TCP:
		m.fail(wire.Refused, wire.EDEProhibited)
	default:
		r := &l.resolver
		r.m, r.set, r.tcp, r.minimal = m, set, t == counters.TCP, l.e.minimal
		r.qtype = q.QType
		if q.QType == wire.TypeIXFR { // over UDP: the SOA record says "come by TCP" (RFC 1995 2)
			r.qtype = wire.TypeSOA
		}
		r.zone, r.name, r.owner = w.zone, &q.Name, wire.HeaderSize
		r.origin = wire.HeaderSize + q.Name.Offset(q.Name.Labels()-w.zone.Labels())
		r.run(w.hint)
	}
}

// chaos answers a query of class CH from the engine's own names.
func (l *Lane) chaos(q *wire.Query) {
	m := &l.msg
	for i := range l.e.chaos {
		c := &l.e.chaos[i]
		if !bytes.Equal(c.name, q.Name.Bytes()) {
			continue
		}
		m.aa = true
		if q.QType != wire.TypeTXT && q.QType != wire.TypeANY {
			return
		}
		if m.size()+recordFixed+len(c.rdata) > m.limit {
			m.tc = true
			return
		}
		m.buf = binary.BigEndian.AppendUint16(m.buf, wire.Pointer(wire.HeaderSize))
		m.buf = append(m.buf, 0, byte(wire.TypeTXT), 0, byte(wire.ClassCH), 0, 0, 0, 0)
		m.buf = binary.BigEndian.AppendUint16(m.buf, uint16(len(c.rdata)))
		m.buf = append(m.buf, c.rdata...)
		m.an++
		return
	}
	m.fail(wire.Refused, wire.EDENotAuthoritative)
}
