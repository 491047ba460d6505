package directory

import "unsafe"

// The sizes that the layout number stands for.
const (
	slotsOffset = topOffset + int(unsafe.Sizeof(top{}))
	slotSize    = int(unsafe.Sizeof(slot{}))
)

var (
	_ [320]byte                                               = [unsafe.Sizeof(top{})]byte{}
	_ [64]byte                                                = [unsafe.Sizeof(report{})]byte{}
	_ [128]byte                                               = [unsafe.Sizeof(worker{})]byte{}
	_ [128]byte                                               = [unsafe.Sizeof(lane{})]byte{}
	_ [64 + MaxSockets/8 + MaxWorkers*128 + MaxLanes*128]byte = [unsafe.Sizeof(slot{})]byte{}
)
