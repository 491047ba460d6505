package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

var _ [HeaderSize]byte = [unsafe.Sizeof(header{})]byte{}

// View returns the T that lies at byte offset off of r. T must hold no pointer.
// It panics where T does not fit or is misaligned: offsets come from our own
// layout constants or from values the caller has checked.
func View[T any](r *Region, off int) *T {
	var t T
	if off < 0 || off > len(r.mem)-int(unsafe.Sizeof(t)) {
		panic(fmt.Sprintf("shm: a view of %d bytes at offset %d leaves a region of %d", unsafe.Sizeof(t), off, len(r.mem)))
	}
	p := unsafe.Pointer(&r.mem[off])
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		panic(fmt.Sprintf("shm: a view at offset %d is not aligned to %d", off, unsafe.Alignof(t)))
	}
	return (*T)(p)
}

// ViewSlice returns n consecutive Ts at byte offset off of r, under the rules
// of View.
func ViewSlice[T any](r *Region, off, n int) []T {
	var t T
	if n == 0 {
		return nil
	}
	if n < 0 || off < 0 || off > len(r.mem) || n > (len(r.mem)-off)/int(unsafe.Sizeof(t)) {
		panic(fmt.Sprintf("shm: a view of %d items of %d bytes at offset %d leaves a region of %d", n, unsafe.Sizeof(t), off, len(r.mem)))
	}
	return unsafe.Slice(View[T](r, off), n)
}

// Uint64 returns the atomic word at byte offset off, a multiple of 8.
func (r *Region) Uint64(off int) *atomic.Uint64 { return View[atomic.Uint64](r, off) }

// alignedHeap returns n zeroed bytes that start on a cache line.
func alignedHeap(n int) []byte {
	const line = 64
	words := make([]uint64, (n+line+7)/8)
	base := unsafe.Pointer(&words[0])
	skip := (line - uintptr(base)%line) % line
	return unsafe.Slice((*byte)(unsafe.Add(base, skip)), n)
}
