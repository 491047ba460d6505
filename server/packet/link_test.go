package packet

import (
	"encoding/binary"
	"math"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/neighbour"
)

var otherMAC = header.MAC{2, 0, 0, 0, 0, 3}

func arp(t testing.TB, v uint16, to header.MAC, op uint16, mac header.MAC, sender, target netip.Addr) []byte {
	t.Helper()
	return serialize(t, append(ether(v, layers.EthernetTypeARP, to), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: hw(mac), SourceProtAddress: sender.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
	})...)
}

// nd returns a message of neighbour discovery from the peer.
func nd(t testing.TB, v uint16, src, dst netip.Addr, typ uint8, flags uint32, target netip.Addr, options ...byte) []byte {
	t.Helper()
	ip := ip6(src, dst, layers.IPProtocolICMPv6)
	ip.HopLimit = 255
	m := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
	_ = m.SetNetworkLayerForChecksum(ip)
	body := binary.BigEndian.AppendUint32(nil, flags)
	if target.IsValid() {
		body = append(body, target.AsSlice()...)
	}
	return serialize(t, append(ether(v, layers.EthernetTypeIPv6, ourMAC), ip, m, gopacket.Payload(append(body, options...)))...)
}

func linkOption(typ byte, mac header.MAC) []byte { return append([]byte{typ, 1}, mac[:]...) }

func solicitedNode(ip netip.Addr) netip.Addr {
	b := ip.As16()
	return netip.AddrFrom16(header.SolicitedNode(&b))
}

func decodeARP(t testing.TB, frame []byte) (*layers.Ethernet, *layers.ARP) {
	t.Helper()
	p := decode(t, frame)
	return p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), p.Layer(layers.LayerTypeARP).(*layers.ARP)
}

// RFC 826: a request for our address is answered, and its sender is learned.
func TestARPRequest(t *testing.T) {
	for _, c := range []struct {
		vlan      uint16
		ours, his netip.Addr
	}{{0, our4, peer4}, {vlan, vlan4, vpeer4}} {
		h := newHost(t, nil)
		in := arp(t, c.vlan, header.Broadcast, 1, peerMAC, c.his, c.ours)
		f := h.input(in)
		if h.want("request", f, Consumed, 0); !f.Share || string(f.Data) != string(in) {
			t.Error("not marked for others, or changed")
		}
		e, a := decodeARP(t, h.wire.take()[0])
		if string(e.DstMAC) != string(peerMAC[:]) || a.Operation != 2 || string(a.SourceHwAddress) != string(ourMAC[:]) ||
			string(a.SourceProtAddress) != string(c.ours.AsSlice()) || string(a.DstProtAddress) != string(c.his.AsSlice()) || string(a.DstHwAddress) != string(peerMAC[:]) {
			t.Errorf("answered %+v %+v", e, a)
		}
		if mac, s := h.Neighbour(c.his, c.vlan); mac != peerMAC || s != neighbour.Stale {
			t.Errorf("learned %x %v", mac, s)
		}
		sibling := newHost(t, func(c *Config) { c.Kernel = true })
		sibling.Learn(in, sibling.now)
		if mac, _ := sibling.Neighbour(c.his, c.vlan); mac != peerMAC || len(sibling.wire.sent) != 0 || sibling.Stats.In != 0 || !sibling.owner || !sibling.cfg.Kernel {
			t.Errorf("a sibling learned %x and sent %d frames", mac, len(sibling.wire.sent))
		}
	}
	h := newHost(t, nil)
	h.want("for another", h.input(arp(t, 0, header.Broadcast, 1, peerMAC, peer4, gw4)), Dropped, counters.DropNotLocal)
	h.want("on another VLAN", h.input(arp(t, vlan, header.Broadcast, 1, peerMAC, vpeer4, our4)), Dropped, counters.DropNotLocal)
	h.want("not of Ethernet", h.input(append(arp(t, 0, ourMAC, 1, peerMAC, peer4, our4)[:14], make([]byte, 28)...)), Dropped, counters.DropMalformed)
	h.want("a probe (RFC 5227)", h.input(arp(t, 0, header.Broadcast, 1, peerMAC, netip.IPv4Unspecified(), our4)), Consumed, 0)
	if h.table.Len() != 0 || len(h.wire.take()) != 1 {
		t.Error("a probe is to be answered, and says nothing of its sender")
	}
	h.input(arp(t, 0, header.Broadcast, 1, peerMAC, far4, our4))
	if h.wire.take(); h.table.Len() != 0 {
		t.Error("a sender that is on no link of ours is learned")
	}
	h.Disown()
	if h.want("not ours to answer", h.input(arp(t, 0, header.Broadcast, 1, peerMAC, peer4, our4)), Consumed, 0); len(h.wire.sent) != 0 {
		t.Error("answered by who does not own the wire")
	}
}

