package wire

import (
	"encoding/binary"
	"math/bits"
)

// Name is an absolute name in lower-cased wire form, with the place and the
// hash of each of its suffixes. Label 0 is the leftmost; suffix i is the name
// that starts with label i, and suffix Labels() is the root.
//
// It holds no pointer and is meant to be reused: a Set overwrites only what it
// needs.
type Name struct {
	// buf holds the name and, behind it, at least 8 octets of anything: Hash
	// and lower-casing work on whole words.
	buf    [MaxName + 9]byte
	size   uint8 // octets in buf, root label included; 0: unset
	labels uint8
	off    [MaxLabels + 1]uint8
	hash   [MaxLabels + 1]uint64 // Valid for 0 .. labels
}

// Len returns the octets of the name, root label included.
func (n *Name) Len() int { return int(n.size) }

// Labels returns the number of labels, the root's not counted.
func (n *Name) Labels() int { return int(n.labels) }

// Bytes returns the name in wire form. The slice is the Name's own.
func (n *Name) Bytes() []byte { return n.buf[:n.size] }

// Offset returns where suffix i starts, in octets from the start of the name.
func (n *Name) Offset(i int) int { return int(n.off[i&MaxLabels]) }

// Suffix returns suffix i in wire form. The slice is the Name's own.
func (n *Name) Suffix(i int) []byte { return n.buf[n.off[i&MaxLabels]:n.size] }

// Hash returns the hash of suffix i. It is the same in every process and
// depends on nothing but the lower-cased name.
func (n *Name) Hash(i int) uint64 { return n.hash[i&MaxLabels] }

// Set makes n the lower-cased copy of the uncompressed wire name at the start
// of msg and returns the octets it takes there, or 0 if there is none: cut
// short, too long (RFC 1035 3.1), or compressed.
func (n *Name) Set(msg []byte) int {
	size, labels := 0, 0
	for {
		if size >= len(msg) || size >= MaxName {
			return 0
		}
		c := msg[size]
		if c == 0 {
			break
		}
		if c > MaxLabel {
			return 0
		}
		n.off[labels&MaxLabels] = uint8(size)
		labels++
		size += int(c) + 1
	}
	n.off[labels&MaxLabels] = uint8(size)
	size++
	n.size, n.labels = uint8(size), uint8(labels)

	// A length octet is at most 63, below 'A': whole words can be lower-cased
	// without looking at labels. The last word overlaps the one before.
	if size < 8 {
		for i := range size {
			n.buf[i] = Lower(msg[i])
		}
	} else {
		for i := 0; i < size-8; i += 8 {
			binary.LittleEndian.PutUint64(n.buf[i:], lower8(binary.LittleEndian.Uint64(msg[i:])))
		}
		binary.LittleEndian.PutUint64(n.buf[size-8:], lower8(binary.LittleEndian.Uint64(msg[size-8:])))
	}
	n.rehash()
	return size
}

// SetLower is Set for a name that is known to be well formed and lower case,
// as those in a zone image are. It panics where the name is not well formed.
func (n *Name) SetLower(name []byte) {
	if n.Set(name) != len(name) {
		panic("wire: SetLower of a malformed name")
	}
}

const (
	hashRoot uint64 = 0x9e3779b97f4a7c15
	hashMul  uint64 = 0xa0761d6478bd642f
)

// rehash computes the suffix hashes, from the root to the left, so that each
// costs one multiplication per eight octets of its first label.
func (n *Name) rehash() {
	h := hashRoot
	l := int(n.labels)
	n.hash[l&MaxLabels] = h
	for l--; l >= 0; l-- {
		at := int(n.off[l&MaxLabels])
		end := int(n.off[(l+1)&MaxLabels])
		for ; at+8 < end; at += 8 {
			h = fold(h^binary.LittleEndian.Uint64(n.buf[at:]), hashMul)
		}
		// 1 to 8 octets are left; what lies behind them is shifted out.
		tail := binary.LittleEndian.Uint64(n.buf[at:]) << ((64 - 8*uint(end-at)) & 63)
		h = fold(h^tail, hashMul)
		n.hash[l&MaxLabels] = h
	}
}

// fold mixes the two halves of the 128-bit product.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo ^ a
}

// lower8 lower-cases the ASCII letters among eight octets.
func lower8(w uint64) uint64 {
	const ones = 0x0101010101010101
	low := w &^ (0x80 * ones)                       // without the top bits
	atLeastA := low + (0x80-'A')*ones               // top bit: >= 'A'
	aboveZ := low + (0x80-'Z'-1)*ones               // top bit: > 'Z'
	is := (atLeastA &^ aboveZ) &^ w & (0x80 * ones) // top bit: 'A'..'Z' and not above 127
	return w | is>>2                                // 0x80>>2 is the 0x20 of lower case
}

// Lower returns c in lower case if it is an ASCII letter (RFC 4343).
func Lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// NameLen returns the octets of the uncompressed wire name at the start of b,
// or 0 if there is none.
func NameLen(b []byte) int {
	size := 0
	for size < len(b) && size < MaxName {
		switch c := b[size]; {
		case c == 0:
			return size + 1
		case c > MaxLabel:
			return 0
		default:
			size += int(c) + 1
		}
	}
	return 0
}

// SkipName returns the offset behind the possibly compressed name at off in
// msg, or 0 if there is none. Compression pointers are not followed, but one
// that does not point backwards is refused.
func SkipName(msg []byte, off int) int {
	start := off
	for off < len(msg) {
		switch c := msg[off]; {
		case c == 0:
			if off-start >= MaxName {
				return 0
			}
			return off + 1
		case c >= 0xc0:
			if off+2 > len(msg) || int(binary.BigEndian.Uint16(msg[off:])&MaxPointer) >= start {
				return 0
			}
			return off + 2
		case c > MaxLabel || off-start >= MaxName:
			return 0
		default:
			off += int(c) + 1
		}
	}
	return 0
}
