// Package table is the publish table: which worker of a generation serves which
// flow, in shared memory, so that the process that reads the wire can ask.
//
// Invariant: an entry that is alive is changed by nobody but a refresh, an
// adoption or its owner's removal, save one that has seen a single packet and is
// 2 ms old, which a new flow may evict. So of two lanes that want one slot, one
// gets it and the other looks again.
//
// A slot is two words, four slots a cache line:
//
//	word 0  fingerprint   keyed hash of the flow (package flow); 0: never used
//	word 1  last_ms:32 | worker:16 | packets:8 | flags:8 (CLAIM, FREE)
//
// Word 1 decides, and is always loaded before word 0. It changes by
// compare-and-swap only; word 0 is stored only under CLAIM:
//
//	never used --+                       +-- refresh --+
//	FREE, aged --+-- CLAIM -- word 0 -- alive <--------+
//	one packet --+     |                 |  ^
//	                   |          remove,|  | revive: same word 0,
//	     60 s: the     |           sweep |  | FREE or aged
//	     writer died   v                 v  |
//	                  claimable         FREE
//
// A flow lies within 16 slots from its home (hash modulo slots). A slot that was
// used is never "never used" again, so a search may stop at one that is.
//
// Two lanes that see the first packet of one flow at the same instant may both
// record it. The entry nearer home counts for everybody from then on, and the
// other ages.
//
// Entries age by a per-table idle time on the clock of package mono, whose
// readings in two processes differ: ages are signed, see entry.
//
// Recording is always on, and only lanes that read the wire record, refresh and
// adopt. What is published to other generations is decided by one header word a
// worker, which the supervisor alone writes: see State.
package table
