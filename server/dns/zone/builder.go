package zone

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone/master"
)

// builder collects the records of one zone and turns them into an image. It
// works on indices into a few large slices, so that a million records are a
// dozen allocations. The order of nodes is that of their names, and of what is
// theirs in order; so an image is written, and what went into it given back,
// from the start to the end of each slice.
type builder struct {
	origin wire.Name
	diags  *diagnostics

	nodes  []buildNode
	names  []byte   // of nodes, lower-cased wire form without the origin
	table  []uint64 // open addressing: upper half of the hash, node index + 1
	probes int      // longest probe sequence of table
	rrs    []buildRR
	rdata  []byte
	wild   map[int32]int32 // nodes with a child "*", and that

	scratch   wire.Name
	full      []byte // what name returned last
	lastOwner int32  // the node of the last record; -1: none
	lastName  []byte

	order   []int32 // indices of rrs, grouped by node and type. Valid after finish
	records int

	layout // Valid after plan

	large bool // it is worth to have the memory below outside of the Go heap
	mem   struct{ nodes, names, table, rrs, rdata, order, refs, targets reserve }
}

type buildNode struct {
	hash    uint64
	name    uint32 // offset in names
	parent  int32  // -1: the apex. After finish, of a hidden node, what covers it
	first   int32  // before finish the list of rrs, newest first, -1: none; then where its part of order starts
	nameLen uint8
	flags   uint8
	known   bool // flags are final
}

type buildRR struct {
	off  uint32 // in rdata
	next int32
	ttl  uint32
	pos  master.Pos
	typ  wire.Type
	size uint16
}

// newBuilder returns a builder with room for records records of together octets
// octets of text. Room that is not used costs address space, not memory.
func newBuilder(origin []byte, diags *diagnostics, records, octets int, large bool) *builder {
	b := &builder{diags: diags, lastOwner: -1, wild: map[int32]int32{}, probes: 1, large: large}
	b.origin.SetLower(origin)
	b.rrs = room[buildRR](&b.mem.rrs, records, b.large)
	data := octets/4 + 64
	if large {
		data = 2 * octets
	}
	b.rdata = room[byte](&b.mem.rdata, data, b.large)
	b.names = room[byte](&b.mem.names, octets+wire.MaxName, b.large)
	b.nodes = room[buildNode](&b.mem.nodes, records+1, b.large)
	slots := max(slotsFor(records), 4) // one must stay free
	b.table = room[uint64](&b.mem.table, slots, b.large)[:slots]
	b.scratch = b.origin
	b.node(0)
	return b
}

// free gives the builder's memory back.
func (b *builder) free() {
	for _, r := range []*reserve{
		&b.mem.nodes, &b.mem.names, &b.mem.table, &b.mem.rrs, &b.mem.rdata, &b.mem.order, &b.mem.refs, &b.mem.targets,
	} {
		r.free()
	}
	*b = builder{}
}

// slotsFor returns how many slots an image has for this many nodes.
func slotsFor(nodes int) int { return 1 << bits.Len(uint(nodes+nodes/2)) }

// name returns the name of n. It is valid until the next call.
func (b *builder) name(n *buildNode) []byte {
	b.full = append(append(b.full[:0], b.relative(n)...), b.origin.Bytes()...)
	return b.full
}

// relative returns the name of n without the origin.
func (b *builder) relative(n *buildNode) []byte {
	return b.names[n.name : int(n.name)+int(n.nameLen)-b.origin.Len()]
}

// list returns the indices of the records of node i. Valid after finish.
func (b *builder) list(i int32) []int32 {
	end := int32(len(b.order))
	if int(i)+1 < len(b.nodes) {
		end = b.nodes[i+1].first
	}
	return b.order[b.nodes[i].first:end]
}

func (b *builder) rd(r *buildRR) []byte { return b.rdata[r.off : r.off+uint32(r.size)] }

// lookup returns the node with this hash and name, which is at or below the
// origin, or -1 and its place in the table.
func (b *builder) lookup(hash uint64, name []byte) (node int32, slot int) {
	name = name[:len(name)-b.origin.Len()]
	mask := len(b.table) - 1
	for slot = int(hash) & mask; b.table[slot] != 0; slot = (slot + 1) & mask {
		if e := b.table[slot]; e>>32 == hash>>32 {
			if i := int32(uint32(e) - 1); bytes.Equal(b.relative(&b.nodes[i]), name) {
				return i, slot
			}
		}
	}
	return -1, slot
}

