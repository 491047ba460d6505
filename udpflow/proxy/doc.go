// Package proxy is the service that passes the datagrams of clients to the servers
// of a backend, and their answers back.
//
// Invariant: a flow has one socket towards its server, connected, from its first
// datagram to its end, and no other flow has it meanwhile, nor within its
// quarantine afterwards. So its server sees one port for the life of the flow, over
// reloads too, for the generation that began it keeps the socket; and what a
// server answers late reaches no other client.
//
//	client --burst--> Lane.serve --> the flow's socket --> server
//	client <--burst-- Lane.Serve <-- the flow's socket <-- server
//
//	            begin                    end                 rest is over
//	 (pool) -----------> active (flow) --------> resting ----------------> (pool)
//	           dial / take                  late answers are dropped
//
// A lane owns its flows. For a datagram of a flow that it has it takes no lock,
// allocates nothing and makes no system call beyond the batch; a new flow costs a
// lookup, a choice and, where the pool has no rested socket, socket, connect and
// epoll_ctl. All flows of a lane wait in its one epoll set.
//
// Where a worker has several lanes, a datagram may reach another lane than its
// flow's: after a reload with another number of lanes, or out of the ring of a
// draining generation, which one lane empties. That lane hands it over, in memory.
package proxy
