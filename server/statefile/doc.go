// Package statefile is the file that carries what a supervisor knows over a full
// stop and the next start: what operators have ordered of servers, what the checks
// have found, and the totals of counters.
//
// Invariant: there is never half a file in its place. Write makes a new one, of
// mode 0600, and renames it once it is on the disk; Read returns all of a file of
// its own Version, or an error.
//
// What of it still fits the configuration is for the supervisor to say. The file is
// JSON, and counters have names in it, so that another release can read it.
package statefile
