package zone

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// Layout is the layout number of a zone region. Raise it with every change of
// what an image holds or means: images of another layout are refused, and it is
// part of the content key, so they are never shared either.
const Layout = 1

// imageMagic opens every image ("dnsappZ1", little endian).
const imageMagic uint64 = 0x315a707061736e64

// Signed zones need no other shape: octets 14 and 15 of an RRset are free for
// the length of signatures behind its wire form, so that the answer to a query
// with DO is the same copy, only longer; and octets 104 to 127 of the header for
// a table of the nodes in canonical order, in which proofs of non-existence are
// found.

// The image header. All integers are little endian; offsets are in octets from
// the start of the image.
const (
	hdrMagic    = 0  // u64
	hdrLayout   = 8  // u32
	hdrSerial   = 12 // u32 SOA SERIAL
	hdrSize     = 16 // u64 octets of the image
	hdrSlots    = 24 // u64 offset of the slots
	hdrSlotMask = 32 // u32 number of slots - 1
	hdrProbes   = 36 // u32 longest probe sequence
	hdrArena    = 40 // u64 offset of the arena
	hdrArenaLen = 48 // u64 octets of the arena
	hdrApex     = 56 // u32 Ref of the apex node
	hdrNegative = 60 // u32 Ref of the SOA RRset for negative answers
	hdrRecords  = 64 // u32 records, duplicates not counted
	hdrNodes    = 68 // u32 nodes, empty non-terminals included
	hdrKey      = 72 // [32]octet content key
	headerSize  = 128
)

// Ref is the place of a node or RRset in the arena, in units of refUnit octets.
type Ref uint32

// None is the Ref of nothing.
const None Ref = 0

const refUnit = 4

// A slot is a Ref in its low half and the high half of the name's hash in its
// high half. The empty slot is 0.
const slotSize = 8

// A node.
const (
	nodeNameLen  = 0  // u8
	nodeFlags    = 1  // u8
	nodeRRsets   = 2  // u16
	nodeWildcard = 4  // u32 Ref of the child "*"
	nodeCover    = 8  // u32 Ref of the topmost cut or DNAME above the node
	nodeName     = 12 // lower-cased wire name; padded to refUnit; RRsets follow
)

// Flags of a node.
const (
	flagCut     uint8 = 1 << iota // has NS and is not the apex: a delegation
	flagDNAME                     // has DNAME and is not below a cut
	flagBelow                     // below a cut: glue or occluded (RFC 9499)
	flagUnder                     // below a DNAME: occluded (RFC 6672 2.4)
	flagCNAME                     // has CNAME
	flagsHidden = flagBelow | flagUnder
)

// An RRset.
const (
	setType    = 0  // u16
	setCount   = 2  // u16 records
	setTTL     = 4  // u32 seconds
	setSize    = 8  // u16 octets of wire form
	setPatches = 10 // u16
	setAdds    = 12 // u16
	setWire    = 16 // wire form; u16 patches; padding; adds

	addSize = 8 // u16 position of the name in the wire form, u16 AddKind, u32 node
)

// AddKind says which records of a node belong into the additional section.
type AddKind uint16

// The kinds of additional data. Everything but addresses brings the additional
// data of the RRset itself along.
const (
	AddAddresses AddKind = iota // A and AAAA (RFC 1035 3.3.9 and 3.3.11, RFC 2782)
	AddGlue                     // the same, and the referral needs it (RFC 9471 2.1)
	AddSRV                      // SRV (RFC 3403 4.1)
	AddSVCB                     // SVCB (RFC 9460 4.1)
	AddHTTPS                    // HTTPS
	AddNAPTR                    // NAPTR
	addKinds
)

// addTypes are the RRsets that each kind stands for, in the order they go out.
var addTypes = [addKinds][]wire.Type{
	AddAddresses: {wire.TypeA, wire.TypeAAAA},
	AddGlue:      {wire.TypeA, wire.TypeAAAA},
	AddSRV:       {wire.TypeSRV},
	AddSVCB:      {wire.TypeSVCB, wire.TypeA, wire.TypeAAAA},
	AddHTTPS:     {wire.TypeHTTPS, wire.TypeA, wire.TypeAAAA},
}

func pad(n int) int { return (n + refUnit - 1) &^ (refUnit - 1) }

func u16(b []byte, off int) int    { return int(binary.LittleEndian.Uint16(b[off:])) }
func u32(b []byte, off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
func u64(b []byte, off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
