// Package auth answers DNS queries from compiled zones.
//
// Invariant: every answer class (positive, NODATA, NXDOMAIN, referral, wildcard,
// CNAME, DNAME, truncated, error) costs no allocation, no lock and no system
// call, and no message of any content can make a lane panic, block or write
// outside the room it was given.
//
//	Engine   what all lanes of a process share: options, the present zone.Set
//	Lane     one per receive loop or connection: scratch memory, counters
//
//	burst -> 1 parse, hash, find zone   for all packets
//	      -> 2 find the slot, then touch the node
//	      -> 3 compare, copy the answer, patch pointers
//
// Going over the burst once per step keeps many cache misses under way at once,
// where one packet after the other would wait for each. SetZones swaps the set;
// a burst in progress finishes with the set that it began with.
package auth
