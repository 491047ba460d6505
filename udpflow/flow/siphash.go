package flow

import "math/bits"

// initial returns the state of SipHash (Aumasson and Bernstein, 2012) for the
// key k0, k1. The state is four values, not an array, so that the compiler
// keeps it in registers.
func initial(k0, k1 uint64) (v0, v1, v2, v3 uint64) {
	return k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573
}

// half1 and half2 are the halves of SipRound: each is small enough to be
// inlined, the whole is not.
func half1(v0, v1, v2, v3 uint64) (_, _, _, _ uint64) {
	v0 += v1
	v2 += v3
	return bits.RotateLeft64(v0, 32), bits.RotateLeft64(v1, 13) ^ v0, v2, bits.RotateLeft64(v3, 16) ^ v2
}

func half2(v0, v1, v2, v3 uint64) (_, _, _, _ uint64) {
	v2 += v1
	v0 += v3
	return v0, bits.RotateLeft64(v1, 17) ^ v2, bits.RotateLeft64(v2, 32), bits.RotateLeft64(v3, 21) ^ v0
}
