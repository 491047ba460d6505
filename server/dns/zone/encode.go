package zone

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

const (
	recordFixed = 12 // octets of a record besides RDATA, the owner being a pointer
	maxRRset    = wire.MaxMessage - wire.HeaderSize - 5
)

// layout gives every node its Ref and returns the octets of slots and arena.
func (b *builder) layout() (slots int, arena uint64, err error) {
	e := encoder{builder: b, warn: true}
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
			arena += uint64(e.setLen(n, rrs))
		})
	}
	b.sets(&b.nodes[0], func(rrs []int32) { // the negative SOA follows
		if b.rrs[rrs[0]].typ == wire.TypeSOA {
			arena += uint64(e.setLen(&b.nodes[0], rrs))
		}
	})
	if arena/refUnit > 1<<32-1 {
		return 0, 0, errTooLarge
	}
	return slots * slotSize, arena, nil
}

// setLen returns the octets that an RRset takes in the arena.
func (e *encoder) setLen(n *buildNode, rrs []int32) int {
	typ := e.rrs[rrs[0]].typ
	size := recordFixed * len(rrs)
	patches := 0
	for _, i := range rrs {
		r := &e.rrs[i]
		size += int(r.size)
		for _, s := range compressible(typ, e.rd(r)) {
			if at, ok := e.shared(typ, e.rd(r)[s.off:s.off+s.len]); ok {
				size -= s.len - at - 2
				patches++
			}
		}
	}
	return pad(setWire+size+2*patches) + addSize*len(e.additional(n, rrs))
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

// additional returns the nodes whose data goes into the additional section with
// the RRset, each node once. The list is valid until the next call.
func (e *encoder) additional(n *buildNode, rrs []int32) []buildAdd {
	typ := e.rrs[rrs[0]].typ
	if !hasAdditional(typ) {
		return nil
	}
	out := e.adds[:0]
	for _, i := range rrs {
		rd := e.rd(&e.rrs[i])
		span, kind, ok := additional(typ, rd)
		if !ok {
			continue
		}
		a := buildAdd{name: rd[span.off : span.off+span.len], kind: kind}
		if span.len == 1 && (typ == wire.TypeSVCB || typ == wire.TypeHTTPS) && kind == AddAddresses {
			// ServiceMode with TargetName ".": the owner itself (RFC 9460 2.5.2).
			a.name, a.node = nil, e.index(n)
		} else {
			a.node = e.findNode(a.name, &e.scratch)
		}
		if e.warn {
			e.lintTarget(n, &e.rrs[i], a)
		}
		if a.node < 0 || e.nodes[a.node].count == 0 {
			continue
		}
		if typ == wire.TypeNS && n.flags&flagCut != 0 && e.isBelow(a.name, n) {
			a.kind = AddGlue
		}
		if !containsAdd(out, a) {
			out = append(out, a)
		}
	}
	e.adds = out
	return out
}

func containsAdd(list []buildAdd, a buildAdd) bool {
	for i := range list {
		// Two names that one wildcard covers are two owners.
		if list[i].node == a.node && list[i].kind == a.kind && sameName(list[i].name, a.name) {
			return true
		}
	}
	return false
}

// sameName compares names without case. nil is like nil only.
func sameName(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if wire.Lower(a[i]) != wire.Lower(b[i]) {
			return false
		}
	}
	return true
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
func (b *builder) encode(dst []byte, slots int, key Digest) error {
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
	end, err := b.encodeNodes(arena)
	if err != nil {
		return err
	}
	e := encoder{builder: b, arena: arena}
	b.sets(&b.nodes[0], func(rrs []int32) {
		if r := &b.rrs[rrs[0]]; r.typ == wire.TypeSOA {
			serial, minimum, _ := soaFields(b.rd(r))
			le.PutUint32(dst[hdrSerial:], serial)
			le.PutUint32(dst[hdrNegative:], uint32(end/refUnit))
			end = e.encodeSet(end, &b.nodes[0], rrs, min(r.ttl, minimum))
		}
	})
	if end != len(arena) {
		return errEncode
	}
	return nil
}

// encoder writes nodes into an arena. Several may share a builder, which they
// only read.
type encoder struct {
	*builder
	arena   []byte
	scratch wire.Name
	warn    bool // about names that additional data was to be found for
	adds    []buildAdd
	patches []int
	places  []int
}

// chunk is how many nodes an encoder takes at a time.
const chunk = 1 << 14

// encodeNodes writes every node at its Ref, on all cores, and returns the offset
// behind the last.
func (b *builder) encodeNodes(arena []byte) (end int, err error) {
	var next, bad atomic.Int64
	encode := func() {
		e := encoder{builder: b, arena: arena}
		for {
			from := int(next.Add(chunk)) - chunk
			if from >= len(b.nodes) {
				return
			}
			for i := from; i < min(from+chunk, len(b.nodes)); i++ {
				at := e.encodeNode(int32(i))
				if i+1 == len(b.nodes) {
					end = at
				} else if at != int(b.nodes[i+1].ref)*refUnit {
					bad.Add(1)
				}
			}
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0)-1, len(b.nodes)/chunk) {
		wg.Go(encode)
	}
	encode()
	wg.Wait()
	if bad.Load() != 0 {
		return 0, errEncode
	}
	return end, nil
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

// encodeNode writes node i and returns the offset behind it.
func (e *encoder) encodeNode(i int32) int {
	n := &e.nodes[i]
	le, arena, at := binary.LittleEndian, e.arena, int(n.ref)*refUnit
	arena[at+nodeNameLen] = n.nameLen
	arena[at+nodeFlags] = n.flags
	if wild, ok := e.wild[i]; ok {
		le.PutUint32(arena[at+nodeWildcard:], uint32(e.nodes[wild].ref))
	}
	if n.flags&flagsHidden != 0 {
		le.PutUint32(arena[at+nodeCover:], uint32(e.cover(n).ref))
	}
	copy(arena[at+nodeName:], e.name(n))
	start := at
	at += pad(nodeName + int(n.nameLen))
	sets := 0
	e.sets(n, func(rrs []int32) {
		at = e.encodeSet(at, n, rrs, e.rrs[rrs[0]].ttl)
		sets++
	})
	le.PutUint16(arena[start+nodeRRsets:], uint16(sets))
	return at
}

// encodeSet writes an RRset as it goes into an answer to a question for the
// node's own name, and returns the offset behind it.
func (e *encoder) encodeSet(start int, n *buildNode, rrs []int32, ttl uint32) int {
	be, le, arena := binary.BigEndian, binary.LittleEndian, e.arena
	typ := e.rrs[rrs[0]].typ
	// Where in a message the origin stands whose question is n's name.
	originAt := wire.HeaderSize + int(n.nameLen) - e.origin.Len()
	adds := e.additional(n, rrs)
	places, patches := e.places[:0], e.patches[:0] // of the adds' names, in their order; of pointers

	wireAt := start + setWire
	at := wireAt
	for _, i := range rrs {
		r := &e.rrs[i]
		rd := e.rd(r)
		be.PutUint16(arena[at:], wire.Pointer(wire.HeaderSize))
		be.PutUint16(arena[at+2:], uint16(typ))
		be.PutUint16(arena[at+4:], uint16(wire.ClassIN))
		if typ == wire.TypeRRSIG { // as that of what it covers (RFC 4034 3)
			ttl = r.ttl
		}
		be.PutUint32(arena[at+6:], ttl)
		size := at + 10
		at += recordFixed
		addSpan, _, _ := additional(typ, rd)
		done := 0
		for _, s := range compressible(typ, rd) {
			cut, ok := e.shared(typ, rd[s.off:s.off+s.len])
			if !ok {
				continue
			}
			at += copy(arena[at:], rd[done:s.off+cut])
			patches = append(patches, at-wireAt)
			be.PutUint16(arena[at:], wire.Pointer(originAt+e.origin.Len()-(s.len-cut)))
			at += 2
			done = s.off + s.len
		}
		at += copy(arena[at:], rd[done:])
		be.PutUint16(arena[size:], uint16(at-size-2))
		if len(places) < len(adds) {
			if a := &adds[len(places)]; a.name == nil {
				places = append(places, 0)
			} else if addSpan.len > 0 && &rd[addSpan.off] == &a.name[0] {
				places = append(places, size+2+addSpan.off-wireAt)
			}
		}
	}
	le.PutUint16(arena[start+setType:], uint16(typ))
	le.PutUint16(arena[start+setCount:], uint16(len(rrs)))
	le.PutUint32(arena[start+setTTL:], ttl)
	le.PutUint16(arena[start+setSize:], uint16(at-wireAt))
	le.PutUint16(arena[start+setPatches:], uint16(len(patches)))
	le.PutUint16(arena[start+setAdds:], uint16(len(adds)))
	for _, p := range patches {
		le.PutUint16(arena[at:], uint16(p))
		at += 2
	}
	at = start + pad(at-start)
	e.places, e.patches = places, patches
	for i, a := range adds {
		le.PutUint16(arena[at:], uint16(places[i]))
		le.PutUint16(arena[at+2:], uint16(a.kind))
		le.PutUint32(arena[at+4:], uint32(e.nodes[a.node].ref))
		at += addSize
	}
	return at
}