// node returns the node of suffix i of b.scratch, and makes it and every
// missing one between it and the origin.
func (b *builder) node(i int) int32 {
	hash, name := b.scratch.Hash(i), b.scratch.Suffix(i)
	at, slot := b.lookup(hash, name)
	if at >= 0 {
		return at
	}
	if 4*len(b.nodes) >= 3*len(b.table) {
		b.rehash(2 * len(b.table))
		_, slot = b.lookup(hash, name)
	}
	at = int32(len(b.nodes))
	b.enter(slot, hash, at)
	b.nodes = append(b.nodes, buildNode{hash: hash, name: uint32(len(b.names)), nameLen: uint8(len(name)), parent: -1, first: -1})
	b.names = append(b.names, name[:len(name)-b.origin.Len()]...)
	if b.scratch.Labels()-i > b.origin.Labels() {
		parent := b.node(i + 1)
		b.nodes[at].parent = parent
		if name[0] == 1 && name[1] == '*' {
			b.wild[parent] = at
		}
	}
	return at
}

// enter puts node at into a slot of the table, the first free one for its hash.
func (b *builder) enter(slot int, hash uint64, at int32) {
	b.table[slot] = hash>>32<<32 | uint64(at+1)
	b.probes = max(b.probes, (slot-int(hash))&(len(b.table)-1)+1)
}

// rehash makes the table one of this many slots.
func (b *builder) rehash(slots int) {
	b.mem.table.free()
	b.table, b.probes = room[uint64](&b.mem.table, slots, b.large)[:slots], 1
	for i := range b.nodes {
		hash := b.nodes[i].hash
		slot := int(hash) & (slots - 1)
		for b.table[slot] != 0 {
			slot = (slot + 1) & (slots - 1)
		}
		b.enter(slot, hash, int32(i))
	}
}

// errTooLarge refuses a zone that 32-bit offsets cannot hold.
var errTooLarge = errors.New("zone is too large: more than 4 GiB of names or record data")

// add takes one record. What is wrong with the record goes to the diagnostics;
// the error is for what makes going on pointless.
func (b *builder) add(r *master.Record) error {
	if len(b.names) > math.MaxUint32-wire.MaxName*wire.MaxLabels || len(b.rdata) > math.MaxUint32-wire.MaxMessage ||
		len(b.rrs) == math.MaxInt32 {
		return errTooLarge
	}
	owner := b.lastOwner
	if owner < 0 || !bytes.Equal(r.Owner, b.lastName) {
		if n := b.scratch.Set(r.Owner); n == 0 || n != len(r.Owner) {
			b.diags.errorf(r.Pos, "malformed owner name")
			return nil
		}
		at := b.scratch.Labels() - b.origin.Labels()
		if at < 0 || !bytes.Equal(b.scratch.Suffix(at), b.origin.Bytes()) {
			b.diags.warnf(r.Pos, "%s is out of zone: record ignored", wire.Text(r.Owner))
			return nil
		}
		owner = b.node(0)
		b.lastOwner, b.lastName = owner, append(b.lastName[:0], r.Owner...)
	}
	if !b.checkRecord(r, owner) {
		return nil
	}
	n := &b.nodes[owner]
	b.rrs = append(b.rrs, buildRR{
		off: uint32(len(b.rdata)), size: uint16(len(r.RData)), next: n.first, ttl: r.TTL, pos: r.Pos, typ: r.Type,
	})
	b.rdata = append(b.rdata, r.RData...)
	n.first = int32(len(b.rrs) - 1)
	return nil
}

// finish orders the records of every node by type, drops duplicates, and
// settles what covers what.
func (b *builder) finish() {
	b.order = room[int32](&b.mem.order, len(b.rrs), b.large)
	for i := range b.nodes {
		n := &b.nodes[i]
		head := n.first
		n.first = int32(len(b.order))
		for r := head; r >= 0; r = b.rrs[r].next {
			b.order = append(b.order, r)
		}
		list := b.order[n.first:]
		if len(list) > 1 {
			list = b.sortNode(list)
			b.order = b.order[:int(n.first)+len(list)]
		}
	}
	b.records = len(b.order)
	for i := range b.nodes {
		b.settle(int32(i))
	}
}

// sortNode orders the records of a node by type and then as in the file, gives
// those of an RRset one TTL, and drops duplicates (RFC 2181 5).
func (b *builder) sortNode(list []int32) []int32 {
	slices.Reverse(list)
	slices.SortStableFunc(list, func(x, y int32) int { return int(b.rrs[x].typ) - int(b.rrs[y].typ) })
	for from := 0; from < len(list); {
		first := &b.rrs[list[from]]
		to := from + 1
		for ; to < len(list) && b.rrs[list[to]].typ == first.typ; to++ {
			// The RRSIGs of a name are no RRset: each goes with what it covers.
			if r := &b.rrs[list[to]]; r.ttl != first.ttl && first.typ != wire.TypeRRSIG {
				b.diags.warnf(r.pos, "TTL %d differs from the %d of the RRset's first record, which is used", r.ttl, first.ttl)
				r.ttl = first.ttl
			}
		}
		list = append(list[:from], b.dedupe(list[from:], to-from)...)
		for from < len(list) && b.rrs[list[from]].typ == first.typ {
			from++
		}
	}
	return list
}

