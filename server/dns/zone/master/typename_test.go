package master

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

func TestTypeName(t *testing.T) {
	for code, want := range map[uint16]string{1: "A", 65: "HTTPS", 65280: "TYPE65280"} {
		if got := TypeName(wire.Type(code)); got != want {
			t.Errorf("type %d is %q, want %q", code, got, want)
		}
	}
}
