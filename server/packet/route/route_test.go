package route

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func as16(s string) [16]byte { return netip.MustParseAddr(s).As16() }

func TestLookup(t *testing.T) {
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	table, err := New([]Route{
		{To: p("192.0.2.0/24")}, {To: p("0.0.0.0/0"), Via: a("192.0.2.1")}, {To: p("198.51.100.0/25"), VLAN: 7},
		{To: p("198.51.100.9/32"), Via: a("192.0.2.2")}, {To: p("2001:db8::/64")}, {To: p("::/0"), Via: a("fe80::1")},
		{To: p("2001:db8:1::/48"), Via: a("2001:db8::9")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]struct {
		hop    string
		vlan   uint16
		onLink bool
	}{
		"192.0.2.77": {"192.0.2.77", 0, true}, "203.0.113.5": {"192.0.2.1", 0, false}, "198.51.100.8": {"198.51.100.8", 7, true},
		"198.51.100.9": {"192.0.2.2", 0, false}, "198.51.100.200": {"192.0.2.1", 0, false},
		"2001:db8::5": {"2001:db8::5", 0, true}, "2001:db8:1::5": {"2001:db8::9", 0, false}, "2001:db8:2::5": {"fe80::1", 0, false},
	} {
		ip := as16(to)
		h, ok := table.Lookup(&ip)
		if !ok || h.IP != as16(want.hop) || h.VLAN != want.vlan || table.OnLink(&ip, want.vlan) != want.onLink {
			t.Errorf("to %s: %v %v, want %+v", to, h, ok, want)
		}
	}
	none, ip := &Table{}, as16("192.0.2.1")
	if _, ok := none.Lookup(&ip); ok {
		t.Error("the empty table has a route")
	}
	only6, err := New([]Route{{To: p("::/0"), Via: a("fe80::1")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := only6.Lookup(&ip); ok {
		t.Error("IPv4 takes the default route of IPv6")
	}
}

func TestNewRefuses(t *testing.T) {
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	for name, routes := range map[string][]Route{
		"no prefix":           {{}},
		"bits after it":       {{To: p("192.0.2.1/24")}},
		"twice":               {{To: p("192.0.2.0/24")}, {To: p("192.0.2.0/24"), VLAN: 3}},
		"other family":        {{To: p("192.0.2.0/24"), Via: a("2001:db8::1")}},
		"gateway on no link":  {{To: p("0.0.0.0/0"), Via: a("192.0.2.1")}},
		"gateway behind one":  {{To: p("192.0.2.0/24")}, {To: p("10.0.0.0/8"), Via: a("192.0.2.1")}, {To: p("11.0.0.0/8"), Via: a("10.0.0.1")}},
		"gateway's VLAN":      {{To: p("192.0.2.0/24"), VLAN: 3}, {To: p("0.0.0.0/0"), Via: a("192.0.2.1")}},
		"VLAN out of 12 bits": {{To: p("192.0.2.0/24"), VLAN: 4095}},
	} {
		if _, err := New(routes); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// The longest prefix wins, as by netip.Prefix.Contains over all of them.
func TestLongestPrefix(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x80, 0xff}), 16, 16).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "IPv4") {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16([16]byte(b))
	})
	rapid.Check(t, func(t *rapid.T) {
		var routes []Route
		seen := map[netip.Prefix]bool{}
		for i := range rapid.IntRange(0, 20).Draw(t, "routes") {
			a := addr.Draw(t, "prefix").Unmap()
			p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			if !seen[p] {
				routes = append(routes, Route{To: p, VLAN: uint16(i + 1)})
			}
			seen[p] = true
		}
		table, err := New(routes)
		if err != nil {
			t.Fatal(err)
		}
		ip := addr.Draw(t, "to").Unmap()
		best, vlan := -1, uint16(0)
		for _, r := range routes {
			if r.To.Contains(ip) && r.To.Bits() > best {
				best, vlan = r.To.Bits(), r.VLAN
			}
		}
		b := ip.As16()
		h, ok := table.Lookup(&b)
		if ok != (best >= 0) || h.VLAN != vlan {
			t.Fatalf("%v over %v: VLAN %d %v, want %d", ip, routes, h.VLAN, ok, vlan)
		}
	})
}

// RFC 1191, RFC 8201: a report lowers, never below the least, and ages out.
func TestPathMTU(t *testing.T) {
	p := NewPathMTU(2)
	a, b, c := as16("2001:db8::1"), as16("192.0.2.1"), as16("192.0.2.2")
	step := func(ip [16]byte, mtu int, v6 bool, now int64, believed bool, want int) {
		t.Helper()
		if got := p.Report(&ip, mtu, 1500, v6, now); got != believed {
			t.Errorf("report %d: believed %v", mtu, got)
		}
		if got := p.Get(&ip, 1500, now); got != want {
			t.Errorf("after a report of %d: %d, want %d", mtu, got, want)
		}
	}
	step(a, 1279, true, 0, false, 1500)
	step(a, 1400, true, 0, true, 1400)
	step(a, 1450, true, 1, false, 1400)
	step(a, 1280, true, 2, true, 1280)
	step(b, 68, false, 3, true, MinMTU4)
	step(b, 1500, false, 3, false, MinMTU4)
	if got := p.Get(&a, 1500, 2+pathTime); got != 1500 {
		t.Errorf("after ten minutes: %d", got)
	}
	if step(c, 900, false, 4, true, 900); p.Len() != 2 {
		t.Errorf("%d entries, allowed 2", p.Len())
	}
}
