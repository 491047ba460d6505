// Package burst is the seam between the loops that move datagrams and the
// services that answer them: up to Max datagrams travel together, so that a
// lane pays one system call, one clock reading and one look at the shared words
// for all of them.
//
// Invariant: everything in a Burst belongs to the lane that filled it. A
// service may read and write it until it returns and keeps no part of it.
//
// A service never learns where a burst came from (kernel socket, forward ring,
// NIC queue), and a lane never learns what is in one.
package burst

import (
	"net/netip"

	"github.com/dnsapp/dnsapp/server/counters"
)

// Max is the most datagrams in one burst. Larger gains nothing measurable
// (4.8 against 4.7 us a packet at 256), smaller costs (5.0 at 16).
const Max = 64

// MaxPayload is the largest UDP payload over IPv4 (65,535 - 20 - 8).
const MaxPayload = 65507

// Endpoint is an IP address and port as a comparable value without pointers.
// IPv4 addresses are kept in their IPv4-mapped form. The zero port means
// "unknown".
type Endpoint struct {
	IP    [16]byte
	Scope uint32 // IPv6 zone index of a link-local address, else 0
	Port  uint16
}

// Is4 reports whether e holds an IPv4 address.
func (e *Endpoint) Is4() bool { return netip.AddrFrom16(e.IP).Is4In6() }

// AddrPort returns e for logs and text. It drops the scope.
func (e Endpoint) AddrPort() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(e.IP).Unmap(), e.Port)
}

// EndpointOf returns the endpoint of ap. A zone is not carried over.
func EndpointOf(ap netip.AddrPort) Endpoint {
	return Endpoint{IP: ap.Addr().As16(), Port: ap.Port()}
}

// Packet is one datagram and what becomes of it.
type Packet struct {
	Payload []byte // as received; not to be written to

	// Reply is empty with room for a whole datagram when the service gets it.
	// The service appends the answer within that capacity; a Reply left empty
	// sends nothing.
	Reply []byte

	Remote  Endpoint
	Local   Endpoint // the address that was asked, also on a wildcard bind
	IfIndex uint32   // interface it came in by, for answers from a wildcard bind; else 0
	Socket  uint32   // id of a socket from which any process may answer it
	Way     uint64   // how a frame came, for the answer to go back: of the data path DPDK, else 0
	Hash    uint64   // of the flow, under the secret of the flow tables; 0: not known
	ECN     uint8    // ECN bits of the IP header (RFC 3168)

	// Segment is not 0 if Reply is several answers in a row, each of so many octets
	// but for a last one that may be shorter. Only answers of a proxy are.
	Segment uint16

	Empty bool // the answer is an empty datagram. Valid iff Reply is empty

	// Drop is why the service gave no answer and never will. A service that sets
	// neither Drop nor Reply has consumed the datagram.
	Drop counters.Reason

	// Class is the kind of the answer. It is ClassPlain when the service gets it.
	Class counters.Class
}

// Answers returns how many datagrams Reply is.
func (p *Packet) Answers() int {
	if p.Segment == 0 {
		return 1
	}
	return (len(p.Reply) + int(p.Segment) - 1) / int(p.Segment)
}

// Cut returns the first datagram of rest, which is what is left of Reply, and what
// is left then.
func (p *Packet) Cut(rest []byte) (one, left []byte) {
	if n := int(p.Segment); n != 0 && n < len(rest) {
		return rest[:n], rest[n:]
	}
	return rest, nil
}

// Burst is a batch of datagrams of one listener.
type Burst struct {
	N       int   // the first N packets are valid
	Now     int64 // mono.Now at reception, nanoseconds
	Packets [Max]Packet
}

// Handler serves datagrams. One Handler belongs to one lane: it is never called
// concurrently, and may keep scratch memory between calls. ServeBurst must not
// block, allocate, lock or make a system call.
type Handler interface {
	ServeBurst(b *Burst)
}
