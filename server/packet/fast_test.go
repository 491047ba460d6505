package packet

import (
	"testing"

	"github.com/google/gopacket/layers"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// exchange is a burst of queries and the answers to them.
type exchange struct {
	*host
	frames    []Frame
	data      [][]byte
	datagrams []Datagram
}

func newExchange(t testing.TB, v6, route bool, change func(*Config)) *exchange {
	x := &exchange{host: newHost(t, change), frames: make([]Frame, burst.Max), datagrams: make([]Datagram, burst.Max)}
	src, dst := at(peer4, 4242), at(our4, port)
	if v6 {
		src, dst = at(peer6, 4242), at(our6, port)
	}
	for i := range x.frames {
		x.data = append(x.data, query(t, 0, src, dst, asked))
		x.datagrams[i] = Datagram{Buf: make([]byte, Headroom+120), N: 100}
	}
	if route {
		x.input(arp(t, 0, header.Broadcast, 1, peerMAC, peer4, our4))
		x.wire.take()
	}
	return x
}

// run takes the queries in and sends the answers.
func (x *exchange) run(byRoute bool) {
	for i := range x.frames {
		x.frames[i].Data = x.data[i]
	}
	x.Input(x.frames, x.now)
	for i := range x.frames {
		f, d := &x.frames[i], &x.datagrams[i]
		d.Local, d.Remote, d.Link = f.Local, f.Remote, f.Link
		if byRoute {
			d.Link = header.Link{}
		}
	}
	x.Output(x.datagrams, x.now)
}

// Nothing is allocated for a datagram in and its answer out, by either way, nor for
// fragments, errors and echoes.
func TestNoAllocations(t *testing.T) {
	for name, x := range map[string]*exchange{"IPv4": newExchange(t, false, true, nil), "IPv6": newExchange(t, true, false, nil)} {
		for _, byRoute := range []bool{false, true} {
			if byRoute && name == "IPv6" {
				continue
			}
			if n := testing.AllocsPerRun(100, func() { x.run(byRoute) }); n != 0 {
				t.Errorf("%s, by route %v: %v allocations in a burst", name, byRoute, n)
			}
			for i := range x.datagrams {
				if x.frames[i].Verdict != Deliver || x.datagrams[i].Verdict != Transmit {
					t.Fatalf("%s: %v, %v", name, x.frames[i].Verdict, x.datagrams[i].Verdict)
				}
			}
		}
	}
	h := newHost(t, func(c *Config) { c.ErrorRate, c.EchoRate = 1e9, 1e9 })
	h.output(at(our4, port), at(peer4, 1), make([]byte, 4000), header.Link{Peer: ourMAC, Own: peerMAC})
	parts := h.wire.take()
	quiet := &silent{buf: make([]byte, MaxFrame(1500))}
	h.Layer.tx = quiet
	large := []Datagram{{Buf: make([]byte, Headroom+4000), N: 4000, Local: burst.EndpointOf(at(our4, port)), Remote: burst.EndpointOf(at(peer4, 1)), Link: header.Link{Peer: peerMAC}}}
	slow := [][]byte{
		query(t, 0, at(peer4, 1), at(our4, 7), asked), icmp4(t, 8, 0, 1, make([]byte, 40)), icmp6(t, 128, 0, 1, make([]byte, 40)),
		arp(t, 0, header.Broadcast, 1, peerMAC, peer4, our4), nd(t, 0, peer6, our6, 135, 0, our6, linkOption(1, peerMAC)...),
		serialize(t, append(ether(0, layers.EthernetTypeIPv6, ourMAC), ip6(peer6, our6, 200))...),
	}
	for _, p := range parts { // to us, from the peer
		copy(p[26:], peer4.AsSlice())
		copy(p[30:], our4.AsSlice())
		copy(p, ourMAC[:])
		copy(p[6:], peerMAC[:])
		slow = append(slow, fix4(p))
	}
	f, scratch := make([]Frame, 1), make([]byte, 2048)
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range slow {
			f[0].Data = scratch[:copy(scratch, b)]
			h.Input(f, h.now)
		}
		h.Output(large, h.now)
	}); n != 0 {
		t.Errorf("%v allocations on the slow paths", n)
	}
	if f[0].Verdict == Held || large[0].Verdict != Split || quiet.n == 0 {
		t.Errorf("the last fragment: %v; a large answer: %v; %d frames made", f[0].Verdict, large[0].Verdict, quiet.n)
	}
}

// silent is a Tx that only counts.
type silent struct {
	buf []byte
	n   int
}

func (s *silent) Reserve() []byte { return s.buf }
func (s *silent) Commit(int)      { s.n++ }

// The figure is for one datagram in, with its checksum, and its answer out.
func benchmark(b *testing.B, v6, byRoute bool, change func(*Config)) {
	x := newExchange(b, v6, byRoute, change)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += burst.Max {
		x.run(byRoute)
	}
}

func BenchmarkInOut4(b *testing.B)      { benchmark(b, false, false, nil) }
func BenchmarkInOut6(b *testing.B)      { benchmark(b, true, false, nil) }
func BenchmarkInOut4Route(b *testing.B) { benchmark(b, false, true, nil) }

func BenchmarkInOut4Offload(b *testing.B) {
	x := newExchange(b, false, false, func(c *Config) { c.Offload = true })
	for i := range x.frames {
		x.frames[i].Checked = GoodIP | GoodUDP
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += burst.Max {
		x.run(false)
	}
}
