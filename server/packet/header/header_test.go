package header

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"
)

// dumb is RFC 1071 as it is written down.
func dumb(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		sum += w
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// The checksum is that of RFC 1071, in one piece and in pieces of even length.
func TestChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xfe, 0xff}), 0, 200).Draw(t, "bytes")
		cut := rapid.IntRange(0, len(b)).Draw(t, "cut") &^ 1
		want := dumb(b)
		for name, got := range map[string]uint16{
			"whole": Sum(0).Add(b).Checksum(), "pieces": Sum(0).Add(b[:cut]).Add(b[cut:]).Checksum(),
		} {
			// 0 and 0xffff are the same number in one's complement.
			if got != want && got+want != 0xffff {
				t.Fatalf("%s, %x: %#04x, want %#04x", name, b, got, want)
			}
		}
	})
}

// The example of RFC 1071 3.
func TestChecksumRFC(t *testing.T) {
	if got := Sum(0).Add([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}).Folded(); got != 0xddf2 {
		t.Errorf("RFC 1071 3: %#04x, want 0xddf2", got)
	}
}

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// What is written is byte for byte what gopacket writes, over IPv4 and IPv6.
func TestUDPAgainstGopacket(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		payload := make([]byte, rng.IntN(1400))
		for i := range payload {
			payload[i] = byte(rng.Uint32())
		}
		var src, dst [16]byte
		for i := range src {
			src[i], dst[i] = byte(rng.Uint32()), byte(rng.Uint32())
		}
		sport, dport := uint16(rng.Uint32()), uint16(rng.Uint32())
		udp := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
		length := UDPSize + len(payload)

		ip6 := &layers.IPv6{Version: 6, TrafficClass: 2, NextHeader: layers.IPProtocolUDP, HopLimit: 7, SrcIP: src[:], DstIP: dst[:]}
		_ = udp.SetNetworkLayerForChecksum(ip6)
		want := serialize(t, ip6, udp, gopacket.Payload(payload))
		got := make([]byte, IPv6Size+length)
		copy(got[IPv6Size+UDPSize:], payload)
		PutIPv6(got, &IPFields{Src: &src, Dst: &dst, Proto: UDP, HopLimit: 7, ECN: 2, Length: length})
		PutUDP(got[IPv6Size:], sport, dport, length, Pseudo(IPv6(got).Addrs(), UDP, length), false)
		if string(got) != string(want) {
			t.Fatalf("IPv6\n got %x\nwant %x", got, want)
		}

		src, dst = Mapped(src[:]), Mapped(dst[:])
		ip4 := &layers.IPv4{Version: 4, TOS: 1, Id: 9, Flags: layers.IPv4DontFragment, TTL: 3, Protocol: layers.IPProtocolUDP, SrcIP: src[12:], DstIP: dst[12:]}
		_ = udp.SetNetworkLayerForChecksum(ip4)
		want = serialize(t, ip4, udp, gopacket.Payload(payload))
		got = make([]byte, IPv4Size+length)
		copy(got[IPv4Size+UDPSize:], payload)
		PutIPv4(got, &IPFields{Src: &src, Dst: &dst, Proto: UDP, HopLimit: 3, ECN: 1, ID: 9, DF: true, Length: length})
		PutUDP(got[IPv4Size:], sport, dport, length, PseudoOf(&src, &dst, UDP, length), false)
		if string(got) != string(want) {
			t.Fatalf("IPv4\n got %x\nwant %x", got, want)
		}
	}
}

// A checksum that comes out as 0 is sent as 0xffff (RFC 768).
func TestUDPChecksumNeverZero(t *testing.T) {
	b := make([]byte, UDPSize+2)
	PutUDP(b, 0, 0, len(b), 0, false)
	c := binary.BigEndian.Uint16(b[6:]) // of the header alone
	binary.BigEndian.PutUint16(b[8:], c)
	PutUDP(b, 0, 0, len(b), 0, false)
	if got := binary.BigEndian.Uint16(b[6:]); got != 0xffff {
		t.Errorf("checksum %#04x, want 0xffff", got)
	}
	PutUDP(b, 0, 0, len(b), Pseudo([]byte{10, 0, 0, 1, 10, 0, 0, 2}, UDP, len(b)), true)
	if got, want := binary.BigEndian.Uint16(b[6:]), ^dumb([]byte{10, 0, 0, 1, 10, 0, 0, 2, 0, UDP, 0, byte(len(b))}); got != want {
		t.Errorf("for the device: %#04x, want the pseudo header's sum %#04x", got, want)
	}
}

