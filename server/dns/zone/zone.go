package zone

import (
	"errors"
	"fmt"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/shm"
)

// ErrImage is matched by every error of Open, Map and Verify: the bytes are not
// a zone image of this layout.
var ErrImage = errors.New("not a zone image")

// Zone is an image opened for answering. It is immutable and safe for
// concurrent use.
type Zone struct {
	// Cell is where the queries for the zone are counted (counters.Zones). It is
	// set by whoever opened the zone, before anybody else has it.
	Cell uint32

	slots    []byte
	arena    []byte
	slotMask uint64
	probes   int

	apex     Ref
	negative Ref
	origin   []byte // lower-cased wire form; lies in the arena
	labels   int    // of origin
	name     string
	image    []byte
}

// Map opens the image in a zone region. The Zone is valid as long as r is open.
func Map(r *shm.Region) (*Zone, error) {
	if err := r.Check(shm.KindZones, Layout); err != nil {
		return nil, fmt.Errorf("opening zone region: %w", err)
	}
	return Open(shm.ViewSlice[byte](r, shm.HeaderSize, r.Size()-shm.HeaderSize))
}

// Open opens an image. It checks the header and what the header points to, in
// constant time, so that a large zone is served without being read first.
func Open(image []byte) (*Zone, error) {
	if len(image) < headerSize {
		return nil, fmt.Errorf("opening zone: %d bytes are less than a header: %w", len(image), ErrImage)
	}
	if m := u64(image, hdrMagic); m != imageMagic {
		return nil, fmt.Errorf("opening zone: magic is %#x: %w", m, ErrImage)
	}
	if l := u32(image, hdrLayout); l != Layout {
		return nil, fmt.Errorf("opening zone: layout is %d, this binary uses %d: %w", l, Layout, ErrImage)
	}
	size := u64(image, hdrSize)
	mask := uint64(u32(image, hdrSlotMask))
	slots, arena, arenaLen := u64(image, hdrSlots), u64(image, hdrArena), u64(image, hdrArenaLen)
	slotsLen := (mask + 1) * slotSize
	switch {
	case size > uint64(len(image)) || size < headerSize:
		return nil, fmt.Errorf("opening zone: header says %d bytes, there are %d: %w", size, len(image), ErrImage)
	case mask&(mask+1) != 0:
		return nil, fmt.Errorf("opening zone: %d slots are no power of two: %w", mask+1, ErrImage)
	case slots > size || slotsLen > size-slots:
		return nil, fmt.Errorf("opening zone: slots leave the image: %w", ErrImage)
	case arena > size || arenaLen > size-arena || arenaLen < refUnit:
		return nil, fmt.Errorf("opening zone: arena leaves the image: %w", ErrImage)
	}
	z := &Zone{
		slots:    image[slots : slots+slotsLen : slots+slotsLen],
		arena:    image[arena : arena+arenaLen : arena+arenaLen],
		slotMask: mask,
		probes:   int(min(u32(image, hdrProbes), 1<<16)),
		apex:     Ref(u32(image, hdrApex)),
		negative: Ref(u32(image, hdrNegative)),
		image:    image[:size],
	}
	if !z.inArena(z.apex, nodeName+1) || !z.inArena(z.negative, setWire) {
		return nil, fmt.Errorf("opening zone: apex or SOA leaves the arena: %w", ErrImage)
	}
	at := int(z.apex)*refUnit + nodeName
	var n wire.Name
	if l := n.Set(z.arena[at:]); l == 0 || l != int(z.arena[at-nodeName]) {
		return nil, fmt.Errorf("opening zone: malformed origin: %w", ErrImage)
	}
	z.origin, z.labels = z.arena[at:at+n.Len()], n.Labels()
	z.name = wire.Text(z.origin)
	return z, nil
}

func (z *Zone) inArena(r Ref, octets int) bool {
	return r != None && int(r)*refUnit <= len(z.arena)-octets
}

// Name returns the origin in presentation form, lower case and absolute.
func (z *Zone) Name() string { return z.name }

// Origin returns the origin in lower-cased wire form. It must not be written to.
func (z *Zone) Origin() []byte { return z.origin }

// Labels returns the number of labels of the origin.
func (z *Zone) Labels() int { return z.labels }

// Serial returns SERIAL of the SOA record.
func (z *Zone) Serial() uint32 { return u32(z.image, hdrSerial) }

// Records returns the number of records.
func (z *Zone) Records() int { return int(u32(z.image, hdrRecords)) }

// Nodes returns the number of names, empty non-terminals included.
func (z *Zone) Nodes() int { return int(u32(z.image, hdrNodes)) }

// Size returns the octets of the image.
func (z *Zone) Size() int { return len(z.image) }

// Key returns the content key that the image was compiled under.
func (z *Zone) Key() Digest { return Digest(z.image[hdrKey : hdrKey+len(Digest{})]) }

// Apex returns the node of the origin.
func (z *Zone) Apex() Node { return z.node(z.apex) }

