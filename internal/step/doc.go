// Package step marks each access to memory that another process may access at
// the same time, so that a test can run the real code access by access: in every
// order (internal/explore), or with a process killed between any two.
//
// Invariant: built without the tag explore, every mark is an empty inlined
// function and costs nothing.
package step
