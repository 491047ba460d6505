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
// leaves busy ones alone; it is for the service to tell its clients to go.
package stream