// Negative returns the SOA RRset for negative answers: its TTL is the smaller
// of the record's own and of MINIMUM (RFC 2308 3 and 5).
func (z *Zone) Negative() RRset { return z.rrset(int(z.negative) * refUnit) }

// Node is a name of the zone.
type Node struct {
	z   *Zone
	at  int // of the node in the arena
	len int // octets of the name
	fl  uint8
}

func (z *Zone) node(r Ref) Node {
	at := int(r) * refUnit
	return Node{z: z, at: at, len: int(z.arena[at+nodeNameLen]), fl: z.arena[at+nodeFlags]}
}

// Node returns the node at r.
func (z *Zone) Node(r Ref) Node { return z.node(r) }

// Ref returns the node's place in its zone.
func (n Node) Ref() Ref { return Ref(n.at / refUnit) }

// Name returns the name in lower-cased wire form. It must not be written to.
func (n Node) Name() []byte { return n.z.arena[n.at+nodeName : n.at+nodeName+n.len] }

// Cut reports whether the node is a delegation.
func (n Node) Cut() bool { return n.fl&flagCut != 0 }

// CNAME reports whether the node has a CNAME record.
func (n Node) CNAME() bool { return n.fl&flagCNAME != 0 }

// RRsets returns the number of RRsets; 0 says empty non-terminal.
func (n Node) RRsets() int { return u16(n.z.arena, n.at+nodeRRsets) }

// first returns where the first RRset lies.
func (n Node) first() int { return n.at + pad(nodeName+n.len) }

// RRset returns the RRset of type t.
func (n Node) RRset(t wire.Type) (RRset, bool) {
	at := n.first()
	for i := n.RRsets(); i > 0; i-- {
		switch have := wire.Type(u16(n.z.arena, at+setType)); {
		case have == t:
			return n.z.rrset(at), true
		case have > t: // they are in ascending order
			return RRset{}, false
		}
		at += n.z.setLen(at)
	}
	return RRset{}, false
}

// First returns the RRset with the lowest type. The node must have one.
func (n Node) First() RRset { return n.z.rrset(n.first()) }

// Next returns the RRset behind s, the i-th of its node counted from 0; ok is
// false behind the last.
func (n Node) Next(s RRset, i int) (next RRset, ok bool) {
	if i+1 >= n.RRsets() {
		return RRset{}, false
	}
	return n.z.rrset(s.at + n.z.setLen(s.at)), true
}

// RRset is a set of records with one owner and type.
type RRset struct {
	Type  wire.Type
	Count int    // records
	Wire  []byte // see Zone; the owners are pointers to offset 12

	z  *Zone
	at int
}

func (z *Zone) rrset(at int) RRset {
	size := u16(z.arena, at+setSize)
	return RRset{
		Type:  wire.Type(u16(z.arena, at+setType)),
		Count: u16(z.arena, at+setCount),
		Wire:  z.arena[at+setWire : at+setWire+size],
		z:     z,
		at:    at,
	}
}

// setLen returns the octets that the RRset at at takes in the arena.
func (z *Zone) setLen(at int) int {
	return pad(setWire+u16(z.arena, at+setSize)+2*u16(z.arena, at+setPatches)) + addSize*u16(z.arena, at+setAdds)
}

// TTL returns the TTL of the records in seconds; of RRSIG records, whose TTLs
// differ, that of the last.
func (s RRset) TTL() uint32 { return u32(s.z.arena, s.at+setTTL) }

// Ref returns the RRset's place in its zone.
func (s RRset) Ref() Ref { return Ref(s.at / refUnit) }

// Patches returns the positions in Wire of the compression pointers into the
// origin, two octets each, little endian. A pointer is right where the node's
// own name stands at offset 12 of the message.
func (s RRset) Patches() []byte {
	from := s.at + setWire + len(s.Wire)
	return s.z.arena[from : from+2*u16(s.z.arena, s.at+setPatches)]
}

// Patch returns the i-th of the positions that Patches returned.
func Patch(patches []byte, i int) int { return u16(patches, 2*i) }

// Adds returns the number of Add that the RRset has.
func (s RRset) Adds() int { return u16(s.z.arena, s.at+setAdds) }

// Add is a node whose data belongs into the additional section.
type Add struct {
	Pos  int // of the node's name in Wire; 0: the owner of the RRset
	Kind AddKind
	Node Ref
}

// Types returns the types of the RRsets to add. It must not be written to.
func (a Add) Types() []wire.Type { return addTypes[a.Kind] }

// Add returns the i-th Add of the RRset.
func (s RRset) Add(i int) Add {
	at := s.at + pad(setWire+len(s.Wire)+2*u16(s.z.arena, s.at+setPatches)) + addSize*i
	return Add{Pos: u16(s.z.arena, at), Kind: AddKind(u16(s.z.arena, at+2)), Node: Ref(u32(s.z.arena, at+4))}
}
