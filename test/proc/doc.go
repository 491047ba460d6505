// Package proc reads from /proc what the tests and benchmarks judge processes
// by: CPU time, memory, credentials, and which of them are still there.
//
// Invariant: a process that has ended is reported as fs.ErrNotExist or left out
// of a list; it is never an account of zeros.
package proc
