package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

func icmp4(t testing.TB, typ, code uint8, word uint32, data []byte) []byte {
	t.Helper()
	m := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(typ, code), Id: uint16(word >> 16), Seq: uint16(word)}
	return serialize(t, append(ether(0, layers.EthernetTypeIPv4, ourMAC), ip4(gw4, our4, layers.IPProtocolICMPv4), m, gopacket.Payload(data))...)
}

func icmp6(t testing.TB, typ, code uint8, word uint32, data []byte) []byte {
	t.Helper()
	ip := ip6(gw6, our6, layers.IPProtocolICMPv6)
	m := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, code)}
	_ = m.SetNetworkLayerForChecksum(ip)
	return serialize(t, append(ether(0, layers.EthernetTypeIPv6, ourMAC), ip, m, gopacket.Payload(append(binary.BigEndian.AppendUint32(nil, word), data...)))...)
}

// answered returns an answer that we sent, from its IP header on.
func answered(t testing.TB, h *host, local, remote netip.AddrPort, n int) []byte {
	t.Helper()
	d := h.output(local, remote, make([]byte, n), header.Link{Peer: peerMAC, Own: ourMAC})
	if d.Verdict == Split {
		return h.wire.take()[0][14:]
	}
	return d.Frame[14:]
}

// An error names the flow of the datagram that it quotes, whole or cut to its
// ports, also when that was a first fragment or had options.
func TestErrors(t *testing.T) {
	h := newHost(t, nil)
	local4, remote4, local6, remote6 := at(our4, port), at(far4, 4242), at(our6, port), at(far6, 4242)
	q4, q6 := answered(t, h, local4, remote4, 100), answered(t, h, local6, remote6, 100)
	big4, big6 := answered(t, h, local4, remote4, 3000), answered(t, h, local6, remote6, 3000)
	options := append(append(append([]byte{}, q4[:20]...), 1, 1, 1, 1), q4[20:]...)
	options[0] = 0x46
	for name, c := range map[string]struct {
		frame []byte
		v6    bool
		want  Fault
	}{
		"port unreachable":          {icmp4(t, 3, 3, 0, q4), false, Fault{PortUnreachable, 3, 3, 0, 0}},
		"port unreachable, cut":     {icmp4(t, 3, 3, 0, q4[:28]), false, Fault{PortUnreachable, 3, 3, 0, 0}},
		"port unreachable, options": {icmp4(t, 3, 3, 0, options[:32]), false, Fault{PortUnreachable, 3, 3, 0, 0}},
		"host unreachable":          {icmp4(t, 3, 1, 0, q4), false, Fault{HostUnreachable, 3, 1, 0, 0}},
		"forbidden":                 {icmp4(t, 3, 13, 0, q4), false, Fault{HostUnreachable, 3, 13, 0, 0}},
		"too big":                   {icmp4(t, 3, 4, 1400, q4), false, Fault{TooBig, 3, 4, 1400, 0}},
		"too big, old router":       {icmp4(t, 3, 4, 0, big4[:28]), false, Fault{TooBig, 3, 4, 0, 0}},
		"time exceeded":             {icmp4(t, 11, 0, 0, q4), false, Fault{TimeExceeded, 11, 0, 0, 0}},
		"parameter problem":         {icmp4(t, 12, 0, 20<<24, q4), false, Fault{ParameterProblem, 12, 0, 0, 20}},
		"v6: port unreachable":      {icmp6(t, 1, 4, 0, q6), true, Fault{PortUnreachable, 1, 4, 0, 0}},
		"v6: no route":              {icmp6(t, 1, 0, 0, q6), true, Fault{HostUnreachable, 1, 0, 0, 0}},
		"v6: too big, a fragment":   {icmp6(t, 2, 0, 1300, big6[:60]), true, Fault{TooBig, 2, 0, 1300, 0}},
		"v6: time exceeded":         {icmp6(t, 3, 1, 0, q6[:48]), true, Fault{TimeExceeded, 3, 1, 0, 0}},
		"v6: parameter problem":     {icmp6(t, 4, 1, 40, q6), true, Fault{ParameterProblem, 4, 1, 0, 40}},
	} {
		f := h.input(c.frame)
		h.want(name, f, Error, 0)
		local, remote := local4, remote4
		if c.v6 {
			local, remote = local6, remote6
		}
		if f.Local.AddrPort() != local || f.Remote.AddrPort() != remote || f.Fault != c.want {
			t.Errorf("%s: %v %v %+v", name, f.Local.AddrPort(), f.Remote.AddrPort(), f.Fault)
		}
	}

	later := append([]byte{}, q4...)
	binary.BigEndian.PutUint16(later[6:], 100)
	forged := append([]byte{}, q4...)
	forged[15]++
	unknown := append([]byte{}, q4...)
	unknown[20]++
	forged6 := append([]byte{}, q6...)
	forged6[23]++
	badSum := icmp4(t, 3, 3, 0, q4)
	badSum[60]++
	for name, c := range map[string]struct {
		frame []byte
		want  counters.Reason
	}{
		"a later fragment":         {icmp4(t, 3, 3, 0, later), counters.DropProtocol},
		"not from our address":     {icmp4(t, 3, 3, 0, forged), counters.DropMalformed},
		"not from a port of us":    {icmp4(t, 3, 3, 0, unknown), counters.DropNoListener},
		"quotes too little":        {icmp4(t, 3, 3, 0, q4[:27]), counters.DropMalformed},
		"quotes nothing":           {icmp4(t, 3, 3, 0, nil), counters.DropMalformed},
		"quotes IPv6":              {icmp4(t, 3, 3, 0, q6), counters.DropMalformed},
		"checksum":                 {badSum, counters.DropChecksum},
		"source quench":            {icmp4(t, 4, 0, 0, q4), counters.DropProtocol}, // RFC 6633
		"redirect":                 {icmp4(t, 5, 0, 0, q4), counters.DropProtocol},
		"v6: not from our address": {icmp6(t, 1, 4, 0, forged6), counters.DropMalformed},
		"v6: quotes too little":    {icmp6(t, 1, 4, 0, q6[:47]), counters.DropMalformed},
		"v6: quotes a cut chain":   {icmp6(t, 2, 0, 1300, big6[:44]), counters.DropMalformed},
		"v6: unknown type":         {icmp6(t, 100, 0, 0, q6), counters.DropProtocol},
	} {
		h.want(name, h.input(c.frame), Dropped, c.want)
	}
}

