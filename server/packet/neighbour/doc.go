// Package neighbour keeps the link addresses of neighbours (RFC 826, RFC 4861 7.3)
// and the frames that wait for one.
//
// Invariant: a frame that was taken in leaves exactly once: released with the
// address filled in, or lost and counted.
//
//	held = released + lost + waiting
//
// The states are those of RFC 4861, for IPv4 too:
//
//	          Resolve                  Advertise
//	(none) ----------> INCOMPLETE ------------------> REACHABLE
//	   |                 | 3 probes                       | 30 s
//	   | Solicited       v                                v   Resolve
//	   +-----> STALE   (none)                           STALE ------> DELAY
//	                                                      ^             | 5 s
//	                     (none) <----------- PROBE <------|-------------+
//	                             3 probes      | Advertise -> REACHABLE
//
// It makes no frames and reads no clock: probes and released frames go to the
// Effects it was given, and time is an argument.
package neighbour
