package proxy

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/burst"
)

// Refusals by ICMP that a lane sends: one a millisecond, and so many at once.
const refusalBurst = 100

// budget bounds how often something is done: once a millisecond.
type budget struct {
	left int32
	at   uint32 // mono.Millis of the last look
}

// take reports whether it may be done once more.
func (b *budget) take(now uint32) bool {
	if d := int32(now - b.at); d > 0 {
		b.left = min(b.left+min(d, refusalBurst), refusalBurst)
		b.at = now
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

// clientOf returns what the flows of a client are counted by: an IPv4 address, or
// the first 64 bits of an IPv6 one, for a host has all of those.
func clientOf(e *burst.Endpoint) [16]byte {
	if e.Is4() {
		return e.IP
	}
	var c [16]byte
	binary.BigEndian.PutUint64(c[:], binary.BigEndian.Uint64(e.IP[:]))
	return c
}
