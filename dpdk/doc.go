// Package dpdk holds no code: it names what is below it.
//
// Invariant: cgo is below this folder and nowhere else, and all of it under the build
// tag dpdk. Without the tag the folders build, and what needs DPDK says so.
//
//	eal      the binding to libdpdk: devices, bursts, pool, rings, and the audit
//	primary  the process that owns them, its client, and how it is found again
//	wire     what one worker has of them, by a lease of the primary
//
// Package packet is the seam to lanes: frames in, frames out. Package burst is that to
// services: none knows whether a burst came from a socket or from a queue.
package dpdk
