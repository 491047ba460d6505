package packet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// A query is delivered, and its answer goes back the way it came: addresses
// swapped, the same tag, no neighbour asked for.
func TestThereAndBack(t *testing.T) {
	for _, c := range []struct {
		vlan          uint16
		client, local netip.Addr
	}{{0, peer4, our4}, {0, far4, our4}, {0, peer6, our6}, {0, far6, our6}, {vlan, vpeer4, vlan4}, {vlan, vpeer6, vlan6}} {
		t.Run(fmt.Sprint(c.client, " ", c.vlan), func(t *testing.T) {
			h := newHost(t, nil)
			src, dst := at(c.client, 4242), at(c.local, port)
			in := query(t, c.vlan, src, dst, "query")
			f := h.input(in)
			h.want("query", f, Deliver, 0)
			if string(f.Payload) != "query" || f.Remote.AddrPort() != src || f.Local.AddrPort() != dst {
				t.Fatalf("%q from %v to %v", f.Payload, f.Remote.AddrPort(), f.Local.AddrPort())
			}
			d := h.output(dst, src, []byte("the answer"), f.Link)
			if d.Verdict != Transmit || len(h.wire.sent) != 0 {
				t.Fatalf("%v (%v), %d frames more", d.Verdict, d.Drop, len(h.wire.sent))
			}
			p := decode(t, d.Frame)
			e := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
			if string(e.SrcMAC) != string(ourMAC[:]) || string(e.DstMAC) != string(peerMAC[:]) {
				t.Errorf("from %v to %v", e.SrcMAC, e.DstMAC)
			}
			if q, tagged := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); tagged != (c.vlan != 0) || tagged && (q.VLANIdentifier != c.vlan || q.Priority != 3) {
				t.Errorf("tag %+v", q)
			}
			u := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
			n := p.NetworkLayer().NetworkFlow()
			if u.SrcPort != port || u.DstPort != 4242 || string(u.Payload) != "the answer" || n.Src().String() != c.local.String() || n.Dst().String() != c.client.String() {
				t.Errorf("%v %v %q", n, u.TransportFlow(), u.Payload)
			}
		})
	}
}

// asked is long enough that its frame needs no padding.
const asked = "a query of twenty-eight bytes"

// change returns a query with one thing wrong, over either family.
func change(t *testing.T, v6 bool, edit func(b []byte) []byte) []byte {
	if v6 {
		return edit(query(t, 0, at(peer6, 4242), at(our6, port), asked))
	}
	return edit(query(t, 0, at(peer4, 4242), at(our4, port), asked))
}

// fix4 makes the IPv4 header's checksum right.
func fix4(b []byte) []byte {
	h := b[14:]
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], header.Sum(0).Add(h[:int(h[0]&15)*4]).Checksum())
	return b
}

// fixUDP makes the UDP checksum right; the UDP header is at at.
func fixUDP(b []byte, at int) []byte {
	addrs := b[26:34]
	if b[14]>>4 == 6 {
		addrs = b[22:54]
	}
	u := b[at:]
	u[6], u[7] = 0, 0
	binary.BigEndian.PutUint16(u[6:], header.Pseudo(addrs, header.UDP, len(u)).Add(u).Checksum())
	return b
}

