package packet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

const second = int64(1e9)

var (
	ourMAC  = header.MAC{2, 0, 0, 0, 0, 1}
	peerMAC = header.MAC{2, 0, 0, 0, 0, 2}

	our4, our6     = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	peer4, peer6   = netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	far4, far6     = netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8:5::5")
	gw4, gw6       = netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("2001:db8::fe")
	vlan4, vlan6   = netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
	vpeer4, vpeer6 = netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:1::9")
)

const (
	vlan = 100
	port = 9053 // gopacket reads port 53 as DNS
)

// config is a host with both families on an untagged link and on a VLAN, which
// serves one port on all addresses.
func config() Config {
	p := netip.MustParsePrefix
	return Config{
		MAC: ourMAC, MTU: 1500,
		Addresses: []Address{{IP: our4}, {IP: our6}, {IP: vlan4, VLAN: vlan}, {IP: vlan6, VLAN: vlan}},
		Routes: []route.Route{
			{To: p("192.0.2.0/24")}, {To: p("2001:db8::/64")}, {To: p("198.51.100.0/24"), VLAN: vlan}, {To: p("2001:db8:1::/64"), VLAN: vlan},
			{To: p("0.0.0.0/0"), Via: gw4}, {To: p("2001:db8:5::/48"), Via: gw6},
		},
	}
}

// wire is a Tx that keeps what is sent.
type wire struct {
	buf  []byte
	sent [][]byte
	full bool
}

func (w *wire) Reserve() []byte {
	if w.full {
		return nil
	}
	return w.buf
}

func (w *wire) Commit(n int) { w.sent = append(w.sent, append([]byte{}, w.buf[:n]...)) }

func (w *wire) take() [][]byte {
	s := w.sent
	w.sent = nil
	return s
}

type host struct {
	*Layer
	wire *wire
	t    testing.TB
	now  int64
}

func newHost(t testing.TB, change func(*Config)) *host {
	t.Helper()
	c := config()
	if change != nil {
		change(&c)
	}
	w := &wire{buf: make([]byte, MaxFrame(c.MTU))}
	l, err := New(c, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Addresses {
		if err := l.Listen(a.IP, port, port); err != nil {
			t.Fatal(err)
		}
	}
	h := &host{l, w, t, second}
	l.Own(h.now)
	w.take()
	return h
}

// input feeds one frame and checks the ledger.
func (h *host) input(data []byte) *Frame {
	h.t.Helper()
	f := []Frame{{Data: append(make([]byte, 0, 2048), data...)}}
	h.Input(f, h.now)
	if err := h.Check(); err != nil {
		h.t.Fatal(err)
	}
	return &f[0]
}

func (h *host) want(name string, f *Frame, v Verdict, r counters.Reason) {
	h.t.Helper()
	if f.Verdict != v || f.Drop != r {
		h.t.Errorf("%s: %v (%v), want %v (%v)", name, f.Verdict, f.Drop, v, r)
	}
}

// output sends one datagram and checks the ledger.
func (h *host) output(local, remote netip.AddrPort, payload []byte, link header.Link) *Datagram {
	h.t.Helper()
	d := []Datagram{{Buf: append(make([]byte, Headroom), payload...), N: len(payload),
		Local: burst.EndpointOf(local), Remote: burst.EndpointOf(remote), Link: link}}
	h.Output(d, h.now)
	if err := h.Check(); err != nil {
		h.t.Fatal(err)
	}
	return &d[0]
}

func (h *host) tick(later int64) int64 {
	h.now += later
	return h.Tick(h.now)
}

func hw(m header.MAC) net.HardwareAddr { return m[:] }

// ether returns the link layers of a frame to us.
func ether(v uint16, t layers.EthernetType, to header.MAC) []gopacket.SerializableLayer {
	if v == 0 {
		return []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: hw(peerMAC), DstMAC: hw(to), EthernetType: t}}
	}
	return []gopacket.SerializableLayer{
		&layers.Ethernet{SrcMAC: hw(peerMAC), DstMAC: hw(to), EthernetType: layers.EthernetTypeDot1Q},
		&layers.Dot1Q{VLANIdentifier: v, Priority: 3, Type: t},
	}
}

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return append([]byte{}, buf.Bytes()...)
}

func ip4(src, dst netip.Addr, p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Id: 77, Protocol: p, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func ip6(src, dst netip.Addr, p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

// query returns a frame with a datagram to us.
func query(t testing.TB, v uint16, src, dst netip.AddrPort, payload string) []byte {
	t.Helper()
	u := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	if src.Addr().Is4() {
		ip := ip4(src.Addr(), dst.Addr(), layers.IPProtocolUDP)
		_ = u.SetNetworkLayerForChecksum(ip)
		return serialize(t, append(ether(v, layers.EthernetTypeIPv4, ourMAC), ip, u, gopacket.Payload(payload))...)
	}
	ip := ip6(src.Addr(), dst.Addr(), layers.IPProtocolUDP)
	_ = u.SetNetworkLayerForChecksum(ip)
	return serialize(t, append(ether(v, layers.EthernetTypeIPv6, ourMAC), ip, u, gopacket.Payload(payload))...)
}

func at(ip netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(ip, port) }

// decode decodes a frame and checks that gopacket finds nothing wrong with it, its
// lengths and checksums included.
func decode(t testing.TB, frame []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("%x: %v", frame, e.Error())
	}
	if p.Metadata().Truncated {
		t.Fatalf("%x is truncated", frame)
	}
	var ls []gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.IPv6:
			network = l
			ls = append(ls, l)
		case *layers.IPv4:
			network = l
			if l.FragOffset != 0 || l.Flags&layers.IPv4MoreFragments != 0 {
				return p
			}
			ls = append(ls, l)
		case *layers.IPv6Fragment:
			return p
		case *layers.UDP:
			_ = l.SetNetworkLayerForChecksum(network)
			ls = append(ls, l)
		case *layers.ICMPv6:
			_ = l.SetNetworkLayerForChecksum(network)
			return again(t, frame, p, append(ls, l, gopacket.Payload(l.Payload)))
		case *layers.ICMPv4:
			return again(t, frame, p, append(ls, l, gopacket.Payload(l.Payload)))
		case gopacket.SerializableLayer:
			ls = append(ls, l)
		}
	}
	return again(t, frame, p, ls)
}

// again checks that the layers serialize to the frame they were decoded from.
func again(t testing.TB, frame []byte, p gopacket.Packet, ls []gopacket.SerializableLayer) gopacket.Packet {
	t.Helper()
	if got := serialize(t, ls...); string(got) != string(frame) && len(frame) > 60 {
		t.Fatalf("gopacket writes\n%x, not\n%x", got, frame)
	}
	return p
}
