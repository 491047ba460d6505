package server

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Whoever has an address is named, whatever he calls himself, also if he has it
// by the wildcard, or we want the wildcard.
func TestHolderOf(t *testing.T) {
	for _, c := range []struct {
		network, held, name, want string
	}{
		{"udp", "127.0.0.1:0", "a) (b c", "127.0.0.1"},
		{"tcp", "127.0.0.1:0", "nsd", "127.0.0.1"},
		{"udp", "[::1]:0", "knotd", "::1"},
		{"tcp", "[::]:0", "named", "::1"},
		{"udp", "0.0.0.0:0", "unbound", "127.0.0.1"},
		{"udp", "127.0.0.1:0", "coredns", "0.0.0.0"},
	} {
		p, said := start(t, "hold", c.network, c.held, c.name)
		held, err := netip.ParseAddrPort(said)
		if err != nil {
			t.Fatal(err)
		}
		k := socketKey{address: netip.AddrPortFrom(netip.MustParseAddr(c.want), held.Port()), tcp: c.network == "tcp"}
		if got, orphan := holderOf(k); got != fmt.Sprintf("%s (pid %d)", c.name, p.PID) || orphan {
			t.Errorf("%s %v, held at %v: %q, orphan %v", c.network, k.address, held, got, orphan)
		}
		if err := probe(k); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s %v is taken by %s (pid %d): ", c.network, k.address, c.name, p.PID)) {
			t.Errorf("the probe says %v", err)
		}
		other := k
		other.tcp = !k.tcp
		if got, _ := holderOf(other); got != "" {
			t.Errorf("of the other transport: %q", got)
		}
		other = k
		other.address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), k.address.Port())
		if got, _ := holderOf(other); held.Addr().IsLoopback() && got != "" {
			t.Errorf("of another address: %q", got)
		}
	}
}

func TestParseProcAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0100007F:0035": "127.0.0.1:53", "00000000:14E9": "0.0.0.0:5353",
		"00000000000000000000000001000000:FFFF": "[::1]:65535",
		"B80D0120000000000000000001000000:0000": "[2001:db8::1]:0",
	} {
		if ap, ok := parseProcAddress(in); !ok || ap != netip.MustParseAddrPort(want) {
			t.Errorf("%s: %v, %v", in, ap, ok)
		}
	}
	for _, in := range []string{"", "local_address", "0100007F", "0100007F:", "0100007:0035", "0100007G:0035", "0100007F01:0035", "0100007F0100007F:35"} {
		if ap, ok := parseProcAddress(in); ok {
			t.Errorf("%q became %v", in, ap)
		}
	}
}
