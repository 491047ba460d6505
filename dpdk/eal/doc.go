// Package eal is the binding to libdpdk 22.11, and the only place with cgo. Without
// the build tag dpdk it is empty.
//
// Invariant: at any instant at which no process is inside a section, the mark in
// every mbuf says where it is: in the pool, in one ring, in the hands of one live
// process, or with a device. Each function that moves mbufs marks them, in a section
// of shared memory's one word of that process, and the pool itself marks what the
// drivers take and give back. So Audit, which finds a moment without sections, knows
// where each mbuf is, under load too, and what a killed process has left is exactly
// what is nowhere: it goes back to the pool, and nothing that lives is touched.
//
// What EAL's shared memory takes and what it does not was measured with SIGKILL:
//
//   - pools are lock-free stacks without caches: rings and locked stacks deadlock
//     those who live, caches hand mbufs out twice;
//   - rings have one producer process and one consumer process, for as long as the
//     primary lives; the dead end of a ring is repaired before it is used again;
//   - an lcore id belongs to one live process at a time (--lcores N@cpu).
//
// All that moves mbufs is called from one thread of a process, the one that called
// Init: lock it to its goroutine. A burst is one call into C, on an array that C
// allocated; Go reads and writes the packets in place.
//
// EAL maps its memory at the same addresses in every process. Go's heap, whose base is
// random, can be in the way: build with GOEXPERIMENT=norandomizedheapbase64, as make
// build-dpdk does.
//
// The primary makes the pool and the rings between all processes that there can be:
// four slots of as many workers as the layout has. Ring(Frames, a, b) carries frames
// that a received for b; Ring(Sends, a, b) frames that b is to send for a. They are
// two, so that what a draining process sends is never taken for what it received.
package eal
