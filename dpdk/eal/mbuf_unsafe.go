//go:build dpdk

package eal

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"
)

// MaxBurst is how many mbufs a Burst holds at most.
const MaxBurst = C.DN_BURST

// Where libdpdk 22.11 has the fields of struct rte_mbuf; shim.c does not compile
// where that is not so.
const (
	atBuffer = 0
	atOffset = 16
	atSegs   = 20
	atPort   = 22
	atFlags  = 24
	atLength = 36
	atData   = 40
	atRoom   = 54
	atNext   = 64
)

// Burst is an array of mbufs that C allocated, so that a call passes one pointer.
// Its mbufs are those of the process, N of them, until a call gives them away. A
// Burst is for one goroutine, the one locked to the thread of Init.
type Burst struct {
	N int // mbufs in it, 0 .. MaxBurst

	mbufs *[MaxBurst]*C.struct_rte_mbuf
}

// NewBurst returns an empty Burst.
func NewBurst() *Burst {
	p := C.calloc(MaxBurst, C.size_t(unsafe.Sizeof(uintptr(0))))
	b := &Burst{mbufs: (*[MaxBurst]*C.struct_rte_mbuf)(p)}
	runtime.AddCleanup(b, func(p unsafe.Pointer) { C.free(p) }, p)
	return b
}

// first is the array as C takes it, from mbuf i on.
func (b *Burst) first(i int) **C.struct_rte_mbuf { return &b.mbufs[i] }

// drop forgets the first n mbufs, which somebody else has now, and moves the others
// to the front.
func (b *Burst) drop(n int) {
	copy(b.mbufs[:], b.mbufs[n:b.N])
	b.N -= n
}

// Append moves all mbufs of from to the end of b, as many as fit, and returns how
// many that were.
func (b *Burst) Append(from *Burst) int { return b.AppendFirst(from, from.N) }

// AppendFirst is Append for the first n mbufs of from.
func (b *Burst) AppendFirst(from *Burst, n int) int {
	n = copy(b.mbufs[b.N:], from.mbufs[:n])
	b.N += n
	from.drop(n)
	return n
}

// Data returns the octets of mbuf i that are in its first segment, in place: all of
// a packet where Segments is 1. The slice is good until the mbuf is given away.
func (b *Burst) Data(i int) []byte {
	m := unsafe.Pointer(b.mbufs[i])
	return unsafe.Slice((*byte)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Add(m, atBuffer)), *u16(m, atOffset))), *u16(m, atData))
}

// Buffer returns the room of mbuf i behind its headroom, Data at its beginning.
func (b *Burst) Buffer(i int) []byte {
	m := unsafe.Pointer(b.mbufs[i])
	off := *u16(m, atOffset)
	return unsafe.Slice((*byte)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Add(m, atBuffer)), off)), *u16(m, atRoom)-off)
}

// Resize makes n octets of Buffer the data of mbuf i, which has one segment.
//
// Preconditions: 0 <= n <= len(Buffer(i)).
func (b *Burst) Resize(i, n int) {
	if n < 0 || n > len(b.Buffer(i)) {
		panic("eal: resizing an mbuf beyond its room")
	}
	m := unsafe.Pointer(b.mbufs[i])
	*u16(m, atData) = uint16(n)
	*(*uint32)(unsafe.Add(m, atLength)) = uint32(n)
}

// Port returns the port that mbuf i was received by, or that SetPort has set.
func (b *Burst) Port(i int) uint16 { return *u16(unsafe.Pointer(b.mbufs[i]), atPort) }

// SetPort says which port mbuf i is to be sent by: for who relays it.
func (b *Burst) SetPort(i int, port uint16) { *u16(unsafe.Pointer(b.mbufs[i]), atPort) = port }

// headroom is RTE_PKTMBUF_HEADROOM, which every mbuf of the pool has room for.
const headroom = C.DN_HEADROOM

// Recycle moves what is in b to the end of to, as many as fit and as have one
// segment, as they are when they come out of the pool, and frees the rest.
func (b *Burst) Recycle(to *Burst) {
	kept := 0
	for i := range b.N {
		m := unsafe.Pointer(b.mbufs[i])
		if to.N == MaxBurst || *u16(m, atSegs) != 1 {
			b.mbufs[kept] = b.mbufs[i]
			kept++
			continue
		}
		*u16(m, atOffset), *u16(m, atData) = headroom, 0
		*(*uint32)(unsafe.Add(m, atLength)) = 0
		*(*uint64)(unsafe.Add(m, atFlags)) = 0
		to.mbufs[to.N] = b.mbufs[i]
		to.N++
	}
	b.N = kept
	b.Free()
}

// Take moves the last mbuf of from to the end of b. Both have room for it and have it.
func (b *Burst) Take(from *Burst) {
	from.N--
	b.mbufs[b.N] = from.mbufs[from.N]
	b.N++
}

// Segments returns how many mbufs make up packet i, and its length in all of them.
func (b *Burst) Segments(i int) (n, length int) {
	m := unsafe.Pointer(b.mbufs[i])
	return int(*u16(m, atSegs)), int(*(*uint32)(unsafe.Add(m, atLength)))
}

// Copy copies packet i, from all its segments, to p, and returns how many octets.
func (b *Burst) Copy(i int, p []byte) int {
	done := 0
	for m := unsafe.Pointer(b.mbufs[i]); m != nil && done < len(p); m = *(*unsafe.Pointer)(unsafe.Add(m, atNext)) {
		seg := unsafe.Slice((*byte)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Add(m, atBuffer)), *u16(m, atOffset))), *u16(m, atData))
		done += copy(p[done:], seg)
	}
	return done
}

func u16(m unsafe.Pointer, at uintptr) *uint16 { return (*uint16)(unsafe.Add(m, at)) }
