package stream

import (
	"net"
	"net/netip"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
)

// Limits bound what clients take of a Set.
type Limits struct {
	Total     int // connections
	PerClient int // connections of one client; 0: no limit

	Idle     time.Duration // without a query
	Lifetime time.Duration // of a connection; 0: no limit
}

// clientBits is how much of an IPv6 address says which client it is: a host has a
// whole /64 to choose addresses from.
const clientBits = 64

// remoteOf returns the address of the other end, the zero value if it is not one
// of TCP.
func remoteOf(c net.Conn) netip.AddrPort {
	if s, ok := c.(*Socket); ok {
		return s.remote
	}
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// clientOf returns the key by which the connections from a are counted, the zero
// value if they are not.
func clientOf(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	p, err := a.WithZone("").Prefix(clientBits)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr()
}

// admit adds c to the set, or says why it may not be there. Set.mu is held.
func (s *Set) admit(c *Conn) counters.Reason {
	switch {
	case len(s.conns) >= s.limits.Total:
		return counters.DropLimit
	case s.limits.PerClient > 0 && c.client.IsValid() && s.clients[c.client] >= s.limits.PerClient:
		return counters.DropClientLimit
	}
	s.conns[c] = struct{}{}
	if c.client.IsValid() {
		s.clients[c.client]++
	}
	s.done.Add(1)
	return counters.NotDropped
}

// remove takes c out again. Set.mu is held.
func (s *Set) remove(c *Conn) {
	delete(s.conns, c)
	if !c.client.IsValid() {
		return
	}
	if s.clients[c.client]--; s.clients[c.client] == 0 {
		delete(s.clients, c.client)
	}
}
