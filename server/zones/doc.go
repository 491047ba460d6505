// Package zones keeps the compiled zones that the generations serve.
//
// Invariant: a compiled zone is immutable and lives as long as anybody uses it,
// and every live generation has the newest good version of each of its zones. A
// zone whose files have not changed is never compiled again; one whose newest
// files cannot be loaded keeps its last good version.
//
//	files --dnsapp compile--> images, in regions --Update--> Zone --Commit--> every live generation
//
// Status first, then content: a zone is looked at closer only if the status of
// one of its files (or the clock, for a file that had just been written) says
// that it may have changed, and compiled only if the content has.
//
// The compiler runs in processes of its own, at low priority, which end when it
// is done: what it allocates, and what it does to a hostile zone file, stays
// there. It has no privileges: files that it cannot read are lent to it.
//
// Small zones share regions, so that hundreds of thousands of them cost a
// process a dozen descriptors and mappings; a zone that changes moves into
// another region, and regions of which little is left are merged.
package zones
