package ring

import "unsafe"

// The sizes that the layout number stands for.
var (
	_ [64]byte  = [unsafe.Sizeof(top{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(wake{})]byte{}
	_ [128]byte = [unsafe.Sizeof(control{})]byte{}
)
