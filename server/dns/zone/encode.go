package zone

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

const (
	recordFixed = 12 // octets of a record besides RDATA, the owner being a pointer
	maxRRset    = wire.MaxMessage - wire.HeaderSize - 5
)

// layout gives every node its Ref and returns the octets of slots and arena.
func (b *builder) layout() (slots int, arena uint64, err error) {
	slots = 1 << bits.Len(uint(len(b.nodes)+len(b.nodes)/2))
	arena = refUnit // Ref 0 means None
	for i := range b.nodes {
		n := &b.nodes[i]
		if arena/refUnit > 1<<32-1 {
			return 0, 0, errTooLarge
		}
		n.ref = Ref(arena / refUnit)
		arena += uint64(pad(nodeName + int(n.nameLen)))
		b.sets(n, func(rrs []int32) {
			b.rrsets++
			arena += uint64(b.setLen(n, rrs))
		})
	}
	b.sets(&b.nodes[0], func(rrs []int32) { // the negative SOA follows
		if b.rrs[rrs[0]].typ == wire.TypeSOA {
			arena += uint64(b.setLen(&b.nodes[0], rrs))
		}
	})
	if arena/refUnit > 1<<32-1 {
		return 0, 0, errTooLarge
	}
	return slots * slotSize, arena, nil
}

// setLen returns the octets that an RRset takes in the arena.
func (b *builder) setLen(n *buildNode, rrs []int32) int {
	typ := b.rrs[rrs[0]].typ
	size := recordFixed * len(rrs)
	patches := 0
	for _, i := range rrs {
		r := &b.rrs[i]
		size += int(r.size)
		for _, s := range compressible(typ, b.rd(r)) {
			if at, ok := b.shared(typ, b.rd(r)[s.off:s.off+s.len]); ok {
				size -= s.len - at - 2
				patches++
			}
		}
	}
	return pad(setWire+size+2*patches) + addSize*len(b.adds(n, rrs))
}

// shared returns where in name the part begins that a pointer into the origin
// replaces; ok is false if there is none worth a pointer.
func (b *builder) shared(t wire.Type, name []byte) (at int, ok bool) {
	// Every suffix of the origin will do, but the root takes one octet where a
	// pointer takes two. The target of a CNAME that leaves the zone stays
	// whole: the next records of the chain point into it.
	origin := b.origin.Bytes()
	for at < len(name) && name[at] != 0 {
		rest := name[at:]
		if len(rest) <= len(origin) && equalFold(origin[len(origin)-len(rest):], rest) && b.labelStart(len(origin)-len(rest)) {
			return at, t != wire.TypeCNAME || len(rest) == len(origin)
		}
		at += 1 + int(name[at])
	}
	return 0, false
}

// labelStart reports whether a label of the origin starts at off.
func (b *builder) labelStart(off int) bool {
	for i := range b.origin.Labels() {
		if b.origin.Offset(i) == off {
			return true
		}
	}
	return false
}

// equalFold compares lower, which is lower-cased, with other.
func equalFold(lower, other []byte) bool {
	for i, c := range other {
		if wire.Lower(c) != lower[i] {
			return false
		}
	}
	return true
}

// buildAdd is an Add under construction.
type buildAdd struct {
	name []byte // as in RDATA; nil: the owner
	kind AddKind
	node int32
}