// A datagram by route waits for its next hop, which is asked for, and goes with the
// answer; over both families, directly and through a gateway.
func TestResolve(t *testing.T) {
	for _, c := range []struct{ local, remote, hop netip.Addr }{
		{our4, peer4, peer4}, {our4, far4, gw4}, {our6, peer6, peer6}, {our6, far6, gw6}, {vlan4, vpeer4, vpeer4}, {vlan6, vpeer6, vpeer6},
	} {
		h := newHost(t, nil)
		v := uint16(0)
		if c.local == vlan4 || c.local == vlan6 {
			v = vlan
		}
		send := func() *Datagram { return h.output(at(c.local, port), at(c.remote, 4242), []byte(asked), header.Link{}) }
		if d := send(); d.Verdict != Waits {
			t.Fatalf("%v: %v (%v)", c.remote, d.Verdict, d.Drop)
		}
		ask := h.wire.take()
		if len(ask) != 1 {
			t.Fatalf("%v: %d frames", c.remote, len(ask))
		}
		if c.hop.Is4() {
			e, a := decodeARP(t, ask[0])
			if string(e.DstMAC) != string(header.Broadcast[:]) || a.Operation != 1 || string(a.SourceProtAddress) != string(c.local.AsSlice()) || string(a.DstProtAddress) != string(c.hop.AsSlice()) {
				t.Errorf("asked by %+v", a)
			}
			h.want("answer", h.input(arp(t, v, ourMAC, 2, peerMAC, c.hop, c.local)), Consumed, 0)
		} else {
			p := decode(t, ask[0])
			ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
			s := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation)
			if ip.HopLimit != 255 || string(ip.DstIP) != string(solicitedNode(c.hop).AsSlice()) || string(s.TargetAddress) != string(c.hop.AsSlice()) || len(s.Options) != 1 {
				t.Errorf("asked by %+v %+v", ip, s)
			}
			h.want("answer", h.input(nd(t, v, c.hop, c.local, 136, header.FlagAnswer|header.FlagReplace, c.hop, linkOption(2, peerMAC)...)), Consumed, 0)
		}
		if mac, s := h.Neighbour(c.hop, v); mac != peerMAC || s != neighbour.Reachable {
			t.Errorf("%v: %x %v", c.hop, mac, s)
		}
		sent := h.wire.take()
		if len(sent) != 1 {
			t.Fatalf("%v: %d frames after the answer", c.remote, len(sent))
		}
		d := send()
		if d.Verdict != Transmit {
			t.Fatalf("%v: %v (%v)", c.remote, d.Verdict, d.Drop)
		}
		for _, frame := range [][]byte{sent[0], d.Frame} {
			p := decode(t, frame)
			if e := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet); string(e.DstMAC) != string(peerMAC[:]) || p.NetworkLayer().NetworkFlow().Dst().String() != c.remote.String() {
				t.Errorf("%v: %v", c.remote, p)
			}
		}
	}
}

// A next hop that stays silent costs what waits for it, counted.
func TestUnresolved(t *testing.T) {
	h := newHost(t, nil)
	for range 20 {
		h.output(at(our4, port), at(peer4, 1), []byte("x"), header.Link{})
	}
	if _, waiting := h.Pending(); waiting != 16 {
		t.Errorf("%d wait", waiting)
	}
	for range 5 {
		h.tick(second)
	}
	if _, waiting := h.Pending(); waiting != 0 || h.Stats.Unresolved != 20 || len(h.wire.take()) != 3+4 { // 3 probes, 4 announcements
		t.Errorf("%d wait, %d unresolved", waiting, h.Stats.Unresolved)
	}
	h.table.Set(neighbour.Key{IP: peer4.As16()}, peerMAC)
	if d := h.output(at(our4, port), at(peer4, 1), []byte("x"), header.Link{}); d.Verdict != Transmit {
		t.Errorf("static: %v", d.Verdict)
	}
}

