// Package tap is the way to this host's kernel for frames that DPDK receives and
// dnsapp does not serve, and back: a TAP device, to the kernel a network device like
// any other.
//
// Invariant: the device is up for as long as anybody has its descriptor. A generation
// gets the descriptor from the one before, by way of the supervisor, so the device, its
// addresses, routes and connections never notice a reload. What the kernel sends while
// nobody reads waits in the device, QueueLength frames of it.
//
//	NIC --> lane, ToKernel --> Write --> kernel: ssh, BGP, ping ...
//	NIC <-- lane           <-- Read  <--
//
// Open and Configure are the supervisor's and need CAP_NET_ADMIN; Attach, Read and
// Write are the workers', and need no right. Several processes may have the
// descriptor; each frame is read by one of them.
package tap
