// Command bench measures what a query costs dnsapp, Knot DNS and NSD, side by
// side, and writes a dated table.
//
// Method: one server at a time runs on processor 0, the generator on processor
// 1, over loopback in a network namespace of their own. All serve the same zone
// and are asked the same queries, a tenth of them for names that do not exist.
// Rounds are interleaved (each round measures every server, in an order that
// rotates), so that a change of the machine's speed meets all alike; the table
// has medians.
//
// The figure to compare is CPU per query: the time of all threads of all
// processes of a server over the answers it gave. It holds the receive path of
// the server's own loopback sends, which the kernel runs in their context, and it
// holds also where the generator limits the rate.
package main
