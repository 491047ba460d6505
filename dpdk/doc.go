// Package dpdk is where the binding to libdpdk will be, and the only place with
// cgo. It holds nothing yet: server/config refuses "datapath: dpdk" and says so.
// Its seam is package burst: a service does not know whether a burst came from a
// socket or from a queue.
package dpdk
