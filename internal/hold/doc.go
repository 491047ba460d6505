// Package hold marks places in the life of a process where a test can have it
// wait, to kill or stop it, or another process, there and nowhere else.
//
// Invariant: built without the tag hold, a place is an empty inlined function,
// Enabled is a constant that lets what prepares one compile to nothing, and no
// environment makes a process wait. Programs that are shipped are built without
// the tag; a test looks for that.
//
// In a build with the tag, a process whose environment names a unix socket in
// Variable connects to it at each place, says "PID PLACE" in a line, and waits
// until the other end closes. Without the variable, or with nobody there, it goes
// on at once.
package hold
