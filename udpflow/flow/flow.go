package flow

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/burst"
)

// The protocols that have flows, by their IP protocol numbers.
const (
	TCP uint8 = 6
	UDP uint8 = 17
)

// Key names a flow: comparable, without pointers.
type Key struct {
	Proto  uint8          // IP protocol number
	Local  burst.Endpoint // ours; also on a wildcard bind the address that was asked
	Remote burst.Endpoint // the client's
}

// Hash returns the keyed hash of k.
func (k *Key) Hash(s *Secret) uint64 { return Hash(s, k.Proto, &k.Local, &k.Remote) }

// Secret is the key of Hash. All flow tables of one host share it.
type Secret [2]uint64

// NewSecret returns a random secret.
func NewSecret() Secret {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the process where the kernel has no randomness
	return Secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// messageSize is the length of what Hash hashes: both addresses, both scopes,
// both ports, and the protocol, little endian, local before remote.
const messageSize = 16 + 16 + 4 + 4 + 2 + 2 + 1

// Hash returns the SipHash-1-3 of the flow under s, 1 in place of 0. The rounds
// are written out: a loop over the six words costs half as much again, for it
// sends them through memory.
func Hash(s *Secret, proto uint8, local, remote *burst.Endpoint) uint64 {
	v0, v1, v2, v3 := initial(s[0], s[1])

	m := binary.LittleEndian.Uint64(local.IP[:8])
	v0, v1, v2, v3 = half1(v0, v1, v2, v3^m)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0 ^= m

	m = binary.LittleEndian.Uint64(local.IP[8:])
	v0, v1, v2, v3 = half1(v0, v1, v2, v3^m)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0 ^= m

	m = binary.LittleEndian.Uint64(remote.IP[:8])
	v0, v1, v2, v3 = half1(v0, v1, v2, v3^m)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0 ^= m

	m = binary.LittleEndian.Uint64(remote.IP[8:])
	v0, v1, v2, v3 = half1(v0, v1, v2, v3^m)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0 ^= m

	m = uint64(local.Scope) | uint64(remote.Scope)<<32
	v0, v1, v2, v3 = half1(v0, v1, v2, v3^m)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0 ^= m

	m = uint64(local.Port) | uint64(remote.Port)<<16 | uint64(proto)<<32 | messageSize<<56
	v0, v1, v2, v3 = half1(v0, v1, v2, v3^m)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0 ^= m

	v2 ^= 0xff
	v0, v1, v2, v3 = half1(v0, v1, v2, v3)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0, v1, v2, v3 = half1(v0, v1, v2, v3)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	v0, v1, v2, v3 = half1(v0, v1, v2, v3)
	v0, v1, v2, v3 = half2(v0, v1, v2, v3)
	if h := v0 ^ v1 ^ v2 ^ v3; h != 0 {
		return h
	}
	return 1
}
