// Package load makes the traffic that the loss tests judge the server by.
//
// Invariant: every request has an identity, and at the end of a run it is
// answered, or it is lost; nothing is inferred from totals of the server. What
// the generator itself failed to do (datagrams that it was too slow to send,
// answers that its own kernel queue dropped) is counted apart and never shows
// as the server's loss.
//
// The load is open-loop: requests leave when they are due, whether or not
// earlier ones were answered. When the generator cannot keep up it skips what
// is due and says so (Report.Skipped) instead of working off a backlog later;
// after Stop nothing more is sent, and it waits a bounded time for stragglers.
//
//	group, err := load.StartUDP(load.UDPConfig{...})   // old flows
//	...                                                // reload, new flows
//	report := group.Stop(time.Second)
//	err = report.Exact()                               // nil: sent = answered, once each
//
// A UDP flow is one (source address, source port). Flows share a socket where
// the target allows it: a socket bound to a wildcard address sends from any
// local address, and all of 127.0.0.0/8 is local. So thousands of flows move
// in batches of 64 through a few sockets. All sockets stay open until Close:
// the port of a closed one could come back as another flow's.
package load
