// Package packet turns frames into UDP datagrams and answers into frames, and does
// what a host on an Ethernet must do besides: ARP and neighbour discovery, echo,
// ICMP errors, routes, path MTUs, reassembly and fragmentation.
//
// Invariant: nothing of the caller's is kept past a call, every frame and every
// datagram that goes in gets exactly one Verdict, and
//
//	in  = deliver + transmit + to kernel + error + consumed + dropped(reason) + merged + pending
//	out = transmit + waits + split + dropped(reason)
//
// hold exactly at every moment (Layer.Check).
//
// # The seam
//
// A Layer belongs to one lane; it knows neither queues nor mbufs, starts nothing
// and reads no clock. Whoever moves frames (a DPDK lane) does, for each burst:
//
//	fill Frame.Data with the bytes in each mbuf     (capacity: the mbuf's whole room)
//	layer.Input(frames, now)
//	Frame.Share:  let every other layer on this link Learn it: sibling lanes, draining generations
//	by Frame.Verdict:
//	  Deliver   dispatch by flow (Local, Remote) and hand Payload to the service
//	  Transmit  send Data as it is now: an echo answer, written in place
//	  ToKernel  give Data to the TAP (TCP: to a netstack, once there is one)
//	  Error     an ICMP error: give the frame to the owner of the flow (UDP, Local, Remote),
//	            whose layer comes to the same verdict and calls Believe
//	  Held, Consumed, Dropped   free it
//
// For an answer the service appends to a buffer behind Headroom; Output writes the
// headers in front of it, so an mbuf's room is used in place:
//
//	Datagram{Buf, N, Local, Remote, Link: frame.Link}   answers go back the way the query came:
//	                                                    MACs swapped, same VLAN, no neighbour lookup
//	Datagram{..., Link: header.Link{}}                  by route and neighbour (to a backend)
//	layer.Output(datagrams, now)
//	  Transmit  send Datagram.Frame; with Offload set, set the mbuf's offload flags and lengths
//	  Waits, Split, Dropped   free the buffer: frames went, or will go, through Tx
//
// Frames that the layer makes by itself (ARP and NDP answers, probes,
// announcements, ICMP errors, fragments, frames that waited for a neighbour) go to Tx, which reserves and
// commits one at a time; their checksums are always complete. Call Tick when it
// says so.
//
// Payload lies in the frame. For a datagram put together from fragments, Data is
// replaced by a whole frame in the layer's own memory (longer than the MTU, also
// when it is for the kernel), and Payload lies in that. Either is good until the
// next Input: what goes to another process is copied.
//
// # Generations
//
// Only the rx owner answers for the addresses: Own begins that in each of its lanes
// (and announces the addresses), Disown ends it. A layer that does not own still
// delivers what it is given, learns neighbours from shared frames, and asks for
// neighbours itself.
//
// # What is left to others
//
// Multicast memberships (MLD, IGMP) and everything but UDP and what is named above
// go to the kernel, or are dropped as "protocol" where there is none. An IPv6 error
// is never sent for a packet to a multicast address (RFC 4443 2.4 allows two). A
// reassembly that times out is counted and not answered (RFC 8200 4.5: should).
package packet