// A path that carries less is believed by who has the flow, and the next answer is
// cut to it.
func TestPathMTU(t *testing.T) {
	h := newHost(t, nil)
	for _, c := range []struct {
		local, remote netip.AddrPort
		frame         func(quote []byte) []byte
		want, frames  int
	}{
		{at(our6, port), at(far6, 4242), func(q []byte) []byte { return icmp6(t, 2, 0, 1300, q) }, 1300, 2},
		{at(our4, port), at(far4, 4242), func(q []byte) []byte { return icmp4(t, 3, 4, 600, q) }, 600, 3},
		{at(our4, port), at(peer4, 4242), func(q []byte) []byte { return icmp4(t, 3, 4, 0, q) }, route.MinMTU4, 3},
	} {
		f := h.input(c.frame(answered(t, h, c.local, c.remote, 1400)))
		if f.Verdict != Error || !h.Believe(f, h.now) || h.Believe(f, h.now) {
			t.Fatalf("%v: %v (%v), or believed twice", c.remote, f.Verdict, f.Drop)
		}
		back := header.Link{Peer: peerMAC, Own: ourMAC}
		d := h.output(c.local, c.remote, make([]byte, 1400), back)
		sent := h.wire.take()
		if d.Verdict != Split || len(sent) != c.frames || len(sent[0])-14 > c.want || len(sent[0])-14 < c.want-8 {
			t.Errorf("%v: %v, %d frames, the first of %d bytes", c.remote, d.Verdict, len(sent), len(sent[0])-14)
		}
		if d := h.output(c.local, at(c.remote.Addr().Next(), 1), make([]byte, 1400), back); d.Verdict != Transmit {
			t.Errorf("another destination: %v", d.Verdict)
		}
	}
	if h.Believe(&Frame{Fault: Fault{Kind: TooBig, MTU: 1000}, Remote: burst.EndpointOf(at(far6, 1))}, h.now) {
		t.Error("an MTU under 1280 is believed (RFC 8201 4)")
	}
	if h.Believe(&Frame{Fault: Fault{Kind: PortUnreachable, MTU: 1300}}, h.now) {
		t.Error("port unreachable is read as too big")
	}
}

