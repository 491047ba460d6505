package server

import (
	"net/netip"

	"github.com/dnsapp/dnsapp/server/config"
)

// This file is for addresses that take in others: a reload may go from 0.0.0.0:53
// to 127.0.0.1:53, and back. The kernel gives what comes to an address to the
// sockets that are bound to it, and only without those to the wildcard's.
//
// From the wildcard to one address: its sockets are opened in T0 and bound at the
// commit, when the new lanes read them; up to that moment its traffic is the
// wildcard's. From one address to the wildcard: the new generation has the sockets
// of the address, too, as its own, and they stay for as long as the configuration
// has the wildcard: what is queued in them is not lost, and nobody is refused.

// wildcard returns the key of the address that takes in k.
func (k socketKey) wildcard() socketKey {
	all := netip.IPv4Unspecified()
	if k.address.Addr().Is6() {
		all = netip.IPv6Unspecified()
	}
	return socketKey{address: netip.AddrPortFrom(all, k.address.Port()), tcp: k.tcp}
}

// within reports whether k is one of the addresses that o, a wildcard, takes in.
func (k socketKey) within(o socketKey) bool {
	return k.address != o.address && k.wildcard() == o.group()
}

// overlapping returns a socket of each address that this instance has and that
// takes in k, or that k takes in.
func (ss *sockets) overlapping(k socketKey) (others []*socket) {
	if all := k.wildcard(); all != k.group() {
		if s := ss.byKey[all]; s != nil {
			others = append(others, s)
		}
		return others
	}
	for _, s := range ss.byID {
		if s.lane == 0 && s.fd >= 0 && s.within(k) {
			others = append(others, s)
		}
	}
	return others
}

// sight is what bind has seen of an address.
type sight struct {
	free bool  // nobody has it, nor one that overlaps it
	err  error // another process has it
}

// look sees who has the address of k.
func (ss *sockets) look(k socketKey) sight {
	switch {
	case ss.members[k.group()] > 0: // this instance
		return sight{}
	case len(ss.overlapping(k)) > 0: // a probe would find ourselves
		if len(foreign(k)) > 0 {
			return sight{err: takenBy(k)}
		}
		return sight{}
	}
	return sight{free: true, err: probe(k)}
}

// groups returns the addresses whose sockets a listener of cfg needs, as the key of
// lane 0 of each: those that it names and, of those that this instance has already,
// those that lie within them.
func (ss *sockets) groups(l config.Listener, cfg *config.Config, share bool) (keys []socketKey) {
	for _, ap := range l.Address {
		for _, tcp := range []bool{false, true} {
			if tcp && !l.TCP || !tcp && !l.UDP {
				continue
			}
			k := socketKey{address: ap, tcp: tcp}
			keys = append(keys, k)
			if !share || k.wildcard() != k {
				continue
			}
			for _, s := range ss.overlapping(k) {
				if s.bound {
					keys = append(keys, s.group())
				}
			}
		}
	}
	return keys
}