// RFC 4861 7.2.3, 7.2.4: who asks is answered, and learned if it tells.
func TestNeighbourSolicitation(t *testing.T) {
	h := newHost(t, nil)
	h.want("multicast", h.input(nd(t, 0, peer6, solicitedNode(our6), 135, 0, our6, linkOption(1, peerMAC)...)), Consumed, 0)
	p := decode(t, h.wire.take()[0])
	ip, a := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6), p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if ip.HopLimit != 255 || string(ip.DstIP) != string(peer6.AsSlice()) || !a.Solicited() || !a.Override() || a.Router() || string(a.TargetAddress) != string(our6.AsSlice()) ||
		len(a.Options) != 1 || string(a.Options[0].Data) != string(ourMAC[:]) {
		t.Errorf("answered by %+v %+v", ip, a)
	}
	if mac, s := h.Neighbour(peer6, 0); mac != peerMAC || s != neighbour.Stale {
		t.Errorf("learned %x %v", mac, s)
	}
	h.want("unicast, without an option", h.input(nd(t, 0, gw6, our6, 135, 0, our6)), Consumed, 0)
	if e := decode(t, h.wire.take()[0]).Layer(layers.LayerTypeEthernet).(*layers.Ethernet); string(e.DstMAC) != string(peerMAC[:]) {
		t.Errorf("answered to %v", e.DstMAC)
	}
	h.want("detecting (RFC 4862)", h.input(nd(t, 0, netip.IPv6Unspecified(), solicitedNode(our6), 135, 0, our6)), Consumed, 0)
	p = decode(t, h.wire.take()[0])
	if ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ip.DstIP.String() != "ff02::1" {
		t.Errorf("answered to %v", ip.DstIP)
	}

	far := nd(t, 0, peer6, our6, 135, 0, our6)
	far[21] = 254
	badSum := nd(t, 0, peer6, our6, 135, 0, our6)
	badSum[60]++
	for name, c := range map[string]struct {
		frame []byte
		want  counters.Reason
	}{
		"forwarded":              {far, counters.DropMalformed},
		"checksum":               {badSum, counters.DropChecksum},
		"option of length 0":     {nd(t, 0, peer6, our6, 135, 0, our6, 1, 0, 0, 0, 0, 0, 0, 0), counters.DropMalformed},
		"option past the end":    {nd(t, 0, peer6, our6, 135, 0, our6, 1, 2, 0, 0, 0, 0, 0, 0), counters.DropMalformed},
		"detecting with option":  {nd(t, 0, netip.IPv6Unspecified(), solicitedNode(our6), 135, 0, our6, linkOption(1, peerMAC)...), counters.DropMalformed},
		"detecting by unicast":   {nd(t, 0, netip.IPv6Unspecified(), our6, 135, 0, our6), counters.DropMalformed},
		"of a multicast address": {nd(t, 0, peer6, our6, 135, 0, solicitedNode(our6)), counters.DropMalformed},
		"group's link address":   {nd(t, 0, peer6, our6, 135, 0, our6, linkOption(1, header.Broadcast)...), counters.DropMalformed},
		"for another":            {nd(t, 0, peer6, solicitedNode(gw6), 135, 0, gw6), counters.DropNotLocal},
		"multicast, solicited":   {nd(t, 0, peer6, netip.MustParseAddr("ff02::1"), 136, header.FlagAnswer, peer6), counters.DropMalformed},
		"redirect":               {nd(t, 0, peer6, our6, 137, 0, our6), counters.DropProtocol},
		"router, not link-local": {nd(t, 0, peer6, our6, 134, 0, netip.Addr{}, make([]byte, 8)...), counters.DropMalformed},
	} {
		if h.want(name, h.input(c.frame), Dropped, c.want); len(h.wire.take()) != 0 {
			t.Errorf("%s: answered", name)
		}
	}
}

// An owner announces its addresses twice; another that claims one is answered by an
// announcement, at most one in ten seconds (RFC 5227 2.4).
func TestAnnounceAndConflict(t *testing.T) {
	h := newHost(t, nil)
	h.Own(h.now)
	sent := h.wire.take()
	if len(sent) != 4 {
		t.Fatalf("%d announcements of 4 addresses", len(sent))
	}
	e, a := decodeARP(t, sent[0])
	if string(e.DstMAC) != string(header.Broadcast[:]) || string(a.SourceProtAddress) != string(our4.AsSlice()) || string(a.DstProtAddress) != string(our4.AsSlice()) {
		t.Errorf("announced by %+v", a)
	}
	p := decode(t, sent[3])
	if n := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement); n.Solicited() || !n.Override() {
		t.Errorf("announced by %+v", n)
	}
	if q := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); q.VLANIdentifier != vlan {
		t.Errorf("announced on VLAN %d", q.VLANIdentifier)
	}
	if next := h.tick(announceTime); next != math.MaxInt64 || len(h.wire.take()) != 4 {
		t.Errorf("the second time; next tick %d", next)
	}
	for i, want := range []int{1, 0, 0, 1} {
		if i == 3 {
			h.now += defendInterval
		}
		h.want("claim", h.input(arp(t, 0, header.Broadcast, 1, otherMAC, our4, our4)), Consumed, 0)
		if n := len(h.wire.take()); n != want {
			t.Errorf("claim %d: %d announcements, want %d", i, n, want)
		}
	}
	h.want("our own, from another generation", h.input(arp(t, 0, header.Broadcast, 1, ourMAC, our4, our4)), Consumed, 0)
	h.want("IPv6 claim", h.input(nd(t, 0, peer6, our6, 136, header.FlagReplace, our6, linkOption(2, otherMAC)...)), Consumed, 0)
	if h.Stats.Conflicts != 5 {
		t.Errorf("%d conflicts", h.Stats.Conflicts)
	}
}

