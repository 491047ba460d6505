package zone

import (
	"encoding/binary"
	"fmt"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// Verify checks every octet of the image that a lookup can reach. It takes time
// in proportion to the zone, so it is for whoever made the image, not for every
// process that maps it. Its errors match ErrImage.
func (z *Zone) Verify() (err error) {
	defer func() {
		if r := recover(); r != nil { // a slice bound: a length points outside
			err = fmt.Errorf("verifying zone %s: %v: %w", z.name, r, ErrImage)
		}
	}()
	starts := make(map[Ref]bool, z.Nodes())
	for i := range z.slotMask + 1 {
		if s := u64(z.slots, int(i)*slotSize); s != 0 {
			starts[Ref(s)] = true
		}
	}
	if len(starts) != z.Nodes() {
		return fmt.Errorf("verifying zone %s: %d nodes in the slots, header says %d: %w", z.name, len(starts), z.Nodes(), ErrImage)
	}
	for ref := range starts {
		if err := z.verifyNode(ref, starts); err != nil {
			return fmt.Errorf("verifying zone %s: node at %d: %w: %w", z.name, ref, err, ErrImage)
		}
	}
	if _, err := z.verifySet(z.Negative(), z.Apex(), starts); err != nil {
		return fmt.Errorf("verifying zone %s: negative SOA: %w: %w", z.name, err, ErrImage)
	}
	return nil
}

func (z *Zone) verifyNode(ref Ref, starts map[Ref]bool) error {
	n := z.node(ref)
	var name wire.Name
	if name.Set(n.Name()) != len(n.Name()) {
		return fmt.Errorf("malformed name")
	}
	if z.find(name.Hash(0), name.Bytes()) != ref {
		return fmt.Errorf("%s is not found", wire.Text(n.Name()))
	}
	for _, r := range []Ref{Ref(u32(z.arena, n.at+nodeWildcard)), Ref(u32(z.arena, n.at+nodeCover))} {
		if r != None && !starts[r] {
			return fmt.Errorf("%s refers to %d, where no node is", wire.Text(n.Name()), r)
		}
	}
	if n.fl&flagsHidden != 0 && u32(z.arena, n.at+nodeCover) == 0 {
		return fmt.Errorf("%s is hidden by nothing", wire.Text(n.Name()))
	}
	if n.RRsets() == 0 {
		return nil
	}
	s, ok := n.First(), true
	last := wire.Type(0)
	for i := 0; ok; i++ {
		if s.Type <= last {
			return fmt.Errorf("%s: RRsets are out of order", wire.Text(n.Name()))
		}
		last = s.Type
		if _, err := z.verifySet(s, n, starts); err != nil {
			return fmt.Errorf("%s type %d: %w", wire.Text(n.Name()), s.Type, err)
		}
		s, ok = n.Next(s, i)
	}
	return nil
}

// verifySet checks that the RRset is Count whole records and that its patches
// and adds point at what they should. It returns the octets it walked over.
func (z *Zone) verifySet(s RRset, n Node, starts map[Ref]bool) (int, error) {
	at := 0
	for range s.Count {
		rr := s.Wire[at:]
		if p := binary.BigEndian.Uint16(rr); p != wire.Pointer(wire.HeaderSize) {
			return at, fmt.Errorf("owner is %#x", p)
		}
		if wire.Type(binary.BigEndian.Uint16(rr[2:])) != s.Type || s.Type != wire.TypeRRSIG && binary.BigEndian.Uint32(rr[6:]) != s.TTL() {
			return at, fmt.Errorf("record differs from its RRset in type or TTL")
		}
		at += recordFixed + int(binary.BigEndian.Uint16(rr[10:]))
	}
	if at != len(s.Wire) {
		return at, fmt.Errorf("records take %d octets, RRset has %d", at, len(s.Wire))
	}
	patches := s.Patches()
	home := wire.HeaderSize + n.len - len(z.origin)
	for i := range len(patches) / 2 {
		p := int(binary.BigEndian.Uint16(s.Wire[Patch(patches, i):])) - int(wire.Pointer(0))
		if p < home || p >= home+len(z.origin)-1 {
			return at, fmt.Errorf("pointer to %d is not into the origin", p)
		}
	}
	for i := range s.Adds() {
		a := s.Add(i)
		if !starts[a.Node] || a.Kind >= addKinds || a.Pos >= len(s.Wire) {
			return at, fmt.Errorf("bad additional data reference %+v", a)
		}
	}
	return at, nil
}
