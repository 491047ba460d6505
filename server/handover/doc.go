// Package handover moves what an instance consists of from one process to
// another: descriptors, and a description of each.
//
// Invariant: a transfer is all or nothing for the receiver. It gets every
// descriptor and every octet that was sent, or an error and none of them; and the
// sender keeps its own, whatever happens to the other.
//
// A Parcel is any number of octets and descriptors over a SOCK_SEQPACKET
// connection, in as many datagrams as it takes: one carries at most ChunkFDs
// descriptors, and each is acknowledged before the next one is sent, so that
// little is in flight at any time.
//
//	sender      head(fds, octets) ->            fds ->      octets ->
//	receiver                        <- ack          <- ack        <- ack
//
// A Door is a listening socket in the control directory: of a supervisor, for
// the one that is to take over, and of each worker, for its next supervisor. A
// connection that waits at a door of somebody who lives is served in the end; a
// door that nobody holds any more refuses, and is removed.
//
// Terms are the numbers that both sides must agree on before anything changes
// hands, and Place is where they must both be.
package handover
