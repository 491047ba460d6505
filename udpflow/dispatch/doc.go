// Package dispatch decides, for every datagram that the rx owner reads, who
// serves it.
//
// Invariant: a datagram is served by exactly one process, or dropped and
// counted. A flow that is alive in the table of a generation that publishes it
// is served there; everything else is served by the reader and recorded first.
//
//	1 alive in my generation's table: mine -> serve, a sibling's -> its ring,
//	  a dead sibling's -> serve and adopt
//	2 for each draining generation, newest first, one that has had to give the
//	  wire back before those that are older than the reader: alive there, its
//	  worker PUBLISHING in the window that its slot names -> its ring
//	3 serve, and record
//
// Outside a window rule 2 is empty: the cost is one hash and one look at one
// cache line. Only this package records flows; what comes out of a ring is
// served without another look, so the lag of a consumer neither kills nor
// revives a flow.
package dispatch
