// Package primary is the process that owns the devices, and how the others find it.
//
// Invariant: while the primary lives, nothing that a worker does or suffers, SIGKILL
// included, changes the devices, loses an mbuf for good, or lets two live processes
// have one lcore id. It takes no part in serving: it sleeps until a worker dies or
// somebody asks it something, so its own death costs those who serve nothing.
//
// "dnsapp primary" is started by Ensure, or by hand; it outlives reloads, upgrades and
// the supervisor. It makes devices, queues, pool and rings once, from a Spec, in EAL
// memory with a prefix of its own (the configured one and its pid), and keeps beside
// the control socket:
//
//	primary.lock   flock, for as long as it lives
//	primary.json   State: who it is, and the Spec it was started with
//	primary.sock   HTTP and JSON, for root and its own user
//
//	GET  /status                     Status
//	POST /lease  LeaseRequest        Lease: an lcore id for a process, until that dies
//	POST /stop   StopRequest         {}; it ends once it has answered
//
// Every other answer than 200 has {"error": TEXT} as its body.
//
// Ensure uses a primary again only if it is alive (pid, start time and comm), answers,
// and has the same Spec. A Spec that differs is refused by the keys that do: devices,
// queues and pools cannot change under those who use them.
//
// When a process with a lease dies, which a pidfd tells, the primary repairs the ends
// of rings it had, empties those that have no living end, gives back to the pool what
// the process had, and only then lets its lcore id go to another. A ring with one
// living end is left to that. Should the process have died with one of EAL's own
// locks, as can happen while it attaches, nobody new can attach: leases are refused
// from then on, those who serve go on, and Ensure names the remedy.
package primary
