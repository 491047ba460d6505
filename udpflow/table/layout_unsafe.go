package table

import "unsafe"

// The sizes that the layout number stands for.
var (
	_ [64]byte               = [unsafe.Sizeof(top{})]byte{}
	_ [64]byte               = [unsafe.Sizeof(workerWord{})]byte{}
	_ [slotSize]byte         = [unsafe.Sizeof(slot{})]byte{}
	_ [slotsOffset % 64]byte = [0]byte{} // slots start on a cache line
)
