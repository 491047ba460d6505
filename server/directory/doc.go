// Package directory is the shared memory that says who reads the wire: the
// owner word, the generation slots, and per worker and lane the words by which
// the supervisor asks and they answer.
//
// Invariant: every word that anything depends on has one writer, except the owner
// word, which changes only by compare-and-swap from exactly the value the writer saw. So
// of a flip, an unpark and a lapse of the same park, one wins. (SetOwner stores it, where
// nobody hands over to anybody. What only hastens or measures, as Signs and ParkedAt do,
// any lane writes.)
//
//	           supervisor: Park            supervisor: Flip
//	(E, RUN) ---------------> (E, PARK, d) -------------> (E', RUN)
//	    ^                          |
//	    +--------------------------+ supervisor: Unpark, or any parked
//	                                 lane once d has passed: Lapse
//
// Types split by role: the supervisor uses Directory; a worker gets a
// LaneView for each of its lanes and a WorkerView.
package directory
