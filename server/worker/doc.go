// Package worker is one process of a generation: its lanes, its services, and
// its end of the control socket.
//
// Invariant: a worker reads a socket only while the owner word and the slots of
// the directory make its generation the reader, and it looks at them before
// every burst. So at any instant a socket has at most one reading generation; and
// within that one worker, its own or, while that is dead, a sibling.
//
//	supervisor --fork, exec--> worker: descriptor 3 control socket, 4 manifest, then what the manifest lists
//
//	lane: boundary -> receive burst -> dispatch -> serve -> send -> boundary ...
//
// A worker never opens a configured path: it gets descriptors and the validated
// configuration itself. It outlives its supervisor: when the control socket
// closes it keeps serving, and waits at its door (package handover) for the next
// supervisor, to which it tells all it has, with the descriptors. It has one
// supervisor at a time.
package worker
