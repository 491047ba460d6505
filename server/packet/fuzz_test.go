package packet

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// samples returns a frame of each kind that a layer reads.
func samples(t testing.TB) [][]byte {
	h := newHost(t, nil)
	q4, q6 := answered(t, h, at(our4, port), at(far4, 1), 40), answered(t, h, at(our6, port), at(far6, 1), 40)
	all := [][]byte{
		query(t, 0, at(peer4, 4242), at(our4, port), asked), query(t, 0, at(peer6, 4242), at(our6, port), asked),
		query(t, vlan, at(vpeer4, 4242), at(vlan4, port), asked), query(t, 0, at(peer4, 4242), at(our4, 7), asked), query(t, 0, at(peer6, 4242), at(our6, 7), asked),
		arp(t, 0, header.Broadcast, 1, peerMAC, peer4, our4), arp(t, 0, ourMAC, 2, peerMAC, peer4, our4), arp(t, 0, header.Broadcast, 1, otherMAC, our4, our4),
		nd(t, 0, peer6, solicitedNode(our6), 135, 0, our6, linkOption(1, peerMAC)...), nd(t, 0, peer6, our6, 136, header.FlagAnswer, peer6, linkOption(2, peerMAC)...),
		nd(t, 0, netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1"), 134, 0x40000708, netip.Addr{}, append(make([]byte, 8), linkOption(1, peerMAC)...)...),
		icmp4(t, 8, 0, 1, []byte(asked)), icmp6(t, 128, 0, 1, []byte(asked)), icmp4(t, 3, 3, 0, q4), icmp6(t, 2, 0, 1300, q6), icmp4(t, 3, 4, 600, q4[:28]),
		serialize(t, append(ether(0, layers.EthernetTypeIPv6, ourMAC), ip6(peer6, our6, 0), gopacket.Payload(append([]byte{60, 0, 5, 2, 0, 0, 1, 0, 17, 0, 1, 4, 0, 0, 0, 0}, "abcdefgh"...)))...),
	}
	other := newHost(t, func(c *Config) { c.MAC, c.Addresses = peerMAC, []Address{{IP: peer4}, {IP: peer6}} })
	other.output(at(peer4, port), at(our4, port), make([]byte, 4000), header.Link{Peer: ourMAC, Own: peerMAC})
	other.output(at(peer6, port), at(our6, port), make([]byte, 4000), header.Link{Peer: ourMAC, Own: peerMAC})
	return append(all, other.wire.take()...)
}

// small returns a host with little memory, so that its limits are met.
func small(t testing.TB, kernel bool) *host {
	return newHost(t, func(c *Config) {
		c.Kernel, c.Routers, c.ErrorRate, c.EchoRate, c.Paths = kernel, true, 1e6, 1e6, 4
		c.Fragments.Memory, c.Fragments.PerSource, c.Fragments.Timeout = 64<<10, 16<<10, second
		c.Table.Neighbours, c.Table.Waiting = 4, 8
	})
}

// judge checks what must hold of any frame whatever.
func (h *host) judge(f *Frame) {
	h.t.Helper()
	if (f.Verdict == Dropped) != (f.Drop != counters.NotDropped) || f.Verdict == Waits || f.Verdict == Split || f.Verdict >= NumVerdicts {
		h.t.Fatalf("%v (%v)", f.Verdict, f.Drop)
	}
	switch f.Verdict {
	case Deliver:
		a := h.find(&f.Local.IP)
		if a == nil || !a.serves(f.Local.Port) || f.Remote.Port == 0 {
			h.t.Fatalf("delivered to %v from %v", f.Local.AddrPort(), f.Remote.AddrPort())
		}
		d := h.output(f.Local.AddrPort(), f.Remote.AddrPort(), f.Payload, f.Link)
		if d.Verdict == Dropped {
			h.t.Fatalf("its answer to %v: %v", f.Remote.AddrPort(), d.Drop)
		}
	case Error:
		h.Believe(f, h.now)
	case ToKernel:
		if !h.cfg.Kernel {
			h.t.Fatal("to a kernel that is not there")
		}
	}
	for _, b := range h.wire.take() {
		if l, _, _, ok := header.ParseLink(b); !ok || l.Peer != ourMAC || len(b) > MaxFrame(1500) {
			// What we send has us as its source, which reads as the peer of whoever gets it.
			h.t.Fatalf("sent %x", b)
		}
	}
}

// Mutated frames of every kind, a million of them: nothing panics, and every frame
// is accounted for.
func TestMutatedFrames(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	m := newMutator(t, 7, false)
	m.feed(n)
	m.all(uint64(n))
}

// mutator feeds a host with frames that are nearly right.
type mutator struct {
	*host
	samples [][]byte
	rng     *rand.Rand
	frame   [1]Frame
	buf     [2048]byte
}

func newMutator(t testing.TB, seed uint64, kernel bool) *mutator {
	return &mutator{host: small(t, kernel), samples: samples(t), rng: rand.New(rand.NewPCG(seed, 7))}
}

// mutate returns one of the samples with up to three things changed.
func (m *mutator) mutate() []byte {
	rng := m.rng
	b := m.buf[:copy(m.buf[:], m.samples[rng.IntN(len(m.samples))])]
	for range rng.IntN(4) {
		switch rng.IntN(4) {
		case 0:
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		case 1:
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		case 2:
			b = b[:max(1, rng.IntN(len(b)+1))]
		case 3:
			if len(b) > 40 {
				binary.BigEndian.PutUint16(b[14+rng.IntN(24):], uint16(rng.Uint32()))
			}
		}
	}
	if len(b) > 34 && b[12] == 8 && b[13] == 0 && rng.IntN(2) == 0 && len(b) >= 14+int(b[14]&15)*4 {
		fix4(b) // or else most fail at the first checksum
	}
	return b
}

// feed feeds n frames, and checks after each that everything is accounted for.
func (m *mutator) feed(n int) {
	m.t.Helper()
	for i := range n {
		m.frame[0] = Frame{Data: m.mutate()}
		if m.rng.IntN(2) == 0 {
			m.frame[0].Checked = GoodIP | GoodUDP
		}
		m.now += m.rng.Int64N(second / 100)
		m.Input(m.frame[:], m.now)
		if m.judge(&m.frame[0]); i%64 == 0 {
			m.Tick(m.now)
		}
		if err := m.Check(); err != nil {
			m.t.Fatal(err)
		}
	}
}

// all fails the test unless n frames have met everything that can become of a frame.
func (m *mutator) all(n uint64) {
	m.t.Helper()
	echo := Transmit
	if m.cfg.Kernel {
		echo = ToKernel // which answers itself
	}
	for _, v := range []Verdict{Deliver, Error, Held, Consumed, echo, Dropped} {
		if m.Stats.InBy[v] <= n/1000 {
			m.t.Errorf("%v: %d frames of %d", v, m.Stats.InBy[v], n)
		}
	}
	for _, r := range []counters.Reason{
		counters.DropMalformed, counters.DropChecksum, counters.DropNotLocal, counters.DropProtocol, counters.DropNoListener, counters.DropOption,
		counters.DropFragment, counters.DropFragOverlap, counters.DropFragTimeout, counters.DropBadEndpoint,
	} {
		if m.Stats.Dropped[r] == 0 && !m.cfg.Kernel { // which takes some of them
			m.t.Errorf("nothing was dropped as %v", r)
		}
	}
}

// FuzzLayer feeds frames: each is three bytes (what to do before, its length) and
// its bytes.
func FuzzLayer(f *testing.F) {
	var all []byte
	for _, b := range samples(f) {
		one := append([]byte{1, byte(len(b) >> 8), byte(len(b))}, b...)
		f.Add(one)
		all = append(all, one...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, in []byte) {
		const believe, later, tick, learn, kernel, vacant = 1, 2, 4, 8, 16, 32
		h := small(t, len(in) > 0 && in[0]&kernel != 0)
		frame := make([]Frame, 1)
		for len(in) >= 3 {
			op, n := in[0], min(int(binary.BigEndian.Uint16(in[1:])), len(in)-3, 2000)
			data := append(make([]byte, 0, 2048), in[3:3+n]...)
			in = in[3+n:]
			frame[0] = Frame{Data: data}
			if op&believe != 0 {
				frame[0].Checked = GoodIP | GoodUDP
			}
			if op&later != 0 {
				h.now += second / 2
			}
			if op&tick != 0 {
				h.Tick(h.now)
			}
			if h.wire.full = op&vacant != 0; op&learn != 0 {
				h.Learn(data, h.now)
			}
			h.Input(frame, h.now)
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
			if h.wire.full { // a datagram delivered now could not be cut
				continue
			}
			h.judge(&frame[0])
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
