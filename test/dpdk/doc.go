// Package dpdk tests the data path DPDK end to end: the programs as they are shipped,
// net_tap, and clients that use the kernel's own network stack.
//
// Invariant: at the end of each test every packet buffer is accounted for, and nothing
// of it runs or is left.
//
// The clients and the server share a network namespace: the interface of the tap is
// the clients' side, and the kernel knows no address of the server's.
package dpdk
