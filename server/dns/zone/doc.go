// Package zone compiles zones into images and looks names up in them.
//
// Invariant: an image never changes once it is published, holds no pointer, and
// is the same bytes in every process that maps it; so any number of workers and
// generations share one copy, and a reload with unchanged zones costs nothing.
//
//	file, $INCLUDEs -> Compile -> Compiled -> Region (sealed) -> Open -> *Zone -> Set
//
//	image:  header | slots (open addressing by name hash) | arena
//	arena:  node: name, flags, wildcard child, covering cut or DNAME, RRsets
//	        RRset: records in wire form as they go into an answer; positions of
//	        their compression pointers; nodes with additional data
//
// A large zone is compiled outside of the Go heap: what has gone into the image is
// given back while the rest of it is written, so that a compiler never needs much
// more than the larger of the two.
//
// Every owner name of the zone has a node, and so has every empty non-terminal
// (RFC 8020), so that one probe tells NODATA from NXDOMAIN. What is below a zone
// cut or a DNAME points to it. An answer is copied from the image; only where
// the question is not the node's own name (wildcards, CNAME chains) are
// compression pointers moved.
//
// An image is untrusted: Open checks its frame, every access is inside slices
// of it, and every loop over it is bounded, so a damaged image can give wrong
// answers or a run-time panic (which the answering lane catches), but reads
// nothing else and hangs nobody. Verify checks every octet of one.
package zone
