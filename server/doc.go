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
//
// One supervisor at a time coordinates an instance. The next one adopts what it
// finds (adopt.go, inherit.go): what a supervisor that has died has left, or what
// one that lives lets go of (give.go, take.go). Serve is a process over all the
// times in which it has the instance, and those in which it stands by.
package server
