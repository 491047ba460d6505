// Package trace copies datagrams that a running server receives and sends to
// whoever watches.
//
// Invariant: a lane never waits for a trace. While there is none it pays for one
// pointer that it loads and finds nil; while there is one it copies what the filter
// lets through into a ring of shared memory, without a lock, an allocation or a
// system call, and if that is full it drops the copy and counts it. What is traced
// is served as ever.
//
//	lane: Tap.Received, Sent, Frame --> ring in a region --> Source.Next: whoever watches
//
// A region belongs to one process and one trace; its rings are those of package
// udpflow/ring, one for each lane, and behind them there are two counts for each
// lane. The watcher looks now and then: nobody is woken for a trace.
//
// A lane on kernel sockets has payloads and addresses, a lane on DPDK whole frames.
// A filter (see Parse) is about what both have.
package trace
