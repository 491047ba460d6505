package master

import (
	"strconv"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// TypeName returns how a master file writes t: its mnemonic, or TYPE and its
// number (RFC 3597 5).
func TypeName(t wire.Type) string {
	if i, ok := byCode[t]; ok {
		return i.name
	}
	return "TYPE" + strconv.Itoa(int(t))
}
