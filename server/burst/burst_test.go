package burst

import (
	"net/netip"
	"testing"
)

func TestEndpoint(t *testing.T) {
	for in, is4 := range map[string]bool{
		"192.0.2.1:53": true, "0.0.0.0:0": true, "[2001:db8::1]:65535": false, "[::]:53": false, "[::1]:53": false,
	} {
		ap := netip.MustParseAddrPort(in)
		e := EndpointOf(ap)
		if e.AddrPort() != ap || e.Is4() != is4 || e.Scope != 0 {
			t.Errorf("%s: %v, IPv4 %v, scope %d", in, e.AddrPort(), e.Is4(), e.Scope)
		}
	}
	// An IPv4-mapped address is the IPv4 address, whoever wrote it.
	if a, b := EndpointOf(netip.MustParseAddrPort("192.0.2.1:53")), EndpointOf(netip.MustParseAddrPort("[::ffff:192.0.2.1]:53")); a != b {
		t.Errorf("%v is not %v", a, b)
	}
	if EndpointOf(netip.MustParseAddrPort("192.0.2.1:53")) == EndpointOf(netip.MustParseAddrPort("192.0.2.1:54")) {
		t.Error("the port makes no difference")
	}
	zoned := EndpointOf(netip.MustParseAddrPort("[fe80::1%7]:53"))
	if zoned.AddrPort() != netip.MustParseAddrPort("[fe80::1]:53") {
		t.Errorf("with a zone: %v", zoned.AddrPort())
	}
}
