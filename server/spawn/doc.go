// Package spawn starts processes from the running binary's own image.
//
// Invariant: a child gets exactly the descriptors it is given, in order, from
// descriptor 0 on, with their file status flags untouched (os/exec clears
// O_NONBLOCK on the description that all processes share), and no way to gain
// privileges: no_new_privs is set and the capability bounding set is empty
// before it runs its first instruction.
package spawn
