package header

import "encoding/binary"

// Sizes in bytes, without options and extension headers.
const (
	IPv4Size = 20
	IPv6Size = 40
	UDPSize  = 8
)

// The protocols that are read (and what a chain of IPv6 headers may hold).
const (
	HopByHop      = 0
	ICMP          = 1
	TCP           = 6
	UDP           = 17
	Routing       = 43
	FragmentProto = 44
	ICMPv6        = 58
	NoNext        = 59
	Destination   = 60
)

// Flags and offset of IPv4.
const (
	dontFragment  = 0x4000
	moreFragments = 0x2000
	offsetMask    = 0x1fff
)

// IPv4 is an IPv4 packet (RFC 791) with its header's options, no longer than its
// total length says.
type IPv4 []byte

// ParseIPv4 returns the packet in b without what follows it (a short frame is
// padded). ok is false where version or lengths do not agree.
func ParseIPv4(b []byte) (h IPv4, ok bool) {
	if len(b) < IPv4Size || b[0]>>4 != 4 {
		return nil, false
	}
	ihl, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if ihl < IPv4Size || total < ihl || total > len(b) {
		return nil, false
	}
	return IPv4(b[:total]), true
}

// HeaderLen returns the header's length with options.
func (h IPv4) HeaderLen() int { return int(h[0]&0xf) * 4 }

// ECN returns the ECN bits (RFC 3168).
func (h IPv4) ECN() uint8 { return h[1] & 3 }

// ID returns the identification.
func (h IPv4) ID() uint16 { return binary.BigEndian.Uint16(h[4:]) }

// Fragment reports whether h is a fragment, its offset in bytes, and whether more
// follow.
func (h IPv4) Fragment() (is bool, offset int, more bool) {
	w := binary.BigEndian.Uint16(h[6:])
	return w&(moreFragments|offsetMask) != 0, int(w&offsetMask) * 8, w&moreFragments != 0
}

// Protocol returns the protocol.
func (h IPv4) Protocol() uint8 { return h[9] }

// Addrs returns source and destination as they follow each other.
func (h IPv4) Addrs() []byte { return h[12:20] }

// Src returns the source, IPv4-mapped.
func (h IPv4) Src() [16]byte { return Mapped(h[12:16]) }

// Dst returns the destination, IPv4-mapped.
func (h IPv4) Dst() [16]byte { return Mapped(h[16:20]) }

// Payload returns what follows the header.
func (h IPv4) Payload() []byte { return h[h.HeaderLen():] }

// ChecksumRight reports whether the header's checksum is right.
func (h IPv4) ChecksumRight() bool { return Sum(0).Add(h[:h.HeaderLen()]).Right() }

// OptionsAllowed walks the options (RFC 791 3.1). It is false where one is cut
// short or where a source route asks us to forward the packet (RFC 7126 4.3, 4.4).
func (h IPv4) OptionsAllowed() bool {
	const end, nop, looseRoute, strictRoute = 0, 1, 131, 137
	o := h[IPv4Size:h.HeaderLen()]
	for len(o) > 0 {
		switch o[0] {
		case end:
			return true
		case nop:
			o = o[1:]
			continue
		case looseRoute, strictRoute:
			return false
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return false
		}
		o = o[o[1]:]
	}
	return true
}

// IPFields is what a written IP header says.
type IPFields struct {
	Src, Dst *[16]byte // IPv4-mapped for IPv4
	Proto    uint8
	HopLimit uint8
	ECN      uint8
	Length   int // bytes after the header

	// IPv4 only.
	ID     uint16
	DF     bool // do not fragment
	Offset int  // of a fragment, bytes, a multiple of 8
	More   bool // more fragments follow
	NoSum  bool // leave the header's checksum to the device
}

