// Package wire is what one worker has of the devices: the queues it reads, the way
// its frames go out, and the rings to the workers beside it.
//
// Invariant: a frame that Receive or Pull gave out lies in place in a packet buffer
// until the next call of either; everything that leaves has a buffer of its own, and
// leaves by the one way that SetWay names: a queue of the device, for the generation
// that owns the wire, or a worker of that, which relays it. So a worker that does not
// own the wire cannot touch a device, and Relay passes on what came too late to
// whoever owns it now.
//
//	rx owner   queue -> Receive -> lane -> Tx -> Flush -> queue
//	                      |                       ^
//	                     Give                   Relay
//	                      v                       |
//	draining    Frames -> Pull  -> lane -> Tx -> Flush -> Sends
//
// Buffers that were received are the ones that are sent next, so in the steady state
// a burst takes and gives none, and costs one call into C each way.
//
// Without the build tag dpdk, Attach says that it is not built in.
package wire