// What is dropped, and why.
func TestDrops(t *testing.T) {
	const v4, v6 = false, true
	for name, c := range map[string]struct {
		v6   bool
		edit func(b []byte) []byte
		want counters.Reason
	}{
		"runt":                          {v4, func(b []byte) []byte { return b[:13] }, counters.DropMalformed},
		"nothing":                       {v4, func(b []byte) []byte { return nil }, counters.DropMalformed},
		"source link address of group":  {v4, func(b []byte) []byte { b[6] = 1; return b }, counters.DropMalformed},
		"other link address":            {v4, func(b []byte) []byte { b[5]++; return b }, counters.DropNotLocal},
		"unicast by link broadcast":     {v4, func(b []byte) []byte { copy(b, header.Broadcast[:]); return b }, counters.DropNotLocal},
		"unicast by link multicast, v6": {v6, func(b []byte) []byte { b[0] |= 1; return b }, counters.DropNotLocal},
		"unknown ethertype":             {v4, func(b []byte) []byte { b[12] = 0x88; return b }, counters.DropProtocol},
		"version 5":                     {v4, func(b []byte) []byte { b[14] = 0x55; return b }, counters.DropMalformed},
		"header of 16 bytes":            {v4, func(b []byte) []byte { b[14] = 0x44; return b }, counters.DropMalformed},
		"total length past the frame":   {v4, func(b []byte) []byte { b[17] += 1; return fix4(b) }, counters.DropMalformed},
		"total length under the header": {v4, func(b []byte) []byte { b[17] = 19; return fix4(b) }, counters.DropMalformed},
		"header checksum":               {v4, func(b []byte) []byte { b[22]--; return b }, counters.DropChecksum},
		"not our address":               {v4, func(b []byte) []byte { b[33] = 2; return fix4(b) }, counters.DropNotLocal},
		"from 0.0.0.0":                  {v4, func(b []byte) []byte { copy(b[26:], "\x00\x00\x00\x00"); return fix4(b) }, counters.DropBadEndpoint},
		"from loopback":                 {v4, func(b []byte) []byte { b[26] = 127; return fix4(b) }, counters.DropBadEndpoint},
		"from a multicast address":      {v4, func(b []byte) []byte { b[26] = 224; return fix4(b) }, counters.DropBadEndpoint},
		"from broadcast":                {v4, func(b []byte) []byte { copy(b[26:], "\xff\xff\xff\xff"); return fix4(b) }, counters.DropBadEndpoint},
		"from ourselves (land)":         {v4, func(b []byte) []byte { copy(b[26:], b[30:34]); return fix4(b) }, counters.DropBadEndpoint},
		"from port 0":                   {v4, func(b []byte) []byte { b[34], b[35] = 0, 0; return fixUDP(b, 34) }, counters.DropBadEndpoint},
		"UDP checksum":                  {v4, func(b []byte) []byte { b[45]++; return b }, counters.DropChecksum},
		"UDP length past the packet":    {v4, func(b []byte) []byte { b[39]++; return b }, counters.DropMalformed},
		"UDP length under its header":   {v4, func(b []byte) []byte { b[39] = 7; return b }, counters.DropMalformed},
		"no UDP header":                 {v4, func(b []byte) []byte { b[17] = 27; return fix4(b) }, counters.DropMalformed},
		"no listener":                   {v4, func(b []byte) []byte { b[37] = 54; return fixUDP(b, 34) }, counters.DropNoListener},
		"TCP":                           {v4, func(b []byte) []byte { b[23] = 6; return fix4(b) }, counters.DropProtocol},
		"a tag of another VLAN":         {v4, func(b []byte) []byte { return append(append(append([]byte{}, b[:12]...), 0x81, 0, 0, 7), b[12:]...) }, counters.DropNotLocal},
		"a cut tag":                     {v4, func(b []byte) []byte { return append(append([]byte{}, b[:12]...), 0x81, 0, 0) }, counters.DropMalformed},
		"v6: payload length":            {v6, func(b []byte) []byte { b[19]++; return b }, counters.DropMalformed},
		"v6: version 4":                 {v6, func(b []byte) []byte { b[14] = 0x40; return b }, counters.DropMalformed},
		"v6: not our address":           {v6, func(b []byte) []byte { b[53] = 2; return b }, counters.DropNotLocal},
		"v6: from ::":                   {v6, func(b []byte) []byte { clear(b[22:38]); return b }, counters.DropBadEndpoint},
		"v6: from ::1":                  {v6, func(b []byte) []byte { clear(b[22:37]); b[37] = 1; return b }, counters.DropBadEndpoint},
		"v6: from a multicast address":  {v6, func(b []byte) []byte { b[22] = 0xff; return b }, counters.DropBadEndpoint},
		"v6: from ourselves":            {v6, func(b []byte) []byte { copy(b[22:38], b[38:54]); return b }, counters.DropBadEndpoint},
		"v6: from an IPv4-mapped one":   {v6, func(b []byte) []byte { m := peer4.As16(); copy(b[22:], m[:]); return b }, counters.DropBadEndpoint},
		"v6: to our IPv4 address":       {v6, func(b []byte) []byte { m := our4.As16(); copy(b[38:], m[:]); return b }, counters.DropBadEndpoint},
		"v6: no UDP checksum":           {v6, func(b []byte) []byte { b[60], b[61] = 0, 0; return b }, counters.DropChecksum}, // RFC 8200 8.1
		"v6: UDP checksum":              {v6, func(b []byte) []byte { b[65]++; return b }, counters.DropChecksum},
		"v6: no next header":            {v6, func(b []byte) []byte { b[20] = 59; return b }, counters.DropProtocol},
		"v6: unknown next header":       {v6, func(b []byte) []byte { b[20] = 200; return b }, counters.DropProtocol},
	} {
		h := newHost(t, nil)
		f := h.input(change(t, c.v6, c.edit))
		h.want(name, f, Dropped, c.want)
		if h.Stats.Dropped[c.want] != 1 {
			t.Errorf("%s: not counted", name)
		}
	}
}

