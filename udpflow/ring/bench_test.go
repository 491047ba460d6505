package ring

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/shm"
)

func newRings(tb testing.TB, lanes, workers, bytes int) *Rings {
	tb.Helper()
	r, err := Format(shm.Heap(RegionSize(lanes, workers, bytes)), lanes, workers, bytes)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// A burst of 64 datagrams of 48 bytes through a ring, in one goroutine; ns/op is
// per datagram.
func BenchmarkPushAndDrain(b *testing.B) {
	r := newRings(b, 1, 1, 1<<20)
	p, in := r.Producer(0, 0), r.Inbox(0)
	d := NewDrainer(in.Consumers())
	pkt := numbered(1, make([]byte, 48))
	var bu burst.Burst
	var src [burst.Max]Source
	b.ReportAllocs()
	for i := 0; i < b.N; i += burst.Max {
		for range burst.Max {
			p.Push(pkt, int64(i), 0)
		}
		p.Publish()
		p.NeedsWake()
		if d.Fill(&bu, &src) != burst.Max {
			b.Fatal("lost")
		}
		d.Release()
	}
}
