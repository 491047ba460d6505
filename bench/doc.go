// Command bench measures dnsapp, and writes a dated table for each part:
//
//   - peers: what a query costs it, Knot DNS and NSD, side by side, for several
//     kinds of traffic (-traffic);
//   - million: how soon each of them serves a zone of a million records, what that
//     costs in memory and for each query, and how soon a new version is served, at
//     which peak of memory, while the zone is asked for;
//   - dispatch: what it costs to know who serves a flow, and to give a datagram
//     to another generation;
//   - reload: what clients see of reloads under load;
//   - proxy: what a round trip through the UDP proxy costs it and nginx, and what a
//     flow takes of memory;
//   - dpdk: what a query costs it on DPDK, over net_memif, and over sockets.
//
// Method: the server runs on processor 0, the generator on processor 1, over
// loopback in a network namespace of their own; in the part about reloads both
// run on all of them. Rounds are interleaved (each round measures everything
// that is compared, in an order that rotates), so that a change of the machine's
// speed meets all alike; the tables have medians.
//
// The figure to compare is CPU per query: the time of all threads of all
// processes of a server over the answers it gave. It holds the receive path of
// the server's own loopback sends, which the kernel runs in their context, and it
// holds also where the generator limits the rate.
//
//	go run ./bench -only dispatch,reload
//	go run ./bench -only dpdk             as root, with a dnsapp of make build-dpdk
package main