// What is odd and right.
func TestAccepted(t *testing.T) {
	const v4, v6 = false, true
	for name, c := range map[string]struct {
		v6   bool
		edit func(b []byte) []byte
	}{
		"padding":                {v4, func(b []byte) []byte { return append(b, 1, 2, 3) }},
		"padding, v6":            {v6, func(b []byte) []byte { return append(b, 1, 2, 3) }},
		"no UDP checksum":        {v4, func(b []byte) []byte { b[40], b[41] = 0, 0; return b }},
		"priority tag":           {v4, func(b []byte) []byte { return append(append(append([]byte{}, b[:12]...), 0x81, 0, 0xe0, 0), b[12:]...) }},
		"a private source port":  {v4, func(b []byte) []byte { b[34], b[35] = 0, 1; return fixUDP(b, 34) }},
		"any byte of TOS":        {v4, func(b []byte) []byte { b[15] = 0xfd; return fix4(b) }},
		"TTL 1 (we are the end)": {v4, func(b []byte) []byte { b[22] = 1; return fix4(b) }},
		"flow label":             {v6, func(b []byte) []byte { b[15] |= 15; b[16], b[17] = 9, 9; return b }},
		"options": {v4, func(b []byte) []byte {
			b = append(append(append([]byte{}, b[:34]...), 1, 1, 148, 4, 0, 0, 1, 0), b[34:]...)
			b[14], b[17] = 0x47, b[17]+8
			return fix4(b)
		}},
		"destination options": {v6, func(b []byte) []byte {
			b = append(append(append([]byte{}, b[:54]...), 17, 0, 1, 4, 0, 0, 0, 0), b[54:]...)
			b[19], b[20] = b[19]+8, 60
			return b
		}},
		"atomic fragment (RFC 6946)": {v6, func(b []byte) []byte {
			b = append(append(append([]byte{}, b[:54]...), 17, 0, 0, 0, 0, 0, 0, 9), b[54:]...)
			b[19], b[20] = b[19]+8, 44
			return b
		}},
	} {
		h := newHost(t, nil)
		f := h.input(change(t, c.v6, c.edit))
		h.want(name, f, Deliver, 0)
		if string(f.Payload) != asked {
			t.Errorf("%s: %q", name, f.Payload)
		}
	}
}

// What the device says of checksums is believed, either way.
func TestChecksumOffload(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Offload = true })
	bad := query(t, 0, at(peer4, 4242), at(our4, port), "query")
	bad[45]++
	bad[24]++
	f := []Frame{{Data: bad, Checked: GoodIP | GoodUDP}, {Data: query(t, 0, at(peer4, 4242), at(our4, port), "query"), Checked: Bad}}
	h.Input(f, h.now)
	h.want("said to be good", &f[0], Deliver, 0)
	h.want("said to be bad", &f[1], Dropped, counters.DropChecksum)

	d := h.output(at(our4, port), at(peer4, 4242), []byte("x"), f[0].Link)
	ip := header.IPv4(d.Frame[14:])
	if !d.Offload || d.L2 != 14 || d.L3 != 20 || binary.BigEndian.Uint16(ip[10:]) != 0 ||
		binary.BigEndian.Uint16(ip[26:]) != header.Pseudo(ip.Addrs(), header.UDP, 9).Folded() {
		t.Errorf("%+v: %x", d, d.Frame)
	}
	// What waits or is cut goes out complete.
	if h.output(at(our4, port), at(peer4, 4242), make([]byte, 4000), f[0].Link); len(h.wire.sent) != 3 || !header.IPv4(h.wire.sent[0][14:]).ChecksumRight() {
		t.Errorf("%d fragments", len(h.wire.sent))
	}
}

