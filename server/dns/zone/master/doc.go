// Package master reads master files (RFC 1035 5), the text form of zones.
//
// Invariant: a record that is handed out is complete and in uncompressed wire
// form, its RDATA has the structure of its type (also where it was written as
// \#), and everything that is refused is reported with its file and line.
// Reading goes on behind a bad record, so that one run reports them all; a bad
// directive ends it, because what follows depends on it.
//
//	bytes -> scanner (tokens of a logical line) -> parser (owner, TTL, class,
//	type, $ directives) -> RDATA by a table of fields for each type -> Record
//
// A large file is read on several processors (pieces.go); what is handed out, and
// in which order, is the same.
//
// It understands $ORIGIN, $TTL (RFC 2308 4), $INCLUDE, $GENERATE (as BIND), the
// types of the IANA registry, TYPEnnn and CLASSnnn and \# (RFC 3597), and
// SVCB parameters (RFC 9460). Nothing is allocated for a record of the common
// types.
package master
