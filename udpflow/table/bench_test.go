package table

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

const (
	benchSlots = 65_536
	benchNow   = 1_000_000
)

func newTable(tb testing.TB, slots int, idle time.Duration) *Table {
	tb.Helper()
	t, err := Format(shm.Heap(RegionSize(slots)), slots, idle, flow.Secret{1, 2})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// hashes returns n hashes.
func hashes(n int, seed uint64) []uint64 {
	r := rand.New(rand.NewPCG(seed, 0))
	h := make([]uint64, n)
	for i := range h {
		h[i] = r.Uint64() | 1<<63
	}
	return h
}

// fill records flows until n are in, each with two packets.
func fill(t *Table, n, worker int, now uint32) {
	for _, h := range hashes(n, 77) {
		t.Record(h, worker, now)
		t.Record(h, worker, now)
	}
}

// A packet of a known flow: the hash, the lookup and the refresh, over 1,000
// flows in a quarter-full table.
func BenchmarkRecordKnown(b *testing.B) {
	t := newTable(b, benchSlots, 10*time.Second)
	fill(t, benchSlots/4, 1, benchNow)
	secret, l := t.Secret(), burst.EndpointOf(netip.MustParseAddrPort("192.0.2.1:53"))
	rs := make([]burst.Endpoint, 1024)
	for i := range rs {
		rs[i] = burst.EndpointOf(netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(1024+i)))
		t.Record(flow.Hash(&secret, flow.UDP, &l, &rs[i]), 0, benchNow)
	}
	b.Run("hash+record", func(b *testing.B) {
		for i := range b.N {
			t.Record(flow.Hash(&secret, flow.UDP, &l, &rs[i%1024]), 0, benchNow+uint32(i/64000))
		}
	})
	hs := make([]uint64, len(rs))
	for i := range rs {
		hs[i] = flow.Hash(&secret, flow.UDP, &l, &rs[i])
	}
	b.Run("record", func(b *testing.B) {
		for i := range b.N {
			t.Record(hs[i%1024], 0, benchNow+uint32(i/64000))
		}
	})
	b.Run("record-moving-clock", func(b *testing.B) { // every packet has to write
		for i := range b.N {
			t.Record(hs[i%1024], 0, benchNow+uint32(i/1000))
		}
	})
	b.Run("find", func(b *testing.B) {
		for i := range b.N {
			t.Find(hs[i%1024], benchNow)
		}
	})
}

// A new flow: the table is empty, old, or full of live flows.
func BenchmarkRecordNew(b *testing.B) {
	for _, c := range []struct {
		name string
		load int
		now  func(i int) uint32
	}{
		{"aged", benchSlots, func(i int) uint32 { return benchNow + 20_000 + uint32(i/3)*20_000 }},
		{"half", benchSlots / 2, func(i int) uint32 { return benchNow + uint32(i) }},
		{"full", 2 * benchSlots, func(int) uint32 { return benchNow }},
	} {
		b.Run(c.name, func(b *testing.B) {
			t := newTable(b, benchSlots, time.Hour)
			fill(t, c.load, 1, benchNow)
			hs := hashes(1<<10, 5)
			not := 0
			b.ResetTimer()
			for i := range b.N {
				if o, _ := t.Record(hs[i%len(hs)], 0, c.now(i)); o == NotRecorded {
					not++
				}
			}
			b.ReportMetric(float64(not)/float64(b.N), "not-recorded/op")
		})
	}
}

// A packet that is looked up in vain in my own table and in those of three
// draining generations, all full, and then recorded.
func BenchmarkMissWithThreeDraining(b *testing.B) {
	mine := newTable(b, benchSlots, 10*time.Second)
	fill(mine, 2*benchSlots, 0, benchNow)
	var draining [3]*Table
	for i := range draining {
		draining[i] = newTable(b, benchSlots, 10*time.Second)
		fill(draining[i], 2*benchSlots, 0, benchNow)
	}
	hs := hashes(1<<10, 5)
	for i := range b.N {
		h := hs[i%len(hs)]
		if o, _ := mine.Refresh(h, 0, benchNow); o != Absent {
			continue
		}
		for _, d := range draining {
			d.Find(h, benchNow)
		}
		mine.Record(h, 0, benchNow)
	}
}

func BenchmarkScan(b *testing.B) {
	t := newTable(b, benchSlots, 10*time.Second)
	fill(t, benchSlots/2, 0, benchNow)
	for b.Loop() {
		t.Scan(0, benchNow)
	}
}
