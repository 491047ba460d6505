package flow

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/burst"
)

// The reference that Hash is judged by gives the published SipHash-2-4 values
// (Aumasson and Bernstein, "SipHash", appendix A and vectors.h: key 00 01 .. 0f,
// message 00 01 02 ...).
func TestReferenceGivesPublishedVectors(t *testing.T) {
	const k0, k1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908
	var msg [64]byte
	for i := range msg {
		msg[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0:  0x726fdb47dd0e0e31,
		1:  0x74f839c593dc67fd,
		7:  0xab0200f58b01d137,
		8:  0x93f5f5799a932462,
		15: 0xa129ca6149be45e5,
		63: 0x958a324ceb064572,
	} {
		if got := sipHash(2, 4, k0, k1, msg[:n]); got != want {
			t.Errorf("SipHash-2-4 of %d bytes is %#x, published as %#x", n, got, want)
		}
	}
}

func genEndpoint() *rapid.Generator[burst.Endpoint] {
	return rapid.Custom(func(t *rapid.T) burst.Endpoint {
		var e burst.Endpoint
		copy(e.IP[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ip"))
		e.Scope = rapid.Uint32().Draw(t, "scope")
		e.Port = rapid.Uint16().Draw(t, "port")
		return e
	})
}

func genKey() *rapid.Generator[Key] {
	return rapid.Custom(func(t *rapid.T) Key {
		return Key{
			Proto:  rapid.Uint8().Draw(t, "proto"),
			Local:  genEndpoint().Draw(t, "local"),
			Remote: genEndpoint().Draw(t, "remote"),
		}
	})
}

// message is the documented packing of a key, field by field.
func message(k *Key) []byte {
	m := append([]byte(nil), k.Local.IP[:]...)
	m = append(m, k.Remote.IP[:]...)
	m = binary.LittleEndian.AppendUint32(m, k.Local.Scope)
	m = binary.LittleEndian.AppendUint32(m, k.Remote.Scope)
	m = binary.LittleEndian.AppendUint16(m, k.Local.Port)
	m = binary.LittleEndian.AppendUint16(m, k.Remote.Port)
	return append(m, k.Proto)
}

// Hash is SipHash-1-3 of the documented packing.
func TestHashIsSipHash13(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Secret{rapid.Uint64().Draw(t, "k0"), rapid.Uint64().Draw(t, "k1")}
		k := genKey().Draw(t, "key")
		if got, want := k.Hash(&s), sipHash(1, 3, s[0], s[1], message(&k)); got != want {
			t.Fatalf("Hash is %#x, SipHash-1-3 is %#x", got, want)
		}
	})
}

// No field of the key is left out, and swapping the ends makes another flow.
func TestHashCoversEveryField(t *testing.T) {
	s := Secret{1, 2}
	k := Key{
		Proto:  UDP,
		Local:  burst.EndpointOf(netip.MustParseAddrPort("[fe80::1]:53")),
		Remote: burst.EndpointOf(netip.MustParseAddrPort("[fe80::2]:40000")),
	}
	seen := map[uint64]string{k.Hash(&s): "the key itself"}
	differ := func(what string, k Key) {
		t.Helper()
		h := k.Hash(&s)
		if other, ok := seen[h]; ok {
			t.Errorf("%s hashes as %s", what, other)
		}
		seen[h] = what
	}
	for name, end := range map[string]func(*Key) *burst.Endpoint{
		"local":  func(k *Key) *burst.Endpoint { return &k.Local },
		"remote": func(k *Key) *burst.Endpoint { return &k.Remote },
	} {
		for i := range 16 {
			c := k
			end(&c).IP[i] ^= 0x80
			differ(name+" address", c)
		}
		c := k
		end(&c).Scope++
		differ(name+" scope", c)
		c = k
		end(&c).Port ^= 0x100
		differ(name+" port", c)
	}
	c := k
	c.Proto = TCP
	differ("protocol", c)
	differ("swapped ends", Key{Proto: UDP, Local: k.Remote, Remote: k.Local})
	if s2 := (Secret{1, 3}); k.Hash(&s2) == k.Hash(&s) {
		t.Error("the secret does not change the hash")
	}
}

// Two secrets are never the same, nor zero.
func TestNewSecretIsRandom(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if a == b || a == (Secret{}) {
		t.Fatalf("secrets %x and %x", a, b)
	}
}

func TestHashAllocatesNothing(t *testing.T) {
	s, k := NewSecret(), Key{Proto: UDP}
	if n := testing.AllocsPerRun(100, func() { sink ^= k.Hash(&s) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
