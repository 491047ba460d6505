// Package zones keeps the compiled zones that the generations serve.
//
// Invariant: a zone region is immutable and lives as long as anybody uses it.
// Its key is the content it was built from, so a zone whose files have not
// changed is never compiled again: a reload or a respawn maps the region there is.
//
//	Store.Prepare --fork, exec--> dnsapp compile (low priority) --SCM_RIGHTS--> Region
//
// The compiler runs in a process of its own, which ends when it is done: what it
// allocates, and what it does to a hostile zone file, stays there.
package zones
