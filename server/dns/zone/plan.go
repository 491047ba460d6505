package zone

import "github.com/dnsapp/dnsapp/server/dns/wire"

// layout is where everything goes in the image, and what an encoder needs of
// nodes other than the one it writes.
type layout struct {
	refs     []Ref   // by node
	targets  []int32 // of the records that can have additional data, in order: a node with data, -1: none
	parts    []part
	negative int // offset of the SOA RRset for negative answers in the arena
	slots    int // octets of the slots
	arena    int // octets of the arena
}

// part is a run of partNodes nodes that one encoder writes.
type part struct {
	target int // where its part of targets starts
	// rr is the lowest index in rrs that this part or a later one refers to.
	rr int
}

const partNodes = 1 << 14

// plan lays out the image, and warns of names that additional data was to be
// found for.
func (b *builder) plan() error {
	if slots := slotsFor(len(b.nodes)); len(b.table) != slots {
		b.rehash(slots)
	}
	b.slots = len(b.table) * slotSize
	b.refs = room[Ref](&b.mem.refs, len(b.nodes), b.large)
	b.targets = room[int32](&b.mem.targets, len(b.rrs), b.large)
	e := encoder{builder: b, planning: true}
	arena := uint64(refUnit) // Ref 0 means None
	for i := range b.nodes {
		if i%partNodes == 0 {
			b.parts = append(b.parts, part{target: len(b.targets)})
		}
		if arena/refUnit > 1<<32-1 {
			return errTooLarge
		}
		b.refs = append(b.refs, Ref(arena/refUnit))
		arena += uint64(pad(nodeName + int(b.nodes[i].nameLen)))
		b.sets(int32(i), func(rrs []int32) {
			arena += uint64(e.setLen(int32(i), rrs))
		})
	}
	b.sets(0, func(rrs []int32) {
		if b.rrs[rrs[0]].typ == wire.TypeSOA {
			b.negative = int(arena)
			arena += uint64(e.setLen(0, rrs))
		}
	})
	if arena/refUnit > 1<<32-1 {
		return errTooLarge
	}
	b.arena = int(arena)
	lowest := len(b.rrs)
	for p := len(b.parts) - 1; p >= 0; p-- {
		for _, r := range b.order[b.nodes[p*partNodes].first:b.orderEnd(p)] {
			lowest = min(lowest, int(r))
		}
		b.parts[p].rr = lowest
	}
	return nil
}

// orderEnd returns where the part of order behind that of part p starts.
func (b *builder) orderEnd(p int) int32 {
	if next := (p + 1) * partNodes; next < len(b.nodes) {
		return b.nodes[next].first
	}
	return int32(len(b.order))
}

// target returns the node whose data goes into the additional section for name,
// which is that of record r of node i, or -1.
func (e *encoder) target(i int32, r *buildRR, name []byte) int32 {
	if !e.planning {
		e.next++
		return e.targets[e.next-1]
	}
	at := i // the owner itself
	if name != nil {
		at = e.findNode(name, &e.scratch)
		e.lintTarget(i, r, name, at)
	}
	if at >= 0 && len(e.list(at)) == 0 {
		at = -1
	}
	e.targets = append(e.targets, at)
	return at
}

// dropBefore gives back what only the nodes before part p needed.
func (b *builder) dropBefore(p int) {
	nodes, names, order, rr, rdata := len(b.nodes), len(b.names), len(b.order), len(b.rrs), len(b.rdata)
	if p < len(b.parts) {
		nodes = p * partNodes
		names, order = int(b.nodes[nodes].name), int(b.nodes[nodes].first)
		if rr = b.parts[p].rr; rr < len(b.rrs) {
			rdata = int(b.rrs[rr].off)
		}
	}
	drop(&b.mem.nodes, b.nodes, nodes)
	drop(&b.mem.names, b.names, names)
	drop(&b.mem.order, b.order, order)
	drop(&b.mem.rrs, b.rrs, rr)
	drop(&b.mem.rdata, b.rdata, rdata)
}