// RFC 792, RFC 4443 4.2: the echo has the same data, and comes back the way the
// request went; without options and extension headers.
func TestEcho(t *testing.T) {
	data := []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	with := icmp6(t, 128, 0, 0x12345678, data)
	with = append(append(append([]byte{}, with[:54]...), 58, 0, 1, 4, 0, 0, 0, 0), with[54:]...)
	with[19], with[20] = with[19]+8, 60
	options := icmp4(t, 8, 0, 0x12345678, data)
	options = append(append(append([]byte{}, options[:34]...), 1, 1, 1, 1), options[34:]...)
	options[14], options[17] = 0x46, options[17]+4
	fix4(options)
	for name, frame := range map[string][]byte{
		"IPv4": icmp4(t, 8, 0, 0x12345678, data), "IPv4 with options": options,
		"IPv6": icmp6(t, 128, 0, 0x12345678, data), "IPv6 with extension headers": with,
	} {
		h := newHost(t, nil)
		f := h.input(frame)
		h.want(name, f, Transmit, 0)
		p := decode(t, f.Data)
		e := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
		if string(e.DstMAC) != string(peerMAC[:]) || string(e.SrcMAC) != string(ourMAC[:]) {
			t.Errorf("%s: %v", name, e)
		}
		if m, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && (m.TypeCode.Type() != 0 || m.Id != 0x1234 || m.Seq != 0x5678 || !bytes.Equal(m.Payload, data)) {
			t.Errorf("%s: %+v", name, m)
		}
		if m, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && (m.TypeCode.Type() != 129 || !bytes.Equal(m.Payload[4:], data) || binary.BigEndian.Uint32(m.Payload) != 0x12345678) {
			t.Errorf("%s: %+v", name, m)
		}
		if src := p.NetworkLayer().NetworkFlow().Src().String(); src != our4.String() && src != our6.String() {
			t.Errorf("%s: from %s", name, src)
		}
		h.Disown()
		h.want(name+", not ours to answer", h.input(frame), Consumed, 0)
	}
	h := newHost(t, func(c *Config) { c.EchoRate = 5 })
	for i := range 8 {
		if f := h.input(icmp4(t, 8, 0, 1, data)); (f.Verdict == Transmit) != (i < 5) || i >= 5 && f.Drop != counters.DropLimit {
			t.Errorf("echo %d of 5 in a second: %v (%v)", i+1, f.Verdict, f.Drop)
		}
	}
	h.now += second / 5
	h.want("a fifth of a second later", h.input(icmp4(t, 8, 0, 1, data)), Transmit, 0)
}

// RFC 1122 3.2.2.1, RFC 4443 3.1: who asks a port without a listener is told, so
// many times in a second; the error quotes the datagram.
func TestPortUnreachable(t *testing.T) {
	h := newHost(t, func(c *Config) { c.ErrorRate = 3 })
	big := make([]byte, 1400)
	for i, in := range [][]byte{
		query(t, 0, at(peer4, 4242), at(our4, 7), asked), query(t, 0, at(peer6, 4242), at(our6, 7), string(big)), query(t, vlan, at(vpeer4, 4242), at(vlan4, 7), string(big)),
	} {
		h.want("no listener", h.input(in), Dropped, counters.DropNoListener)
		sent := h.wire.take()
		if len(sent) != 1 {
			t.Fatalf("%d: %d frames", i, len(sent))
		}
		p := decode(t, sent[0])
		var quote []byte
		limit := 576
		if m, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && m.TypeCode == layers.CreateICMPv4TypeCode(3, 3) {
			quote = m.Payload
		}
		if m, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && m.TypeCode == layers.CreateICMPv6TypeCode(1, 4) {
			quote, limit = m.Payload[4:], 1280
		}
		link := 14
		if i == 2 {
			link = 18
		}
		if len(quote) < 28 || !bytes.HasPrefix(in[link:], quote) || len(sent[0])-link > limit || len(quote) < len(in)-link && len(sent[0])-link != limit {
			t.Errorf("%d: quotes %d bytes in a packet of %d", i, len(quote), len(sent[0])-link)
		}
		// Its sender finds its own flow in it.
		if f := decode(t, sent[0]).NetworkLayer().NetworkFlow(); f.Dst() != decode(t, in).NetworkLayer().NetworkFlow().Src() {
			t.Errorf("%d: sent to %v", i, f)
		}
	}
	h.input(query(t, 0, at(peer4, 4242), at(our4, 7), asked))
	if len(h.wire.sent) != 0 || h.Stats.Limited != 1 || h.Stats.Errors != 3 {
		t.Errorf("%d frames over the limit, %d limited, %d sent", len(h.wire.sent), h.Stats.Limited, h.Stats.Errors)
	}
}