func TestLink(t *testing.T) {
	a, b := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	plain := serialize(t, &layers.Ethernet{SrcMAC: a, DstMAC: b, EthernetType: layers.EthernetTypeIPv4}, gopacket.Payload("x"))
	tagged := serialize(t, &layers.Ethernet{SrcMAC: a, DstMAC: b, EthernetType: layers.EthernetTypeDot1Q},
		&layers.Dot1Q{Priority: 5, VLANIdentifier: 100, Type: layers.EthernetTypeIPv6}, gopacket.Payload("x"))
	for name, c := range map[string]struct {
		frame []byte
		typ   uint16
		at    int
		vlan  uint16
	}{"plain": {plain, TypeIPv4, 14, 0}, "tagged": {tagged, TypeIPv6, 18, 100}} {
		l, typ, at, ok := ParseLink(c.frame)
		if !ok || typ != c.typ || at != c.at || l.VLAN() != c.vlan || l.Size() != c.at || string(l.Peer[:]) != string(a) || string(l.Own[:]) != string(b) {
			t.Errorf("%s: %+v type %#x at %d, %v", name, l, typ, at, ok)
		}
		back := make([]byte, at)
		if l.Put(back, typ); string(back[0:6]) != string(a) || string(back[6:12]) != string(b) || string(back[12:]) != string(c.frame[12:at]) {
			t.Errorf("%s: the way back is %x, of %x", name, back, c.frame)
		}
		for n := range at {
			if _, _, _, ok := ParseLink(c.frame[:n]); ok {
				t.Errorf("%s: %d bytes pass", name, n)
			}
		}
	}
}

// Extension headers: RFC 8200 4, RFC 5095, RFC 8504.
func TestWalk(t *testing.T) {
	fixed := make([]byte, IPv6Size)
	pad := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }
	option := func(next, typ byte) []byte { return []byte{next, 0, 0, typ, 2, 0, 0, 0} }
	repeat := func(n int) (b []byte) {
		for range n - 1 {
			b = append(b, pad(Destination)...)
		}
		return append(b, pad(UDP)...)
	}
	for name, c := range map[string]struct {
		first uint8
		rest  []byte
		want  Chain
	}{
		"none":                     {UDP, nil, Chain{UDP, 40, 0, Intact, 6}},
		"hop by hop":               {HopByHop, pad(UDP), Chain{UDP, 48, 0, Intact, 40}},
		"hop by hop, destination":  {HopByHop, append(pad(Destination), pad(TCP)...), Chain{TCP, 56, 0, Intact, 48}},
		"hop by hop second":        {Destination, append(pad(HopByHop), pad(UDP)...), Chain{HopByHop, 48, 0, UnknownNext, 40}},
		"cut header":               {Destination, pad(UDP)[:7], Chain{Destination, 40, 0, Cut, 0}},
		"length past the end":      {Destination, []byte{UDP, 1, 1, 4, 0, 0, 0, 0}, Chain{Destination, 40, 0, Cut, 0}},
		"option past the end":      {Destination, []byte{UDP, 0, 1, 5, 0, 0, 0, 0}, Chain{Destination, 40, 0, Cut, 0}},
		"unknown option, skip":     {Destination, option(UDP, 0x1e), Chain{UDP, 48, 0, Intact, 40}},
		"unknown option, drop":     {Destination, option(UDP, 0x5e), Chain{Destination, 40, 0, Silent, 0}},
		"unknown option, say so":   {Destination, option(UDP, 0x9e), Chain{Destination, 40, 0, UnknownOpt, 43}},
		"jumbogram (RFC 2675)":     {HopByHop, []byte{UDP, 0, 0xc2, 4, 0, 1, 0, 0}, Chain{HopByHop, 40, 0, UnknownOpt, 42}},
		"router alert":             {HopByHop, []byte{UDP, 0, 5, 2, 0, 0, 1, 0}, Chain{UDP, 48, 0, Intact, 40}},
		"route at its end":         {Routing, []byte{UDP, 0, 0, 0, 0, 0, 0, 0}, Chain{UDP, 48, 0, Intact, 40}},
		"type 0 route (RFC 5095)":  {Routing, []byte{UDP, 0, 0, 1, 0, 0, 0, 0}, Chain{Routing, 40, 0, Erroneous, 42}},
		"fragment":                 {FragmentProto, []byte{UDP, 0, 0, 1, 0, 0, 0, 7}, Chain{UDP, 48, 40, Intact, 40}},
		"cut fragment":             {FragmentProto, []byte{UDP, 0, 0, 1}, Chain{FragmentProto, 40, 0, Cut, 0}},
		"as many as are allowed":   {Destination, repeat(maxHeaders), Chain{UDP, 40 + 8*maxHeaders, 0, Intact, 40 + 8*(maxHeaders-1)}},
		"one more than is allowed": {Destination, repeat(maxHeaders + 1), Chain{Destination, 40 + 8*maxHeaders, 0, Silent, 0}},
	} {
		b := append(append([]byte{}, fixed...), c.rest...)
		if got := Walk(b, c.first, IPv6Size); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestIPv4Options(t *testing.T) {
	for name, c := range map[string]struct {
		options []byte
		ok      bool
	}{
		"none": {nil, true}, "nops": {[]byte{1, 1, 1, 1}, true}, "end, then anything": {[]byte{0, 131, 9, 9}, true},
		"timestamp": {[]byte{68, 4, 5, 0}, true}, "loose route": {[]byte{131, 3, 4, 0}, false}, "strict route": {[]byte{1, 137, 3, 4}, false},
		"length 1": {[]byte{7, 1, 0, 0}, false}, "length 0": {[]byte{7, 0, 0, 0}, false}, "too long": {[]byte{7, 5, 0, 0}, false}, "no length": {[]byte{1, 1, 1, 7}, false},
	} {
		b := make([]byte, IPv4Size+len(c.options))
		b[0] = 0x40 | byte(len(b)/4)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		copy(b[IPv4Size:], c.options)
		h, ok := ParseIPv4(b)
		if !ok || h.OptionsAllowed() != c.ok {
			t.Errorf("%s: parsed %v, allowed %v, want %v", name, ok, ok && h.OptionsAllowed(), c.ok)
		}
	}
}

// Nothing runs past the end of what a Parse function let through.
func FuzzViews(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 20, 19: 1})
	f.Add([]byte{0x60, 0, 0, 0, 0, 8, 60, 39: 1, 47: 0})
	f.Add([]byte{0, 1, 8, 0, 6, 4, 0, 1, 27: 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := ParseIPv4(b); ok {
			_, _, _, _, _ = h.Payload(), h.OptionsAllowed(), h.ChecksumRight(), h.Src(), h.Dst()
		}
		if h, ok := ParseIPv6(b); ok {
			if c := Walk(h, h.Next(), IPv6Size); c.At > len(h) || c.Pointer > len(h) {
				t.Fatalf("%+v in %d bytes", c, len(h))
			}
		}
		if a, ok := ParseARP(b); ok {
			_, _, _ = a.Sender(), a.Target(), a.SenderMAC()
		}
		if v, ok := NDOption(b, SourceLink); v != nil && (!ok || len(v) < 6) {
			t.Fatalf("option of %d bytes", len(v))
		}
		_, _, _, _ = ParseLink(b)
	})
}

