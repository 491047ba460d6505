package header

import (
	"encoding/binary"
	"math/bits"
)

// Sum is an unfinished Internet checksum (RFC 1071). It is kept in little-endian
// words of 64 bits: a one's complement sum does not depend on the order of bytes
// until it is folded.
type Sum uint64

// Add returns s with b added. All but the last piece that is added must have an
// even length.
func (s Sum) Add(b []byte) Sum {
	v, c := uint64(s), uint64(0)
	for len(b) >= 32 {
		v, c = bits.Add64(v, binary.LittleEndian.Uint64(b), 0)
		v, c = bits.Add64(v, binary.LittleEndian.Uint64(b[8:]), c)
		v, c = bits.Add64(v, binary.LittleEndian.Uint64(b[16:]), c)
		v, c = bits.Add64(v, binary.LittleEndian.Uint64(b[24:]), c)
		v += c
		b = b[32:]
	}
	for len(b) >= 8 {
		v, c = bits.Add64(v, binary.LittleEndian.Uint64(b), 0)
		v += c
		b = b[8:]
	}
	if len(b) == 0 {
		return Sum(v)
	}
	var last uint64
	if len(b) >= 4 {
		last = uint64(binary.LittleEndian.Uint32(b))
		b = b[4:]
		if len(b) >= 2 {
			last |= uint64(binary.LittleEndian.Uint16(b)) << 32
			if len(b) == 3 {
				last |= uint64(b[2]) << 48
			}
		} else if len(b) == 1 {
			last |= uint64(b[0]) << 32
		}
	} else if len(b) >= 2 {
		last = uint64(binary.LittleEndian.Uint16(b))
		if len(b) == 3 {
			last |= uint64(b[2]) << 16
		}
	} else {
		last = uint64(b[0])
	}
	v, c = bits.Add64(v, last, 0)
	return Sum(v + c)
}

// add64 returns s with the four big-endian words of w added.
func (s Sum) add64(w uint64) Sum {
	v, c := bits.Add64(uint64(s), bits.ReverseBytes64(w), 0)
	return Sum(v + c)
}

// Folded returns the sum as 16 bits, not complemented: what a device that
// finishes the checksum wants to find in the field.
func (s Sum) Folded() uint16 {
	v := uint64(s)
	v = v>>32 + v&0xffffffff
	v = v>>32 + v&0xffffffff
	v = v>>16 + v&0xffff
	v = v>>16 + v&0xffff
	return bits.ReverseBytes16(uint16(v))
}

// Checksum returns the field's value: the complement.
func (s Sum) Checksum() uint16 { return ^s.Folded() }

// Right reports whether s, taken over bytes that include their checksum, is that
// of intact ones.
func (s Sum) Right() bool { return s.Folded() == 0xffff }

// Pseudo returns the sum of the pseudo header (RFC 768, RFC 8200 8.1). addrs is
// the source and destination address, as they follow each other in the header;
// length is that of the upper-layer header and its data.
func Pseudo(addrs []byte, proto uint8, length int) Sum {
	return Sum(0).Add(addrs).add64(uint64(length)<<32 | uint64(proto))
}

// PseudoOf returns the same of addresses that are in no header yet. IPv4 ones are
// IPv4-mapped: the 0xffff of that form is nothing to a one's complement sum.
func PseudoOf(src, dst *[16]byte, proto uint8, length int) Sum {
	return Sum(0).
		addLE(binary.LittleEndian.Uint64(src[:])).addLE(binary.LittleEndian.Uint64(src[8:])).
		addLE(binary.LittleEndian.Uint64(dst[:])).addLE(binary.LittleEndian.Uint64(dst[8:])).
		add64(uint64(length)<<32 | uint64(proto))
}

func (s Sum) addLE(w uint64) Sum {
	v, c := bits.Add64(uint64(s), w, 0)
	return Sum(v + c)
}
