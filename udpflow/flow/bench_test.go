package flow

import (
	"net/netip"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
)

var sink uint64

func BenchmarkHash(b *testing.B) {
	s := NewSecret()
	l := burst.EndpointOf(netip.MustParseAddrPort("192.0.2.1:53"))
	r := burst.EndpointOf(netip.MustParseAddrPort("198.51.100.7:40000"))
	b.ReportAllocs()
	for i := range b.N {
		r.Port = uint16(i)
		sink ^= Hash(&s, UDP, &l, &r)
	}
}
