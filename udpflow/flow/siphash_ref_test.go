package flow

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-c-d of any message, written from the paper and apart from
// the code under test.
func sipHash(c, d int, k0, k1 uint64, msg []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[3] = bits.RotateLeft64(v[3], 16)
			v[1] ^= v[0]
			v[3] ^= v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[3] = bits.RotateLeft64(v[3], 21)
			v[1] ^= v[2]
			v[3] ^= v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append([]byte(nil), msg...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(msg)))
	for ; len(padded) > 0; padded = padded[8:] {
		m := binary.LittleEndian.Uint64(padded)
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}
