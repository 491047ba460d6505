// Package shm provides the memory regions that outlive a generation.
//
// Invariant: a region never changes size while anybody maps it, and nothing in
// it is used before its header has been checked. A region is untrusted input:
// any process that had its descriptor may have written to it, so code over a
// region bounds-checks what it reads from it.
//
//	supervisor                       worker
//	Create -> Format -> fill         inherits the descriptor
//	       -> Publish                Map -> Check -> View / Uint64 / Bytes
//
// A region has one of two backings and one code path above them: a sealed
// memfd that processes share, and plain heap memory (Heap). The race detector
// neither reports races on mapped memory nor understands publication through
// it, so every test that is to run under -race uses Heap.
//
// Typed access goes through View, which refuses what does not fit or is not
// aligned; it and the byte overlays in shm_unsafe.go are the only unsafe code.
package shm
