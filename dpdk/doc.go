// Package dpdk holds no code: it names what is below it.
//
// Invariant: cgo is below this folder and nowhere else, and all of it under the build
// tag dpdk. Without the tag the folders build, and what needs DPDK says so.
//
//	eal      the binding to libdpdk: devices, bursts, pool, rings, and the audit
//	primary  the process that owns them, its client, and how it is found again
//
// Workers will attach by a lease of the primary (primary.Client.Lease), eal.Init and
// eal.Attach, and read an eal.Queue into an eal.Burst. Package burst is the seam to
// services: none knows whether a burst came from a socket or from a queue.
package dpdk
