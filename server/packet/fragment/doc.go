// Package fragment puts IP fragments together (RFC 815, RFC 5722, RFC 8200 4.5).
//
// Invariant: a datagram is given out once, and only when every byte of it came in
// exactly one fragment. Memory is taken once, at New, and never exceeds what was
// configured: in all, and for one source.
//
//	held = merged + dropped(reason) + pending
//
// holds exactly: every fragment that was taken in left in a datagram, was given
// up for a counted reason, or is still here.
//
// A fragment that overlaps another condemns its datagram: what was held is
// dropped, and what still comes until the time-out. An exact duplicate (same
// range, same bytes) is dropped by itself. Where memory is full the oldest
// datagram gives way, of the same source first: a flood of first fragments cannot
// keep later datagrams out for the length of a time-out.
package fragment
