// Package quicroute is where QUIC will be routed by connection ID (design:
// QUIC-LB), so that a connection whose address changes stays with the generation
// that serves it. It holds nothing yet. Its seam is rule 1 of package dispatch:
// what a datagram itself says of its owner is asked before the flow tables are.
package quicroute
