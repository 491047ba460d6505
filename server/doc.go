// Package server is the supervisor: the long-lived process that owns the
// configuration, the sockets, the files and the shared memory, and that starts
// and ends generations of workers. It serves no traffic.
//
// Invariant: everything in a Supervisor is changed by one goroutine, its loop.
// Whatever takes time (preparing a generation, waiting for lanes, for processes,
// for timers) happens elsewhere and posts its outcome to the loop.
//
//	signals, control API --> loop --> reload.Step --> effects --> directory, workers
//	                          ^                                        |
//	                          +------------- watchers <----------------+
//
// The state machine in package reload decides; this package carries out.
package server
