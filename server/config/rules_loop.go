package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// checkLoops reports a proxy one of whose servers is the proxy itself, maybe by
// way of other proxies of this file: each datagram would begin flows until there
// is no room for another.
func (c *checker) checkLoops(d *document) {
	for i := range d.Listeners {
		for _, h := range c.hops(d, i) {
			if h.listener != i && !c.leads(d, h.listener, i, map[int]bool{}) {
				continue
			}
			says := "is itself"
			if h.listener != i {
				says = fmt.Sprintf("is the listener %s, which sends back to this one", d.Listeners[h.listener].Name)
			}
			c.reportKey(fmt.Sprintf("listeners[%d].backend", i), fault{
				fmt.Sprintf("sends in a circle: the server %s, %v, %s", h.server.Name, h.server.Address, says),
				"name the address where the server itself serves",
			})
			break
		}
	}
}

// leads reports whether the proxy from sends to the proxy to, maybe by way of
// others but for those that have been passed already.
func (c *checker) leads(d *document, from, to int, passed map[int]bool) bool {
	passed[from] = true
	for _, h := range c.hops(d, from) {
		if h.listener == to || !passed[h.listener] && c.leads(d, h.listener, to, passed) {
			return true
		}
	}
	return false
}

// hop is a server that is a proxy of this file.
type hop struct {
	server   *Server
	listener int
}

// hops returns the servers of the proxy from that are proxies of this file.
func (c *checker) hops(d *document, from int) (all []hop) {
	l := &d.Listeners[from]
	if l.Service != ServiceUDPProxy {
		return nil
	}
	for i := range d.Backends {
		if d.Backends[i].Name != l.Backend {
			continue
		}
		for j := range d.Backends[i].Servers {
			s := &d.Backends[i].Servers[j]
			for k := range d.Listeners {
				if d.Listeners[k].Service == ServiceUDPProxy && c.serves(&d.Listeners[k], s.Address) {
					all = append(all, hop{s, k})
				}
			}
		}
		break // a second one of this name was refused
	}
	return all
}

// serves reports whether l is served at to.
func (c *checker) serves(l *listenerEntry, to netip.AddrPort) bool {
	return to.IsValid() && slices.ContainsFunc(l.Address, func(at netip.AddrPort) bool {
		if at.IsValid() && at.Addr().IsUnspecified() {
			return at.Port() == to.Port() && at.Addr().Is4() == to.Addr().Is4() && c.sys.local(to.Addr())
		}
		return at == to
	})
}
