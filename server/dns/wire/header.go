package wire

import "encoding/binary"

// HeaderSize is the octets of a message header (RFC 1035 4.1.1).
const HeaderSize = 12

// The bits of the header's second word.
const (
	flagQR     = 0x8000
	flagAA     = 0x0400
	flagTC     = 0x0200
	flagRD     = 0x0100
	flagCD     = 0x0010
	opcodeMask = 0x7800
	rcodeMask  = 0x000f
)

// Header is the first HeaderSize octets of a message, or the whole message.
type Header []byte

// ID returns the message ID.
func (h Header) ID() uint16 { return binary.BigEndian.Uint16(h) }

func (h Header) flags() uint16 { return binary.BigEndian.Uint16(h[2:]) }

// QR reports whether the message is a response.
func (h Header) QR() bool { return h.flags()&flagQR != 0 }

// Opcode returns the kind of query.
func (h Header) Opcode() Opcode { return Opcode(h.flags() & opcodeMask >> 11) }

// TC reports whether the message is cut short.
func (h Header) TC() bool { return h.flags()&flagTC != 0 }

// RD reports whether recursion is desired.
func (h Header) RD() bool { return h.flags()&flagRD != 0 }

// QDCOUNT returns the number of questions.
func (h Header) QDCOUNT() int { return int(binary.BigEndian.Uint16(h[4:])) }

// ANCOUNT returns the number of records in the answer section.
func (h Header) ANCOUNT() int { return int(binary.BigEndian.Uint16(h[6:])) }

// NSCOUNT returns the number of records in the authority section.
func (h Header) NSCOUNT() int { return int(binary.BigEndian.Uint16(h[8:])) }

// ARCOUNT returns the number of records in the additional section.
func (h Header) ARCOUNT() int { return int(binary.BigEndian.Uint16(h[10:])) }

// SetCounts stores the four section counts.
func (h Header) SetCounts(qd, an, ns, ar int) {
	_ = h[11]
	binary.BigEndian.PutUint16(h[4:], uint16(qd))
	binary.BigEndian.PutUint16(h[6:], uint16(an))
	binary.BigEndian.PutUint16(h[8:], uint16(ns))
	binary.BigEndian.PutUint16(h[10:], uint16(ar))
}

// SetResponse turns the second word of a copied request header into that of
// its response: QR set, opcode, RD and CD kept, everything else cleared (AA,
// TC, RA, Z and AD are the server's to say), and the low four bits of rcode.
func (h Header) SetResponse(rcode RCODE, aa, tc bool) {
	f := h.flags()&(opcodeMask|flagRD|flagCD) | flagQR | uint16(rcode)&rcodeMask
	if aa {
		f |= flagAA
	}
	if tc {
		f |= flagTC
	}
	binary.BigEndian.PutUint16(h[2:], f)
}

// Pointer returns the compression pointer to offset, which must not exceed
// MaxPointer (RFC 1035 4.1.4).
func Pointer(offset int) uint16 { return pointerFlags | uint16(offset) }
