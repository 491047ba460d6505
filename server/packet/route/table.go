package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// Route says how to reach the addresses of a prefix.
type Route struct {
	To   netip.Prefix
	Via  netip.Addr // the gateway; none: they are on the link
	VLAN uint16     // of the link; for a gateway's route that of its link
}

// Hop is the next hop to an address.
type Hop struct {
	IP   [16]byte // IPv4-mapped for IPv4
	VLAN uint16
}

type rule struct {
	hi, lo         uint64 // the prefix
	maskHi, maskLo uint64
	bits           int
	onLink         bool
	hop            Hop
}

// Table is a set of routes. Tables do not change: the zero Table has none.
type Table struct {
	v4, v6 []rule // longest prefix first
}

// New returns a table of routes. There are few of them: a lookup tries all.
func New(routes []Route) (*Table, error) {
	t := &Table{}
	for _, r := range routes {
		if !r.To.IsValid() || r.To != r.To.Masked() {
			return nil, fmt.Errorf("route: %v is no prefix: clear the bits after its length", r.To)
		}
		if r.VLAN > 4094 {
			return nil, fmt.Errorf("route: %v: VLAN %d: give 0 (untagged) to 4094", r.To, r.VLAN)
		}
		if r.Via.IsValid() && r.Via.Is4() != r.To.Addr().Is4() {
			return nil, fmt.Errorf("route: %v: gateway %v is of another family", r.To, r.Via)
		}
		a, n := r.To.Addr().As16(), r.To.Bits()
		if r.To.Addr().Is4() {
			n += 96
		}
		k := rule{bits: n, onLink: !r.Via.IsValid(), hop: Hop{VLAN: r.VLAN}}
		k.maskHi, k.maskLo = mask(n), mask(n-64)
		k.hi, k.lo = binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
		if !k.onLink {
			k.hop.IP = r.Via.As16()
		}
		rules := &t.v6
		if r.To.Addr().Is4() {
			rules = &t.v4
		}
		if slices.ContainsFunc(*rules, func(o rule) bool { return o.bits == k.bits && o.hi == k.hi && o.lo == k.lo }) {
			return nil, fmt.Errorf("route: %v is given twice: keep one", r.To)
		}
		*rules = append(*rules, k)
	}
	for _, rules := range [][]rule{t.v4, t.v6} {
		slices.SortFunc(rules, func(a, b rule) int { return cmp.Compare(b.bits, a.bits) })
	}
	for _, r := range routes {
		if !r.Via.IsValid() || r.Via.IsLinkLocalUnicast() {
			continue
		}
		via := r.Via.As16()
		if k := t.find(&via); k == nil || !k.onLink || k.hop.VLAN != r.VLAN {
			return nil, fmt.Errorf("route: %v: gateway %v is on no link of VLAN %d: add its prefix without a gateway", r.To, r.Via, r.VLAN)
		}
	}
	return t, nil
}

// mask returns the first n bits, none where n is negative.
func mask(n int) uint64 {
	switch {
	case n <= 0:
		return 0
	case n >= 64:
		return ^uint64(0)
	}
	return ^uint64(0) << (64 - n)
}

// Lookup returns the next hop to ip by the longest prefix.
func (t *Table) Lookup(ip *[16]byte) (h Hop, ok bool) {
	k := t.find(ip)
	if k == nil {
		return h, false
	}
	h = k.hop
	if k.onLink {
		h.IP = *ip
	}
	return h, true
}

// OnLink reports whether ip is a neighbour on the link of vlan.
func (t *Table) OnLink(ip *[16]byte, vlan uint16) bool {
	k := t.find(ip)
	return k != nil && k.onLink && k.hop.VLAN == vlan
}

func (t *Table) find(ip *[16]byte) *rule {
	hi, lo := binary.BigEndian.Uint64(ip[:8]), binary.BigEndian.Uint64(ip[8:])
	rules := t.v6
	if hi == 0 && lo>>32 == 0xffff {
		rules = t.v4
	}
	for i := range rules {
		if k := &rules[i]; hi&k.maskHi == k.hi && lo&k.maskLo == k.lo {
			return k
		}
	}
	return nil
}
