package trace

import "unsafe"

var _ [countsSize]byte = [unsafe.Sizeof(counts{})]byte{}