var sink uint16

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{40, 512, 1400} {
		buf := make([]byte, n)
		b.Run("", func(b *testing.B) {
			b.SetBytes(int64(n))
			for range b.N {
				sink ^= Sum(0).Add(buf).Checksum()
			}
		})
	}
}

// What one host hears of neighbours is told apart from everything else.
func TestDiscovery(t *testing.T) {
	link := Link{Peer: MAC{2, 5: 1}, Own: MAC{2, 5: 2}}
	tagged := Link{Peer: link.Peer, Own: link.Own, TCI: 7, Tag: true}
	icmp := func(l Link, next, typ uint8) []byte {
		b := make([]byte, LinkMax+IPv6Size+ICMPSize)
		at := l.Put(b, TypeIPv6)
		ip := [16]byte{0xfe, 0x80}
		PutIPv6(b[at:], &IPFields{Src: &ip, Dst: &ip, Proto: next, HopLimit: 255, Length: ICMPSize})
		b[at+IPv6Size] = typ
		return b[:at+IPv6Size+ICMPSize]
	}
	arp := func(l Link) []byte {
		b := make([]byte, LinkMax+ARPSize)
		return b[:l.Put(b, TypeARP)+ARPSize]
	}
	for name, c := range map[string]struct {
		frame []byte
		want  bool
	}{
		"arp": {arp(link), true}, "tagged arp": {arp(tagged), true}, "solicitation": {icmp(link, ICMPv6, NeighSolicit), true},
		"tagged advertisement": {icmp(tagged, ICMPv6, NeighAdvert), true}, "router": {icmp(link, ICMPv6, RouterAdvert), true},
		"too big": {icmp(link, ICMPv6, PacketTooBig6), false}, "echo": {icmp(link, ICMPv6, EchoRequest6), false},
		"udp": {icmp(link, UDP, NeighSolicit), false}, "short": {icmp(link, ICMPv6, NeighSolicit)[:EthernetSize+IPv6Size], false}, "none": {nil, false},
	} {
		if got := Discovery(c.frame); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