// RFC 4862 5.4, RFC 5227 2.1: an address that is asked for is not used before a
// second has passed, and never when somebody has it.
func TestDetection(t *testing.T) {
	detecting := func() *host {
		h := newHost(t, func(c *Config) {
			for i := range c.Addresses {
				c.Addresses[i].Detect = true
			}
		})
		if next := h.tick(0); next != h.now+detectTime {
			t.Errorf("next tick at %d", next)
		}
		return h
	}
	asked4, asked6 := query(t, 0, at(peer4, 1), at(our4, port), asked), query(t, 0, at(peer6, 1), at(our6, port), asked)
	h := detecting()
	sent := h.wire.take()
	if len(sent) != 4 {
		t.Fatalf("%d probes for 4 addresses", len(sent))
	}
	if _, a := decodeARP(t, sent[0]); string(a.SourceProtAddress) != "\x00\x00\x00\x00" || string(a.DstProtAddress) != string(our4.AsSlice()) {
		t.Errorf("probed by %+v", a)
	}
	p := decode(t, sent[1])
	if s := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation); len(s.Options) != 0 || !p.Layer(layers.LayerTypeIPv6).(*layers.IPv6).SrcIP.IsUnspecified() {
		t.Errorf("probed by %+v", s)
	}
	h.want("too early, IPv4", h.input(asked4), Dropped, counters.DropNotLocal)
	h.want("too early, IPv6", h.input(asked6), Dropped, counters.DropNotLocal)
	h.input(arp(t, 0, header.Broadcast, 1, peerMAC, peer4, our4))
	if len(h.wire.take()) != 0 {
		t.Error("a tentative address is answered for")
	}
	h.tick(detectTime)
	if n := len(h.wire.take()); n < 4 {
		t.Errorf("%d announcements", n)
	}
	h.want("after a second, IPv4", h.input(asked4), Deliver, 0)
	h.want("after a second, IPv6", h.input(asked6), Deliver, 0)

	for name, answer := range map[string][]byte{
		"ARP answer":        arp(t, 0, ourMAC, 2, otherMAC, our4, our4),
		"ARP probe":         arp(t, 0, header.Broadcast, 1, otherMAC, netip.IPv4Unspecified(), our4),
		"NDP advertisement": nd(t, 0, our6, netip.MustParseAddr("ff02::1"), 136, header.FlagReplace, our6, linkOption(2, otherMAC)...),
		"NDP solicitation":  nd(t, 0, netip.IPv6Unspecified(), solicitedNode(our6), 135, 0, our6),
	} {
		h := detecting()
		if f := h.input(answer); !f.Share {
			t.Errorf("%s: siblings do not hear of it", name)
		}
		h.tick(detectTime)
		s4, _ := h.State(our4)
		s6, _ := h.State(our6)
		if h.Stats.Duplicates != 1 || (s4 == Taken) == (s6 == Taken) {
			t.Errorf("%s: IPv4 %v, IPv6 %v, %d duplicates", name, s4, s6, h.Stats.Duplicates)
		}
	}
}

// RFC 4861 6.3.7: three solicitations, four seconds apart, until a router answers;
// it is used where no route leads, until its lifetime ends.
func TestRouters(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Routers = true })
	nowhere := netip.MustParseAddr("2001:db8:9::9")
	if d := h.output(at(our6, port), at(nowhere, 1), []byte("x"), header.Link{}); d.Drop != counters.DropNoRoute {
		t.Errorf("before: %v", d.Drop)
	}
	n := 0
	for range 20 {
		h.tick(second)
		for _, b := range h.wire.take() {
			if s, ok := decode(t, b).Layer(layers.LayerTypeICMPv6RouterSolicitation).(*layers.ICMPv6RouterSolicitation); ok && len(s.Options) == 1 {
				n++
			}
		}
	}
	if n != 3*2 {
		t.Errorf("%d solicitations on two links", n)
	}
	router := netip.MustParseAddr("fe80::1")
	body := append(make([]byte, 8), linkOption(1, peerMAC)...)
	h.want("advertisement", h.input(nd(t, 0, router, netip.MustParseAddr("ff02::1"), 134, 0x40000708, netip.Addr{}, body...)), Consumed, 0) // 1800 s
	d := h.output(at(our6, port), at(nowhere, 1), []byte(asked), header.Link{})
	if d.Verdict != Transmit || header.MAC(d.Frame) != peerMAC {
		t.Errorf("through the router: %v (%v)", d.Verdict, d.Drop)
	}
	h.now += 1800 * second
	if d := h.output(at(our6, port), at(nowhere, 1), []byte("x"), header.Link{}); d.Drop != counters.DropNoRoute {
		t.Errorf("after its lifetime: %v", d.Drop)
	}
}
