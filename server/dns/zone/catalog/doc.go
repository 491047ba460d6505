// Package catalog says where the zones of a generation lie.
//
// Invariant: a region of zone images never changes, and a catalog, once it is
// published, neither does. What changes is which catalog a worker goes by: a new
// one takes the place of the old one as a whole.
//
//	zone region  | header | image | image | image | ...      one large zone, or many small ones
//	catalog      | header | ids of the regions | places of the zones, in their order
//
// One region for each zone would cost every process a descriptor and a mapping
// each, so small zones share regions. A zone that changes moves to another
// region; the regions and images that have not changed stay mapped as they are.
package catalog