// PutIPv4 writes a header of IPv4Size bytes. It sums the words before it stores
// them: reading back what was just stored in smaller pieces stalls the processor.
func PutIPv4(b []byte, f *IPFields) {
	_ = b[IPv4Size-1]
	w := uint64(f.Offset / 8)
	if f.DF {
		w |= dontFragment
	}
	if f.More {
		w |= moreFragments
	}
	w |= 0x45<<56 | uint64(f.ECN&3)<<48 | uint64(uint16(IPv4Size+f.Length))<<32 | uint64(f.ID)<<16
	src, dst := uint64(binary.BigEndian.Uint32(f.Src[12:])), uint64(binary.BigEndian.Uint32(f.Dst[12:]))
	v := uint64(f.HopLimit)<<56 | uint64(f.Proto)<<48 | src
	if !f.NoSum {
		sum := w>>32 + w&0xffffffff + v>>32 + src + dst
		sum = sum>>32 + sum&0xffffffff
		sum = sum>>16 + sum&0xffff
		sum = sum>>16 + sum&0xffff
		sum = sum>>16 + sum&0xffff
		v |= uint64(^uint16(sum)) << 32
	}
	binary.BigEndian.PutUint64(b, w)
	binary.BigEndian.PutUint64(b[8:], v)
	binary.BigEndian.PutUint32(b[16:], uint32(dst))
}

// IPv6 is an IPv6 packet (RFC 8200), no longer than its payload length says.
type IPv6 []byte

// ParseIPv6 returns the packet in b without what follows it. ok is false where
// version or lengths do not agree (a jumbogram, RFC 2675, has none).
func ParseIPv6(b []byte) (h IPv6, ok bool) {
	if len(b) < IPv6Size || b[0]>>4 != 6 {
		return nil, false
	}
	n := IPv6Size + int(binary.BigEndian.Uint16(b[4:]))
	if n > len(b) {
		return nil, false
	}
	return IPv6(b[:n]), true
}

// ECN returns the ECN bits (RFC 3168).
func (h IPv6) ECN() uint8 { return h[1] >> 4 & 3 }

// Next returns the first next header.
func (h IPv6) Next() uint8 { return h[6] }

// HopLimit returns the hop limit.
func (h IPv6) HopLimit() uint8 { return h[7] }

// Addrs returns source and destination as they follow each other.
func (h IPv6) Addrs() []byte { return h[8:40] }

// Src returns the source.
func (h IPv6) Src() [16]byte { return [16]byte(h[8:24]) }

// Dst returns the destination.
func (h IPv6) Dst() [16]byte { return [16]byte(h[24:40]) }

// PutIPv6 writes a header of IPv6Size bytes.
func PutIPv6(b []byte, f *IPFields) {
	_ = b[IPv6Size-1]
	binary.BigEndian.PutUint32(b, 6<<28|uint32(f.ECN&3)<<20)
	binary.BigEndian.PutUint16(b[4:], uint16(f.Length))
	b[6], b[7] = f.Proto, f.HopLimit
	copy(b[8:24], f.Src[:])
	copy(b[24:40], f.Dst[:])
}

// FragmentSize is the size of IPv6's fragment header.
const FragmentSize = 8

// FragmentHeader is IPv6's fragment header (RFC 8200 4.5), FragmentSize bytes.
type FragmentHeader []byte

// Next returns the next header.
func (f FragmentHeader) Next() uint8 { return f[0] }

// Offset returns the offset in bytes.
func (f FragmentHeader) Offset() int { return int(binary.BigEndian.Uint16(f[2:]) &^ 7) }

// More reports whether more fragments follow.
func (f FragmentHeader) More() bool { return f[3]&1 != 0 }

// ID returns the identification.
func (f FragmentHeader) ID() uint32 { return binary.BigEndian.Uint32(f[4:]) }

// PutFragment writes a fragment header of FragmentSize bytes. offset is in bytes,
// a multiple of 8.
func PutFragment(b []byte, next uint8, offset int, more bool, id uint32) {
	w := uint16(offset)
	if more {
		w |= 1
	}
	b[0], b[1] = next, 0
	binary.BigEndian.PutUint16(b[2:], w)
	binary.BigEndian.PutUint32(b[4:], id)
}

// PutUDP writes a UDP header (RFC 768) before the payload that b already holds
// after it; length is that of both. sum is that of the pseudo header. offload
// leaves the checksum to the device, which wants the pseudo header's sum in it.
func PutUDP(b []byte, src, dst uint16, length int, sum Sum, offload bool) {
	w := uint64(src)<<48 | uint64(dst)<<32 | uint64(uint16(length))<<16
	if offload {
		binary.BigEndian.PutUint64(b, w|uint64(sum.Folded()))
		return
	}
	c := sum.add64(w).Add(b[UDPSize:length]).Checksum()
	if c == 0 {
		c = 0xffff // 0 means that there is none
	}
	binary.BigEndian.PutUint64(b, w|uint64(c))
}
