// Package health finds out whether servers serve, by asking them.
//
// Invariant: a server is down iff its last check has failed, or it was down and
// fewer checks than Rise have succeeded since. A check has failed when Tries tries
// in a row have, one right after the other: so a server that dies is down within
// one interval, and a single lost datagram takes nobody out.
//
// Checks run in goroutines of the supervisor. What they find they tell to a
// function, which writes the words that the lanes read.
package health
