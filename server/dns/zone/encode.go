package zone

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

const (
	recordFixed = 12 // octets of a record besides RDATA, the owner being a pointer
	maxRRset    = wire.MaxMessage - wire.HeaderSize - 5
)

// setLen returns the octets that an RRset takes in the arena.
func (e *encoder) setLen(i int32, rrs []int32) int {
	typ := e.rrs[rrs[0]].typ
	size := recordFixed * len(rrs)
	patches := 0
	for _, at := range rrs {
		r := &e.rrs[at]
		size += int(r.size)
		for _, s := range compressible(typ, e.rd(r)) {
			if at, ok := e.shared(typ, e.rd(r)[s.off:s.off+s.len]); ok {
				size -= s.len - at - 2
				patches++
			}
		}
	}
	return pad(setWire+size+2*patches) + addSize*len(e.additional(i, rrs))
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
// the RRset of node i, each node once. The list is valid until the next call.
func (e *encoder) additional(i int32, rrs []int32) []buildAdd {
	typ := e.rrs[rrs[0]].typ
	if !hasAdditional(typ) {
		return nil
	}
	n := &e.nodes[i]
	out := e.adds[:0]
	for _, at := range rrs {
		rd := e.rd(&e.rrs[at])
		span, kind, ok := additional(typ, rd)
		if !ok {
			continue
		}
		a := buildAdd{name: rd[span.off : span.off+span.len], kind: kind}
		if span.len == 1 && (typ == wire.TypeSVCB || typ == wire.TypeHTTPS) && kind == AddAddresses {
			a.name = nil // ServiceMode with TargetName ".": the owner itself (RFC 9460 2.5.2)
		}
		if a.node = e.target(i, &e.rrs[at], a.name); a.node < 0 {
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
	if below < 0 {
		return false
	}
	relative := b.relative(n)
	return equalFold(relative, name[below:below+len(relative)]) && equalFold(b.origin.Bytes(), name[below+len(relative):])
}

// errEncode says that layout and encode disagree: a bug.
var errEncode = errors.New("zone image does not have the computed size")

// encode writes the image into dst, which is zeroed and of the planned size, and
// gives the builder back while it does so.
func (b *builder) encode(dst []byte, key Digest) error {
	defer b.free()
	slots, arena := dst[headerSize:headerSize+b.slots], dst[headerSize+b.slots:]
	le := binary.LittleEndian
	le.PutUint64(dst[hdrMagic:], imageMagic)
	le.PutUint32(dst[hdrLayout:], Layout)
	le.PutUint64(dst[hdrSize:], uint64(len(dst)))
	le.PutUint64(dst[hdrSlots:], headerSize)
	le.PutUint32(dst[hdrSlotMask:], uint32(len(b.table)-1))
	le.PutUint32(dst[hdrProbes:], uint32(b.probes))
	le.PutUint64(dst[hdrArena:], uint64(headerSize+b.slots))
	le.PutUint64(dst[hdrArenaLen:], uint64(len(arena)))
	le.PutUint32(dst[hdrApex:], uint32(b.refs[0]))
	le.PutUint32(dst[hdrRecords:], uint32(b.records))
	le.PutUint32(dst[hdrNodes:], uint32(len(b.nodes)))
	copy(dst[hdrKey:], key[:])

	end := b.negative
	e := encoder{builder: b, arena: arena}
	b.sets(0, func(rrs []int32) {
		if r := &b.rrs[rrs[0]]; r.typ == wire.TypeSOA {
			serial, minimum, _ := soaFields(b.rd(r))
			le.PutUint32(dst[hdrSerial:], serial)
			le.PutUint32(dst[hdrNegative:], uint32(b.negative/refUnit))
			end = e.encodeSet(end, 0, rrs, min(r.ttl, minimum))
		}
	})
	b.encodeSlots(slots)
	if err := b.encodeNodes(arena); err != nil || end != len(arena) {
		return errEncode
	}
	return nil
}

// encoder writes nodes into an arena. Several may share a builder, which they
// only read.
type encoder struct {
	*builder
	arena    []byte
	planning bool // there is no arena yet, and targets are to be found
	next     int  // of targets, while not planning
	adds     []buildAdd
	patches  []int
	places   []int
}

// encodeNodes writes every node at its Ref, on all processors.
func (b *builder) encodeNodes(arena []byte) error {
	var mu sync.Mutex
	next, kept := 0, 0 // the next part to take, and the first that is not done; guarded by mu
	done, bad := make([]bool, len(b.parts)), false
	encode := func() {
		e := encoder{builder: b, arena: arena}
		mu.Lock()
		defer mu.Unlock()
		for next < len(b.parts) {
			p := next
			next++
			mu.Unlock()
			ok := e.encodePart(p)
			mu.Lock()
			done[p], bad = true, bad || !ok
			for kept < len(done) && done[kept] {
				kept++
			}
			b.dropBefore(kept)
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(b.parts)) - 1 {
		wg.Go(encode)
	}
	encode()
	wg.Wait()
	if bad {
		return errEncode
	}
	return nil
}

// encodePart writes the nodes of part p, and reports whether they end where they
// should.
func (e *encoder) encodePart(p int) bool {
	from, to := p*partNodes, min((p+1)*partNodes, len(e.nodes))
	e.next = e.parts[p].target
	for i := from; i < to; i++ {
		end := e.negative
		if i+1 < len(e.nodes) {
			end = int(e.refs[i+1]) * refUnit
		}
		if e.encodeNode(int32(i)) != end {
			return false
		}
	}
	return true
}

// encodeSlots fills the hash table: it is the builder's, with places in the arena
// for nodes.
func (b *builder) encodeSlots(slots []byte) {
	for i, e := range b.table {
		if e != 0 {
			binary.LittleEndian.PutUint64(slots[i*slotSize:], e>>32<<32|uint64(b.refs[uint32(e)-1]))
		}
		if i%partNodes == 0 {
			drop(&b.mem.table, b.table, i)
		}
	}
	b.mem.table.free()
}

// encodeNode writes node i and returns the offset behind it.
func (e *encoder) encodeNode(i int32) int {
	n := &e.nodes[i]
	le, arena, at := binary.LittleEndian, e.arena, int(e.refs[i])*refUnit
	arena[at+nodeNameLen] = n.nameLen
	arena[at+nodeFlags] = n.flags
	if wild, ok := e.wild[i]; ok {
		le.PutUint32(arena[at+nodeWildcard:], uint32(e.refs[wild]))
	}
	if n.flags&flagsHidden != 0 {
		le.PutUint32(arena[at+nodeCover:], uint32(e.refs[e.cover(i)]))
	}
	copy(arena[at+nodeName+copy(arena[at+nodeName:], e.relative(n)):], e.origin.Bytes())
	start := at
	at += pad(nodeName + int(n.nameLen))
	sets := 0
	e.sets(i, func(rrs []int32) {
		at = e.encodeSet(at, i, rrs, e.rrs[rrs[0]].ttl)
		sets++
	})
	le.PutUint16(arena[start+nodeRRsets:], uint16(sets))
	return at
}

// encodeSet writes an RRset as it goes into an answer to a question for the
// node's own name, and returns the offset behind it.
func (e *encoder) encodeSet(start int, i int32, rrs []int32, ttl uint32) int {
	be, le, arena := binary.BigEndian, binary.LittleEndian, e.arena
	typ := e.rrs[rrs[0]].typ
	// Where in a message the origin stands whose question is n's name.
	originAt := wire.HeaderSize + int(e.nodes[i].nameLen) - e.origin.Len()
	adds := e.additional(i, rrs)
	places, patches := e.places[:0], e.patches[:0] // of the adds' names, in their order; of pointers

	wireAt := start + setWire
	at := wireAt
	for _, rr := range rrs {
		r := &e.rrs[rr]
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
		le.PutUint32(arena[at+4:], uint32(e.refs[a.node]))
		at += addSize
	}
	return at
}
