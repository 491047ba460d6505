// Package e2e holds the end-to-end tests: real processes, real sockets, and
// traffic whose every datagram is accounted for.
//
// Invariant: a test leaves nothing behind. When it ends, every process that came
// of it is gone, and so are its sockets and files; what is left fails the test.
//
// The tests run in a network namespace of their own, so that fixed ports are
// free and nothing leaves the machine. That takes root: without it every test
// is skipped, with the reason. They look at the server from outside: its command lines, its
// signals, its answers, and /proc.
//
//	go test ./test/e2e -run Ownership -v
package e2e