// RFC 8200 4, 4.2, 4.4: a refused header is answered by a parameter problem that
// points at it.
func TestParameterProblem(t *testing.T) {
	for name, c := range map[string]struct {
		next    uint8
		rest    []byte
		want    counters.Reason
		code    int
		pointer uint32
	}{
		"unknown next header":              {200, []byte("abcdefgh"), counters.DropProtocol, 1, 6},
		"unknown next header, second":      {60, append([]byte{200, 0, 1, 4, 0, 0, 0, 0}, "abcdefgh"...), counters.DropProtocol, 1, 40},
		"unknown option":                   {60, append([]byte{17, 0, 0x9e, 4, 0, 0, 0, 0}, "abcdefgh"...), counters.DropOption, 2, 42},
		"unknown option, silently":         {60, append([]byte{17, 0, 0x5e, 4, 0, 0, 0, 0}, "abcdefgh"...), counters.DropOption, -1, 0},
		"hop by hop in the wrong place":    {60, append([]byte{0, 0, 1, 4, 0, 0, 0, 0}, "abcdefgh"...), counters.DropOption, 1, 40},
		"a route not at its end":           {43, append([]byte{17, 0, 0, 1, 0, 0, 0, 0}, "abcdefgh"...), counters.DropOption, 0, 42},
		"a header longer than the packet":  {60, []byte{17, 9, 1, 4, 0, 0, 0, 0}, counters.DropMalformed, -1, 0},
		"no next header (RFC 8200 4.7)":    {59, []byte("abcdefgh"), counters.DropProtocol, -1, 0},
		"TCP is not unknown, only refused": {6, make([]byte, 20), counters.DropProtocol, -1, 0},
	} {
		h := newHost(t, nil)
		in := serialize(t, append(ether(0, layers.EthernetTypeIPv6, ourMAC), ip6(peer6, our6, layers.IPProtocol(c.next)), gopacket.Payload(c.rest))...)
		h.want(name, h.input(in), Dropped, c.want)
		sent := h.wire.take()
		if (len(sent) == 1) != (c.code >= 0) {
			t.Errorf("%s: %d frames sent", name, len(sent))
			continue
		}
		if c.code >= 0 {
			m := decode(t, sent[0]).Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
			if m.TypeCode.Type() != 4 || int(m.TypeCode.Code()) != c.code || binary.BigEndian.Uint32(m.Payload) != c.pointer {
				t.Errorf("%s: %v, pointer %d", name, m.TypeCode, m.Payload[:4])
			}
		}
	}
}

// With a kernel beside us it gets all that is not served, as it came; what is
// malformed nobody gets.
func TestKernel(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Kernel = true })
	q4 := answered(t, h, at(our4, 9), at(far4, 1), 10)
	tcp := append(ether(0, layers.EthernetTypeIPv4, ourMAC), ip4(peer4, our4, layers.IPProtocolTCP), gopacket.Payload(make([]byte, 20)))
	for name, frame := range map[string][]byte{
		"echo":                   icmp4(t, 8, 0, 1, make([]byte, 30)),
		"echo, v6":               icmp6(t, 128, 0, 1, make([]byte, 30)),
		"no listener":            query(t, 0, at(peer4, 1), at(our4, 7), asked),
		"TCP":                    serialize(t, tcp...),
		"another address":        query(t, 0, at(peer4, 1), at(gw4, port), asked),
		"error about its flow":   icmp4(t, 3, 3, 0, q4),
		"ARP answer":             arp(t, 0, ourMAC, 2, peerMAC, peer4, our4),
		"ARP, for another":       arp(t, 0, header.Broadcast, 1, peerMAC, peer4, gw4),
		"neighbour's answer":     nd(t, 0, peer6, our6, 136, header.FlagAnswer, peer6, linkOption(2, peerMAC)...),
		"router's advertisement": nd(t, 0, netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1"), 134, 0, netip.Addr{}, make([]byte, 8)...),
		"unknown ethertype":      append(append(append([]byte{}, ourMAC[:]...), peerMAC[:]...), 0x88, 0xcc, 0, 0),
	} {
		f := h.input(frame)
		if h.want(name, f, ToKernel, 0); string(f.Data) != string(frame) {
			t.Errorf("%s: changed on its way", name)
		}
	}
	h.want("served", h.input(query(t, 0, at(peer4, 1), at(our4, port), asked)), Deliver, 0)
	h.want("ARP request for us", h.input(arp(t, 0, header.Broadcast, 1, peerMAC, peer4, our4)), Consumed, 0)
	bad := query(t, 0, at(peer4, 1), at(our4, 7), asked)
	bad[24]++
	h.want("malformed", h.input(bad), Dropped, counters.DropChecksum)
	if len(h.wire.take()) != 1 { // the ARP answer
		t.Error("answered in the kernel's place")
	}

	// A datagram in fragments for a port of the kernel's goes there in one piece.
	other := newHost(t, func(c *Config) { c.MAC, c.Addresses = peerMAC, []Address{{IP: peer4}, {IP: peer6}} })
	for _, c := range []struct{ src, dst netip.Addr }{{peer4, our4}, {peer6, our6}} {
		other.output(at(c.src, port), at(c.dst, 7), make([]byte, 4000), header.Link{Peer: ourMAC, Own: peerMAC})
		var f *Frame
		for _, b := range other.wire.take() {
			f = h.input(b)
		}
		h.want("the last fragment", f, ToKernel, 0)
		u := decode(t, f.Data).Layer(layers.LayerTypeUDP).(*layers.UDP)
		if u.DstPort != 7 || len(u.Payload) != 4000 {
			t.Errorf("%v: %d bytes to port %d", c.src, len(u.Payload), u.DstPort)
		}
	}
}
