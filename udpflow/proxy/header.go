package proxy

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/burst"
)

// What a header of the PROXY protocol, version 2, says of a datagram (HAProxy's
// proxy-protocol.txt, section 2.2).
const (
	headerSignature = "\r\n\r\n\x00\r\nQUIT\n"
	headerProxy     = 0x21 // version 2, command PROXY
	headerUDP4      = 0x12
	headerUDP6      = 0x22
	headerMax       = 16 + 36
)

// appendHeader appends the header for a client that has sent to local.
func appendHeader(b []byte, remote, local *burst.Endpoint) []byte {
	b = append(append(b, headerSignature...), headerProxy)
	if remote.Is4() && local.Is4() {
		b = append(b, headerUDP4, 0, 12)
		b = append(append(b, remote.IP[12:]...), local.IP[12:]...)
	} else {
		b = append(b, headerUDP6, 0, 36)
		b = append(append(b, remote.IP[:]...), local.IP[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, remote.Port)
	return binary.BigEndian.AppendUint16(b, local.Port)
}
