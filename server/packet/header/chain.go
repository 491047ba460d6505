package header

import "encoding/binary"

// Fault is what is wrong with a chain of IPv6 headers, as the ICMPv6 parameter
// problem that answers it says it (RFC 4443 3.4).
type Fault uint8

// The faults.
const (
	Intact      Fault = iota
	Cut               // a header runs past the end: nothing to answer
	Silent            // an option that asks to be dropped without an answer
	Erroneous         // code 0: an erroneous field
	UnknownNext       // code 1: an unrecognised next header
	UnknownOpt        // code 2: an unrecognised option
)

// Chain is where the extension headers of an IPv6 packet lead.
type Chain struct {
	Proto    uint8 // the upper-layer protocol, or that of the fragmented part
	At       int   // where its header starts, counted from the IPv6 header
	Fragment int   // where the fragment header starts, 0 without one
	Fault    Fault
	Pointer  int // of the fault; Intact: of the field that named Proto
}

// maxHeaders is the most extension headers of a packet (RFC 8504 5.3 lets a node
// limit them).
const maxHeaders = 8

// Walk follows the extension headers of p (RFC 8200 4.1 to 4.7), where b is the
// packet and its first header is proto at at: after the IPv6 header, or after a
// fragment header. It stops at a fragment header, and
// where anything but an extension header comes.
func Walk(b []byte, proto uint8, at int) Chain {
	nextAt := 6 // the field that named proto
	if at != IPv6Size {
		nextAt = at - FragmentSize
	}
	for n := range maxHeaders + 1 {
		switch proto {
		case HopByHop:
			if at != IPv6Size {
				return Chain{proto, at, 0, UnknownNext, nextAt} // only directly after the IPv6 header (4.1)
			}
		case Routing, Destination:
		case FragmentProto:
			if len(b)-at < FragmentSize {
				return Chain{proto, at, 0, Cut, 0}
			}
			return Chain{b[at], at + FragmentSize, at, Intact, at}
		default:
			return Chain{proto, at, 0, Intact, nextAt}
		}
		if n == maxHeaders {
			break
		}
		if len(b)-at < 8 {
			return Chain{proto, at, 0, Cut, 0}
		}
		size := int(b[at+1])*8 + 8
		if size > len(b)-at {
			return Chain{proto, at, 0, Cut, 0}
		}
		if proto == Routing {
			// We forward for nobody: any route that is not at its end is refused
			// (RFC 8200 4.4), type 0 among them (RFC 5095).
			if b[at+3] != 0 {
				return Chain{proto, at, 0, Erroneous, at + 2}
			}
		} else if fault, pointer := options(b[:at+size], at+2); fault != Intact {
			return Chain{proto, at, 0, fault, pointer}
		}
		proto, nextAt, at = b[at], at, at+size
	}
	return Chain{proto, at, 0, Silent, 0}
}

// options reads the options from at to the end of b (RFC 8200 4.2).
func options(b []byte, at int) (Fault, int) {
	const pad1, padN, routerAlert = 0, 1, 5
	for at < len(b) {
		t := b[at]
		if t == pad1 {
			at++
			continue
		}
		if len(b)-at < 2 || int(b[at+1]) > len(b)-at-2 {
			return Cut, 0
		}
		if t != padN && t != routerAlert {
			switch t >> 6 {
			case 1:
				return Silent, 0
			case 2, 3: // they differ for multicast destinations only
				return UnknownOpt, at
			}
		}
		at += 2 + int(b[at+1])
	}
	return Intact, 0
}

// ICMPSize is the size of the header of ICMP and ICMPv6.
const ICMPSize = 8

// Types of ICMP (RFC 792).
const (
	EchoReply    = 0
	Unreachable  = 3
	EchoRequest  = 8
	TimeExceeded = 11
	ParamProblem = 12
)

// Types of ICMPv6 (RFC 4443, RFC 4861).
const (
	Unreachable6  = 1
	PacketTooBig6 = 2
	TimeExceeded6 = 3
	ParamProblem6 = 4
	EchoRequest6  = 128
	EchoReply6    = 129
	RouterSolicit = 133
	RouterAdvert  = 134
	NeighSolicit  = 135
	NeighAdvert   = 136
	Redirect6     = 137
)

// Codes.
const (
	CodePort        = 3 // ICMP: port unreachable
	CodeFragNeeded  = 4 // ICMP: fragmentation needed and DF set
	CodePort6       = 4 // ICMPv6: port unreachable
	CodeErroneous6  = 0
	CodeUnknownNext = 1
	CodeUnknownOpt  = 2
	CodeIncomplete  = 3
)

// ICMPMessage is a message of ICMP or ICMPv6, at least ICMPSize bytes.
type ICMPMessage []byte

// Type returns the type.
func (m ICMPMessage) Type() uint8 { return m[0] }

// Code returns the code.
func (m ICMPMessage) Code() uint8 { return m[1] }

// Word returns the second word: MTU, pointer, or what the type makes of it.
func (m ICMPMessage) Word() uint32 { return binary.BigEndian.Uint32(m[4:]) }

// PutICMP writes a message's header before the data that b already holds after it
// and sets the checksum over all of b. sum is that of the pseudo header, 0 for
// IPv4's ICMP.
func PutICMP(b []byte, typ, code uint8, word uint32, sum Sum) {
	b[0], b[1], b[2], b[3] = typ, code, 0, 0
	binary.BigEndian.PutUint32(b[4:], word)
	binary.BigEndian.PutUint16(b[2:], sum.Add(b).Checksum())
}

// Neighbour discovery (RFC 4861).
const (
	NDSize      = 24 // a solicitation or advertisement without options
	NDLinkSize  = 8  // a link-layer address option
	SourceLink  = 1  // option: source link-layer address
	TargetLink  = 2  // option: target link-layer address
	FlagRouter  = 0x80000000
	FlagAnswer  = 0x40000000 // solicited
	FlagReplace = 0x20000000 // override
)

// NDOption returns the value of the first option typ among opts, without type and
// length; nil where there is none. ok is false where an option has length zero or
// runs past the end: the message must be dropped (RFC 4861 4.6).
func NDOption(opts []byte, typ uint8) (value []byte, ok bool) {
	for len(opts) > 0 {
		if len(opts) < 2 || opts[1] == 0 || int(opts[1])*8 > len(opts) {
			return nil, false
		}
		n := int(opts[1]) * 8
		if opts[0] == typ && value == nil {
			value = opts[2:n]
		}
		opts = opts[n:]
	}
	return value, true
}

// PutND writes a solicitation or advertisement of target into b. Where option is
// not 0, b has room for that link-layer address option. sum is that of the pseudo
// header.
func PutND(b []byte, typ uint8, flags uint32, target *[16]byte, option uint8, mac MAC, sum Sum) {
	copy(b[8:24], target[:])
	if option != 0 {
		b[NDSize], b[NDSize+1] = option, 1
		copy(b[NDSize+2:], mac[:])
	}
	PutICMP(b, typ, 0, flags, sum)
}

// SolicitedNode returns the multicast address at which ip is asked for
// (RFC 4291 2.7.1).
func SolicitedNode(ip *[16]byte) [16]byte {
	return [16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: ip[13], 14: ip[14], 15: ip[15]}
}