// dedupe drops later records of the first n of list that equal an earlier one.
func (b *builder) dedupe(list []int32, n int) []int32 {
	seen := map[string]bool(nil)
	if n > 16 {
		seen = make(map[string]bool, n)
	}
	kept := list[:0]
	for i, r := range list {
		if i < n {
			rd := b.rd(&b.rrs[r])
			dup := false
			if seen != nil {
				dup = seen[string(rd)]
				seen[string(rd)] = true
			} else {
				for _, k := range kept {
					dup = dup || bytes.Equal(b.rd(&b.rrs[k]), rd)
				}
			}
			if dup {
				b.diags.warnf(b.rrs[r].pos, "duplicate record ignored")
				continue
			}
		}
		kept = append(kept, r)
	}
	return kept
}

// settle computes the flags of node i, after those of its parents.
func (b *builder) settle(i int32) {
	n := &b.nodes[i]
	if n.known {
		return
	}
	n.known = true
	if n.parent >= 0 {
		b.settle(n.parent)
		p := &b.nodes[n.parent]
		switch {
		case p.flags&flagsHidden != 0:
			n.flags, n.parent = p.flags&flagsHidden, p.parent
		case p.flags&flagCut != 0:
			n.flags = flagBelow
		case p.flags&flagDNAME != 0:
			n.flags = flagUnder
		}
	}
	for _, r := range b.list(i) {
		switch t := b.rrs[r].typ; {
		case t == wire.TypeNS && n.parent >= 0:
			n.flags |= flagCut
		case t == wire.TypeDNAME:
			n.flags |= flagDNAME
		case t == wire.TypeCNAME:
			n.flags |= flagCNAME
		}
	}
}

// cover returns the topmost cut or DNAME above node i if it is hidden, else i.
func (b *builder) cover(i int32) int32 {
	if n := &b.nodes[i]; n.flags&flagsHidden != 0 {
		return n.parent
	}
	return i
}

// sets calls f for every RRset of node i, in ascending order of types.
func (b *builder) sets(i int32, f func(rrs []int32)) {
	list := b.list(i)
	for len(list) > 0 {
		to := 1
		for to < len(list) && b.rrs[list[to]].typ == b.rrs[list[0]].typ {
			to++
		}
		f(list[:to])
		list = list[to:]
	}
}

// encloser returns the node of name or, where it has none, of its closest
// encloser (RFC 4592 3.3.1); -1 for a name that is not in the zone. It leaves
// name in scratch.
func (b *builder) encloser(name []byte, scratch *wire.Name) int32 {
	if scratch.Set(name) != len(name) {
		return -1
	}
	below := scratch.Labels() - b.origin.Labels()
	if below < 0 || !bytes.Equal(scratch.Suffix(below), b.origin.Bytes()) {
		return -1
	}
	for i := range below {
		if at, _ := b.lookup(scratch.Hash(i), scratch.Suffix(i)); at >= 0 {
			return at
		}
	}
	return 0
}

// findNode returns the node that answers for name: its own, or the wildcard that
// covers it; -1 if there is none in the zone.
func (b *builder) findNode(name []byte, scratch *wire.Name) int32 {
	at := b.encloser(name, scratch)
	if at < 0 || int(b.nodes[at].nameLen) == len(name) {
		return at
	}
	if wild, ok := b.wild[at]; ok {
		return wild
	}
	return -1
}

// diagnostics collects what is wrong with a zone.
type diagnostics struct {
	files    []string // by Pos.File
	errs     []error
	warnings []Warning
	dropped  int // warnings beyond maxWarnings
}

const (
	maxErrors   = 20
	maxWarnings = 100
)

func (d *diagnostics) path(p master.Pos) string {
	if int(p.File) < len(d.files) {
		return d.files[p.File]
	}
	return ""
}

func (d *diagnostics) errorf(p master.Pos, format string, args ...any) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, &Error{File: d.path(p), Line: int(p.Line), Reason: fmt.Sprintf(format, args...)})
	}
}

func (d *diagnostics) warnf(p master.Pos, format string, args ...any) {
	if len(d.warnings) == maxWarnings {
		d.dropped++
		return
	}
	d.warnings = append(d.warnings, Warning{File: d.path(p), Line: int(p.Line), Text: fmt.Sprintf(format, args...)})
}
