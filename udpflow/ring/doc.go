// Package ring carries datagrams from the lane that read them to the worker that
// serves them, through shared memory and without ever blocking.
//
// Invariant: a ring has one producer and one consumer at a time. What the
// producer has published, and nothing else, is read, in order; what the consumer
// has not released is not overwritten, and is read again by whoever consumes
// next if the consumer dies.
//
// A region holds a matrix of rings, one for each lane that produces and each
// worker that consumes, and one word for each consumer that says it sleeps:
//
//	lane 0..L-1              worker 0..W-1
//	Producer.Push ...  --->  Consumer.Tail, Next ...
//	Producer.Publish         Consumer.Release
//	Producer.NeedsWake <---  Inbox.PrepareSleep
//
// A ring is bytes with free-running 64-bit indices: the producer stores the tail,
// the consumer the head, and neither is ever reset. A new producer goes on at the
// tail, a new consumer at the head. A record lies in one piece; where it would
// cross the end of the bytes, padding fills them up.
//
// The other side is untrusted: a length, an index or a mark that cannot be is
// damage, which the consumer answers by skipping to the tail and counting.
//
// A flow's packets stay in order over a hand-over, in which the lanes of another
// generation begin to produce, if the consumer reads the tails newest epoch first
// and then consumes oldest first, up to those tails: see Drainer.
package ring
