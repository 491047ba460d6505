package backend

import "unsafe"

// The sizes that the layout number stands for.
const (
	serverSize = int(unsafe.Sizeof(Server{}))
	rowSize    = int(unsafe.Sizeof(Row{}))
)

var (
	_ [64]byte             = [unsafe.Sizeof(head{})]byte{}
	_ [128]byte            = [unsafe.Sizeof(Server{})]byte{}
	_ [4 * MaxServers]byte = [unsafe.Sizeof(Row{})]byte{}
)