// A large answer is cut, and put together again in any order gives itself; over
// every way in, with MTUs down to the least.
func TestSplitAndWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		v6, v := rapid.Bool().Draw(rt, "v6"), rapid.SampledFrom([]uint16{0, vlan}).Draw(rt, "vlan")
		mtu := rapid.IntRange(1280, 2000).Draw(rt, "mtu")
		if !v6 {
			mtu = rapid.IntRange(552, 2000).Draw(rt, "mtu4")
		}
		from := newHost(t, func(c *Config) {
			c.MTU = mtu
			if !v6 {
				c.Addresses = []Address{{IP: our4}}
			}
		})
		to := newHost(t, func(c *Config) {
			c.MAC = peerMAC
			c.Addresses = []Address{{IP: peer4, VLAN: v}, {IP: peer6, VLAN: v}}
		})
		local, remote := at(our4, 999), at(peer4, port)
		if v6 {
			local, remote = at(our6, 999), at(peer6, port)
		}
		// 65,507 fits IPv4's total length, and so does everything IPv6 may carry.
		payload := make([]byte, rapid.IntRange(mtu, burst.MaxPayload).Draw(rt, "length"))
		for i := range payload {
			payload[i] = byte(rng.Uint32())
		}
		d := from.output(local, remote, payload, header.Link{Peer: peerMAC, Own: ourMAC, TCI: v, Tag: v != 0})
		frames := from.wire.take()
		if d.Verdict != Split || len(frames) < 2 {
			rt.Fatalf("%v (%v), %d frames", d.Verdict, d.Drop, len(frames))
		}
		rng.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		var in []Frame
		for _, b := range frames {
			if len(b)-from.linkSize(v) > mtu {
				rt.Fatalf("a fragment of %d bytes over an MTU of %d", len(b), mtu)
			}
			decode(t, b)
			in = append(in, Frame{Data: b})
		}
		// The harness host answers at ourMAC; this one is the peer.
		to.Input(in, to.now)
		last := &in[len(in)-1]
		if len(in) <= 128 && (last.Verdict != Deliver || !bytes.Equal(last.Payload, payload) || last.Remote.AddrPort() != local) {
			rt.Fatalf("%d bytes in %d fragments: %v (%v)", len(payload), len(in), last.Verdict, last.Drop)
		}
		if err := to.Check(); err != nil {
			rt.Fatal(err)
		}
	})
}

// A datagram that fills its fragments exactly ends with the last full one.
func TestSplitExactly(t *testing.T) {
	to := newHost(t, func(c *Config) { c.MAC, c.Addresses = peerMAC, []Address{{IP: peer4}, {IP: peer6}} })
	for _, c := range []struct {
		local, remote netip.Addr
		n             int
	}{{our4, peer4, 2*1480 - 8}, {our6, peer6, 2*1448 - 8}} {
		h := newHost(t, nil)
		h.output(at(c.local, port), at(c.remote, port), make([]byte, c.n), header.Link{Peer: peerMAC, Own: ourMAC})
		sent := h.wire.take()
		if len(sent) != 2 {
			t.Fatalf("%v: %d fragments", c.local, len(sent))
		}
		to.want("first", to.input(sent[0]), Held, 0)
		to.want("last", to.input(sent[1]), Deliver, 0)
	}
}

func (h *host) linkSize(v uint16) int {
	if v != 0 {
		return header.LinkMax
	}
	return header.EthernetSize
}

