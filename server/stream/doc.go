// Package stream serves the connections of stream transports, one goroutine
// each: DNS messages with their two-octet length (RFC 1035 4.2.2, RFC 7766) and
// lines.
//
// Invariant: a message that was read completely is answered before the
// connection is closed, and a close never resets the connection under an answer
// that the client has not read: we send FIN and wait, bounded, for the client's.
//
//	accepted --> serving --(idle, client's FIN, drain, limit)--> lingering --> closed
//
// A draining Set shortens the idle time of every connection to DrainIdle and
// leaves busy ones alone. DNS answers over TCP tell clients that understand it
// to go (edns-tcp-keepalive with time-out 0, RFC 7828 3.4).
package stream
