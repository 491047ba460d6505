package trace

import (
	"net/netip"
)

// Protocols, by their numbers in IP headers.
const (
	protoICMP  = 1
	protoTCP   = 6
	protoUDP   = 17
	protoICMP6 = 58
)

// View is what a filter looks at. Addresses are IPv4-mapped where they are of IPv4.
type View struct {
	Src, Dst         [16]byte // zero where there are none
	SrcPort, DstPort uint16   // Valid iff Ports
	Length           int      // octets of the datagram or frame
	Version          uint8    // of IP: 4 or 6; 0: it is not IP
	Protocol         uint8    // above IP and its extension headers. Valid iff Version is not 0
	VLAN             uint16   // number of the VLAN. Valid iff Tagged
	Tagged           bool
	ARP              bool
	Ports            bool // UDP or TCP, and not a later fragment
	Sent             bool // it leaves the server; else it came
}

// Limits of an expression.
const (
	MaxFilter = 1024 // octets
	maxOps    = 256
	maxDepth  = 32 // of parentheses and what they leave to be done: bits of Match's stack
)

// opcode is one step of a compiled filter, which is in postfix order.
type opcode uint8

const (
	opAnd opcode = iota
	opOr
	opNot
	opNet // op.prefix
	opPorts
	opProtocol
	opVersion
	opARP
	opVLAN
	opAnyVLAN
	opShorter // at most op.high octets
	opLonger  // at least op.low octets
	opSent
	opReceived
)

// side says which of two addresses or ports an op is about.
type side uint8

const (
	either side = iota
	both
	source
	destination
)

type op struct {
	code      opcode
	side      side
	prefix    netip.Prefix // of 16-octet addresses
	low, high uint32
}

// Filter says which datagrams are wanted. Its zero value, and nil, want all.
type Filter struct{ ops []op }

// Match reports whether f wants v. It does not allocate.
func (f *Filter) Match(v *View) bool {
	if f == nil || len(f.ops) == 0 {
		return true
	}
	stack := uint64(0) // of truths: the lowest bit is on top
	for i := range f.ops {
		o := &f.ops[i]
		switch o.code {
		case opAnd:
			stack = stack>>1&^1 | stack>>1&stack&1
		case opOr:
			stack = stack>>1 | stack&1
		case opNot:
			stack ^= 1
		default:
			stack <<= 1
			if o.holds(v) {
				stack |= 1
			}
		}
	}
	return stack&1 != 0
}

// holds reports whether a primitive is true of v.
func (o *op) holds(v *View) bool {
	switch o.code {
	case opNet:
		return v.Version != 0 && o.side.of(o.within(&v.Src), o.within(&v.Dst))
	case opPorts:
		return v.Ports && o.side.of(o.between(v.SrcPort), o.between(v.DstPort))
	case opProtocol:
		return v.Version != 0 && uint32(v.Protocol) == o.low
	case opVersion:
		return uint32(v.Version) == o.low
	case opARP:
		return v.ARP
	case opVLAN:
		return v.Tagged && uint32(v.VLAN) == o.low
	case opAnyVLAN:
		return v.Tagged
	case opShorter:
		return uint64(v.Length) <= uint64(o.high)
	case opLonger:
		return uint64(v.Length) >= uint64(o.low)
	case opSent:
		return v.Sent
	case opReceived:
		return !v.Sent
	}
	return false
}

func (o *op) within(ip *[16]byte) bool { return o.prefix.Contains(netip.AddrFrom16(*ip)) }

func (o *op) between(port uint16) bool { return uint32(port) >= o.low && uint32(port) <= o.high }

// of returns what is asked of the truths for source and destination.
func (s side) of(src, dst bool) bool {
	switch s {
	case source:
		return src
	case destination:
		return dst
	case both:
		return src && dst
	}
	return src || dst
}
