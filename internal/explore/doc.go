// Package explore runs concurrent code in every order of its accesses to shared
// memory, and with any of its threads killed before any of its writes.
//
// Invariant: for each execution that sequentially consistent memory allows there
// is one that is run and that differs from it only in the order of accesses that
// do not conflict. So a property of the final state, or of what a thread saw,
// that holds in all executions run holds in all.
//
// The threads are coroutines over the real code. They stop at each access marked
// by package step (in a build with the tag explore), or by a call of Access in
// the test itself, and the explorer chooses who goes on. It chooses by dynamic
// partial-order reduction with source sets and sleep sets (Abdulla et al., POPL
// 2014): another order of two accesses is tried only where they conflict.
//
// What it cannot find: errors that need memory weaker than sequentially
// consistent. Go's atomics are sequentially consistent; that plain accesses are
// ordered by them is for the race detector to say.
package explore
