// Package reload is the state machine that replaces one generation by the
// next, and that stops the server.
//
// Invariant: Step is a pure function. It has no clock, no I/O and no
// goroutine; equal arguments give equal results. Whatever takes time is an
// Effect that the supervisor carries out, and its outcome comes back as an
// Event:
//
//	         Event                         Effect
//	world ----------> Step(State, Event) ----------> world
//	  ^                                                |
//	  +-------- the supervisor, one loop --------------+
//
// The machine has two layers. The Phase is what the one hand-over in progress
// does (T0 to T2); each generation slot has a Stage of its own (T3 to T5), so
// that generations can drain while the next one starts.
//
// # The supervisor's side of the contract
//
// The supervisor carries out the effects of one Step in order, each of them
// begun before the next Step, and feeds events one at a time. Effects without
// an answer take hold at once. Those that are answered carry an Order number,
// and the answer carries it back; an answer that nobody waits for any more is
// late and is ignored, so an order never needs to be taken back. What happens
// to one worker process is told in order: WorkerReady, WorkerExited, and
// nothing of it after the Fenced or ProcessesGone that covers it.
//
// A worker that is down is a missing bit of its slot's Up. It was handed to
// RespawnWorker, or it was fenced, or it died while the wire was being taken
// from its generation: then nobody joins the readers before the outcome is
// known, and an abort brings it back.
//
// The machine need not survive: Adopted begins another one from what the directory
// says of each generation, with every order and timer of the first forgotten.
//
// # Tests
//
// The walks visit every state that the machine, the owner word, the lanes and
// the processes can get into together, each with some of this: two workers a
// generation, three generations, faults at any time, listeners that some
// generations lack, a supervisor that is killed before or after any effect (with
// -soak more of it at once, and four generations). What
// they have seen of the machine is drawn in machine.mmd. Random runs have all of
// it. The transcripts in testdata show each path, event by event.
package reload