// adds returns the nodes whose data goes into the additional section with the
// RRset, each node once.
func (b *builder) adds(n *buildNode, rrs []int32) []buildAdd {
	typ := b.rrs[rrs[0]].typ
	if !hasAdditional(typ) {
		return nil
	}
	var out []buildAdd
	for _, i := range rrs {
		rd := b.rd(&b.rrs[i])
		span, kind, ok := additional(typ, rd)
		if !ok {
			continue
		}
		a := buildAdd{name: rd[span.off : span.off+span.len], kind: kind}
		if span.len == 1 && (typ == wire.TypeSVCB || typ == wire.TypeHTTPS) && kind == AddAddresses {
			// ServiceMode with TargetName ".": the owner itself (RFC 9460 2.5.2).
			a.name = nil
			a.node, _ = b.lookup(n.hash, b.name(n))
		} else {
			a.node = b.findNode(a.name)
		}
		if a.node < 0 || b.nodes[a.node].count == 0 {
			continue
		}
		if typ == wire.TypeNS && n.flags&flagCut != 0 && b.isBelow(a.name, n) {
			a.kind = AddGlue
		}
		if !containsAdd(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func containsAdd(list []buildAdd, a buildAdd) bool {
	for i := range list {
		// Two names that one wildcard covers are two owners.
		if list[i].node == a.node && list[i].kind == a.kind && bytes.EqualFold(list[i].name, a.name) {
			return true
		}
	}
	return false
}

// isBelow reports whether name is at or below the name of n.
func (b *builder) isBelow(name []byte, n *buildNode) bool {
	below := len(name) - int(n.nameLen)
	return below >= 0 && equalFold(b.name(n), name[below:])
}

// errEncode says that layout and encode disagree: a bug.
var errEncode = errors.New("zone image does not have the computed size")

// encode writes the image into dst, which is zeroed and has the size that
// layout computed.
func (b *builder) encode(dst []byte, slots int, key Key) error {
	le := binary.LittleEndian
	le.PutUint64(dst[hdrMagic:], imageMagic)
	le.PutUint32(dst[hdrLayout:], Layout)
	le.PutUint64(dst[hdrSize:], uint64(len(dst)))
	le.PutUint64(dst[hdrSlots:], headerSize)
	le.PutUint32(dst[hdrSlotMask:], uint32(slots/slotSize-1))
	le.PutUint64(dst[hdrArena:], uint64(headerSize+slots))
	le.PutUint64(dst[hdrArenaLen:], uint64(len(dst)-headerSize-slots))
	le.PutUint32(dst[hdrApex:], uint32(b.nodes[0].ref))
	le.PutUint32(dst[hdrRecords:], uint32(b.records))
	le.PutUint32(dst[hdrNodes:], uint32(len(b.nodes)))
	copy(dst[hdrKey:], key[:])
	le.PutUint32(dst[hdrProbes:], uint32(b.encodeSlots(dst[headerSize:headerSize+slots])))

	arena := dst[headerSize+slots:]
	at := refUnit
	for i := range b.nodes {
		n := &b.nodes[i]
		if at != int(n.ref)*refUnit {
			return errEncode
		}
		at = b.encodeNode(arena, at, n)
	}
	b.sets(&b.nodes[0], func(rrs []int32) {
		if r := &b.rrs[rrs[0]]; r.typ == wire.TypeSOA {
			serial, minimum, _ := soaFields(b.rd(r))
			le.PutUint32(dst[hdrSerial:], serial)
			le.PutUint32(dst[hdrNegative:], uint32(at/refUnit))
			at = b.encodeSet(arena, at, &b.nodes[0], rrs, min(r.ttl, minimum))
		}
	})
	if at != len(arena) {
		return errEncode
	}
	return nil
}

// encodeSlots fills the hash table and returns its longest probe sequence, the
// empty slot at its end included.
func (b *builder) encodeSlots(slots []byte) int {
	mask := uint64(len(slots)/slotSize - 1)
	longest := 1
	for i := range b.nodes {
		n := &b.nodes[i]
		probe := 1
		at := n.hash & mask
		for u64(slots, int(at)*slotSize) != 0 {
			at = (at + 1) & mask
			probe++
		}
		longest = max(longest, probe)
		binary.LittleEndian.PutUint64(slots[at*slotSize:], n.hash>>32<<32|uint64(n.ref))
	}
	return longest
}

func (b *builder) encodeNode(arena []byte, at int, n *buildNode) int {
	le := binary.LittleEndian
	arena[at+nodeNameLen] = n.nameLen
	arena[at+nodeFlags] = n.flags
	if n.wild >= 0 {
		le.PutUint32(arena[at+nodeWildcard:], uint32(b.nodes[n.wild].ref))
	}
	if n.cover >= 0 {
		le.PutUint32(arena[at+nodeCover:], uint32(b.nodes[n.cover].ref))
	}
	copy(arena[at+nodeName:], b.name(n))
	start := at
	at += pad(nodeName + int(n.nameLen))
	sets := 0
	b.sets(n, func(rrs []int32) {
		at = b.encodeSet(arena, at, n, rrs, b.rrs[rrs[0]].ttl)
		sets++
	})
	le.PutUint16(arena[start+nodeRRsets:], uint16(sets))
	return at
}

// encodeSet writes an RRset as it goes into an answer to a question for the
// node's own name, and returns the offset behind it.
func (b *builder) encodeSet(arena []byte, start int, n *buildNode, rrs []int32, ttl uint32) int {
	be, le := binary.BigEndian, binary.LittleEndian
	typ := b.rrs[rrs[0]].typ
	// Where in a message the origin stands whose question is n's name.
	originAt := wire.HeaderSize + int(n.nameLen) - b.origin.Len()
	adds := b.adds(n, rrs)
	positions := make([]int, 0, 8) // of the adds' names, in their order
	var patches [16]int
	patched := patches[:0]

	wireAt := start + setWire
	at := wireAt
	for _, i := range rrs {
		r := &b.rrs[i]
		rd := b.rd(r)
		be.PutUint16(arena[at:], wire.Pointer(wire.HeaderSize))
		be.PutUint16(arena[at+2:], uint16(typ))
		be.PutUint16(arena[at+4:], uint16(wire.ClassIN))
		be.PutUint32(arena[at+6:], ttl)
		size := at + 10
		at += recordFixed
		addSpan, _, _ := additional(typ, rd)
		done := 0
		for _, s := range compressible(typ, rd) {
			cut, ok := b.shared(typ, rd[s.off:s.off+s.len])
			if !ok {
				continue
			}
			at += copy(arena[at:], rd[done:s.off+cut])
			patched = append(patched, at-wireAt)
			be.PutUint16(arena[at:], wire.Pointer(originAt+b.origin.Len()-(s.len-cut)))
			at += 2
			done = s.off + s.len
		}
		at += copy(arena[at:], rd[done:])
		be.PutUint16(arena[size:], uint16(at-size-2))
		if len(positions) < len(adds) {
			if a := &adds[len(positions)]; a.name == nil {
				positions = append(positions, 0)
			} else if addSpan.len > 0 && &rd[addSpan.off] == &a.name[0] {
				positions = append(positions, size+2+addSpan.off-wireAt)
			}
		}
	}
	le.PutUint16(arena[start+setType:], uint16(typ))
	le.PutUint16(arena[start+setCount:], uint16(len(rrs)))
	le.PutUint32(arena[start+setTTL:], ttl)
	le.PutUint16(arena[start+setSize:], uint16(at-wireAt))
	le.PutUint16(arena[start+setPatches:], uint16(len(patched)))
	le.PutUint16(arena[start+setAdds:], uint16(len(adds)))
	for _, p := range patched {
		le.PutUint16(arena[at:], uint16(p))
		at += 2
	}
	at = start + pad(at-start)
	for i, a := range adds {
		le.PutUint16(arena[at:], uint16(positions[i]))
		le.PutUint16(arena[at+2:], uint16(a.kind))
		le.PutUint32(arena[at+4:], uint32(b.nodes[a.node].ref))
		at += addSize
	}
	return at
}
