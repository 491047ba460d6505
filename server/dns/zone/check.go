package zone

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone/master"
)

// checkRecord checks what can be said of a record by itself.
func (b *builder) checkRecord(r *master.Record, owner int32) bool {
	if r.Class != wire.ClassIN {
		b.diags.errorf(r.Pos, "class %d, but the zone's is IN", r.Class)
		return false
	}
	if len(r.RData) > wire.MaxMessage {
		b.diags.errorf(r.Pos, "RDATA of %d octets, at most %d are possible", len(r.RData), wire.MaxMessage)
		return false
	}
	if r.TTL > 1<<31-1 {
		b.diags.errorf(r.Pos, "TTL %d is above 2147483647 (RFC 2181 8)", r.TTL)
		return false
	}
	apex := owner == 0
	switch r.Type {
	case wire.TypeSOA:
		if !apex {
			b.diags.errorf(r.Pos, "SOA record of %s is not at the apex %s", wire.Text(r.Owner), wire.Text(b.origin.Bytes()))
			return false
		}
	case wire.TypeOPT, wire.TypeTKEY, wire.TypeTSIG, wire.TypeIXFR, wire.TypeAXFR, wire.TypeMAILA, wire.TypeMAILB, wire.TypeANY, 0:
		b.diags.errorf(r.Pos, "type %d is a query or meta type: it cannot stand in a zone", r.Type)
		return false
	}
	return true
}

// check refuses a zone that cannot be served and warns about one that will
// surprise. It runs after finish.
func (b *builder) check() {
	hasSOA, hasNS := false, false
	b.sets(0, func(rrs []int32) {
		first := &b.rrs[rrs[0]]
		switch first.typ {
		case wire.TypeSOA:
			hasSOA = true
			if len(rrs) > 1 {
				b.diags.errorf(b.rrs[rrs[1]].pos, "more than one SOA record at the apex")
			}
			if _, _, ok := soaFields(b.rd(first)); !ok {
				b.diags.errorf(first.pos, "malformed SOA record")
			}
		case wire.TypeNS:
			hasNS = true
		}
	})
	if !hasSOA {
		b.diags.errorf(master.Pos{}, "no SOA record at the apex %s", wire.Text(b.origin.Bytes()))
	}
	if !hasNS {
		b.diags.errorf(master.Pos{}, "no NS record at the apex %s", wire.Text(b.origin.Bytes()))
	}
	for i := range b.nodes {
		b.checkNode(int32(i))
		b.lint(int32(i))
	}
	if hasSOA && hasNS {
		b.lintServers()
	}
}

// checkNode refuses combinations of types that no answer can be made of.
func (b *builder) checkNode(i int32) {
	n := &b.nodes[i]
	var cname, dname, other, ns, ds *buildRR
	b.sets(i, func(rrs []int32) {
		first := &b.rrs[rrs[0]]
		switch first.typ {
		case wire.TypeCNAME:
			cname = first
			if len(rrs) > 1 {
				b.diags.errorf(b.rrs[rrs[1]].pos, "more than one CNAME record at %s", wire.Text(b.name(n)))
			}
		case wire.TypeDNAME:
			dname = first
			if len(rrs) > 1 {
				b.diags.errorf(b.rrs[rrs[1]].pos, "more than one DNAME record at %s", wire.Text(b.name(n)))
			}
			other = first
		case wire.TypeRRSIG, wire.TypeNSEC: // RFC 4034 2.5 and 4: beside CNAME
		default:
			other = first
			if first.typ == wire.TypeNS {
				ns = first
			}
			if first.typ == wire.TypeDS {
				ds = first
			}
		}
		size := 0
		for _, r := range rrs {
			size += recordFixed + int(b.rrs[r].size)
		}
		if size > maxRRset {
			b.diags.errorf(first.pos, "RRset of %d octets at %s: no message can hold it", size, wire.Text(b.name(n)))
		}
		if len(rrs) > 1<<16-1 {
			b.diags.errorf(first.pos, "RRset of %d records at %s", len(rrs), wire.Text(b.name(n)))
		}
	})
	apex := n.parent < 0
	if cname != nil && other != nil {
		b.diags.errorf(cname.pos, "CNAME and other data at %s (RFC 1034 3.6.2)", wire.Text(b.name(n)))
	}
	if dname != nil && ns != nil && !apex {
		b.diags.warnf(dname.pos, "DNAME and NS at %s: only the delegation is served (RFC 6672 2.3)", wire.Text(b.name(n)))
	}
	if ds != nil && apex {
		b.diags.errorf(ds.pos, "DS at the apex (RFC 4035 2.4)")
	}
	if list := b.list(i); n.flags&flagUnder != 0 && len(list) > 0 {
		b.diags.warnf(b.rrs[list[0]].pos, "%s is below the DNAME %s: never served (RFC 6672 2.4)",
			wire.Text(b.name(n)), wire.Text(b.name(&b.nodes[b.cover(i)])))
	}
}

// soaFields returns SERIAL and MINIMUM of the RDATA of a SOA record.
func soaFields(rdata []byte) (serial, minimum uint32, ok bool) {
	m := wire.NameLen(rdata)
	r := wire.NameLen(rdata[m:])
	if m == 0 || r == 0 || len(rdata) != m+r+20 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(rdata[m+r:]), binary.BigEndian.Uint32(rdata[m+r+16:]), true
}
