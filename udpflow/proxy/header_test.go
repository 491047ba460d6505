package proxy

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
)

// Headers octet by octet, as the specification lays them out.
func TestHeader(t *testing.T) {
	const signature = "0d0a0d0a000d0a515549540a"
	for _, c := range []struct{ remote, local, want string }{
		{"192.0.2.1:4660", "198.51.100.2:53", "21" + "12" + "000c" + "c0000201" + "c6336402" + "1234" + "0035"},
		{"[2001:db8::1]:4660", "[2001:db8::2]:53", "21" + "22" + "0024" +
			"20010db8000000000000000000000001" + "20010db8000000000000000000000002" + "1234" + "0035"},
	} {
		remote, local := burst.EndpointOf(netip.MustParseAddrPort(c.remote)), burst.EndpointOf(netip.MustParseAddrPort(c.local))
		got := appendHeader(make([]byte, 0, headerMax), &remote, &local)
		if hex.EncodeToString(got) != signature+c.want {
			t.Errorf("%s to %s:\n%x, want\n%s%s", c.remote, c.local, got, signature, c.want)
		}
		if cap(got) != headerMax {
			t.Errorf("a header of %d octets does not fit into %d", len(got), headerMax)
		}
	}
}
