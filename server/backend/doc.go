// Package backend is the servers that proxies send to: what is known of each, in
// a region that outlives generations, and the choice of one for a new flow.
//
// Invariant: what is known of a server belongs to the server and not to a
// generation. The supervisor alone writes what the checks found and what an
// operator ordered; lanes write the words of failures, and each lane writes the
// numbers of its own flows and nobody else's. So a reload, a crash of a worker and
// a crash of the supervisor all leave every server as it was.
//
//	supervisor: checks, orders --> Server words --> Pool.Pick, in every lane
//	lane: Row (its flows by server), Server.Failed, Server.Answered
//
// Ports, in the same region, are the ports that flows have, or had when a worker
// was killed: each worker writes the words of its own.
//
// The package opens no socket. Checks are in server/backend/health, the data path
// of UDP is in udpflow/proxy.
package backend