// Datagrams that cannot be sent.
func TestOutputRefuses(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Routes = c.Routes[:4] })
	back := header.Link{Peer: peerMAC, Own: ourMAC}
	ok := Datagram{Buf: make([]byte, 9000), N: 10, Local: burst.EndpointOf(at(our4, port)), Remote: burst.EndpointOf(at(peer4, 1)), Link: back}
	for name, c := range map[string]struct {
		edit func(d *Datagram)
		want counters.Reason
	}{
		"families":        {func(d *Datagram) { d.Local = burst.EndpointOf(at(our6, port)) }, counters.DropBadEndpoint},
		"to port 0":       {func(d *Datagram) { d.Remote.Port = 0 }, counters.DropBadEndpoint},
		"beyond its room": {func(d *Datagram) { d.N = 9000 }, counters.DropTooLarge},
		"beyond UDP":      {func(d *Datagram) { d.Buf, d.N = make([]byte, 1<<17), burst.MaxPayload+1 }, counters.DropTooLarge},
		"negative":        {func(d *Datagram) { d.N = -1 }, counters.DropTooLarge},
		"DF over the MTU": {func(d *Datagram) { d.N, d.DF = 1473, true }, counters.DropTooLarge},
		"no route":        {func(d *Datagram) { d.Link, d.Remote = header.Link{}, burst.EndpointOf(at(far4, 1)) }, counters.DropNoRoute},
	} {
		d := []Datagram{ok}
		c.edit(&d[0])
		if h.Output(d, h.now); d[0].Verdict != Dropped || d[0].Drop != c.want {
			t.Errorf("%s: %v (%v), want %v", name, d[0].Verdict, d[0].Drop, c.want)
		}
	}
	d := []Datagram{ok}
	d[0].N, d[0].DF = 1472, true
	if h.Output(d, h.now); d[0].Verdict != Transmit || d[0].Frame[20] != 0x40 {
		t.Errorf("DF at the MTU: %v (%v)", d[0].Verdict, d[0].Drop)
	}
	h.wire.full = true
	d[0].N, d[0].DF = 4000, false
	if h.Output(d, h.now); d[0].Drop != counters.DropNoBuffer || h.Stats.NoRoom != 1 {
		t.Errorf("without a buffer: %v (%v)", d[0].Verdict, d[0].Drop)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

// Fragments that break the rules are answered as RFC 8200 4.5 and RFC 7112 say,
// where they are answered at all.
func TestFragmentsRefused(t *testing.T) {
	frag := func(first byte, offset uint16, more bool, data []byte) []byte {
		fh := make([]byte, 8)
		header.PutFragment(fh, first, int(offset), more, 5)
		ip := ip6(peer6, our6, 44)
		return serialize(t, append(ether(0, layers.EthernetTypeIPv6, ourMAC), ip, gopacket.Payload(append(fh, data...)))...)
	}
	for name, c := range map[string]struct {
		frame   []byte
		want    counters.Reason
		code    int // of the parameter problem, -1 without one
		pointer uint32
	}{
		"length no multiple of 8":  {frag(17, 8, true, make([]byte, 12)), counters.DropFragment, 0, 4},
		"past 65,535":              {frag(17, 65528, false, make([]byte, 8)), counters.DropFragment, 0, 42},
		"first without UDP header": {frag(17, 0, true, nil), counters.DropOption, 3, 0},
		"first with a cut chain":   {frag(60, 0, true, []byte{17, 1, 1, 4, 0, 0, 0, 0}), counters.DropOption, 3, 0},
		"fragment in a fragment":   {frag(44, 0, true, make([]byte, 16)), counters.DropOption, -1, 0},
		"of another protocol":      {frag(6, 8, true, make([]byte, 8)), counters.DropProtocol, -1, 0},
		"empty":                    {frag(17, 8, false, nil), counters.DropFragment, 0, 4},
	} {
		h := newHost(t, nil)
		h.want(name, h.input(c.frame), Dropped, c.want)
		sent := h.wire.take()
		if len(sent) != map[bool]int{true: 1, false: 0}[c.code >= 0] {
			t.Errorf("%s: %d frames sent", name, len(sent))
			continue
		}
		if c.code >= 0 {
			p := decode(t, sent[0])
			m := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
			if m.TypeCode.Type() != 4 || int(m.TypeCode.Code()) != c.code || binary.BigEndian.Uint32(m.Payload) != c.pointer || !bytes.HasPrefix(c.frame[14:], m.Payload[4:]) {
				t.Errorf("%s: %v pointer %d", name, m.TypeCode, m.Payload[:4])
			}
		}
	}
}
