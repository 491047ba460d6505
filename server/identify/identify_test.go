package identify

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
)

func TestText(t *testing.T) {
	if got, want := Text(7, 1, 3, 4711, "edge 1"), "epoch=7 worker=1 lane=3 pid=4711 config=edge 1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Every datagram of a burst gets the answer, whatever is in it, and none beyond
// the burst; nothing is allocated.
func TestServeBurst(t *testing.T) {
	const text = "epoch=7 worker=1 lane=3 pid=4711 config=edge\n"
	var h burst.Handler = NewLane(text)
	b := new(burst.Burst)
	room := make([][]byte, burst.Max)
	for i := range room {
		room[i] = make([]byte, 0, burst.MaxPayload)
	}
	for _, n := range []int{0, 1, 5, burst.Max} {
		serve := func() {
			for i := range b.Packets {
				b.Packets[i] = burst.Packet{Payload: room[i][:i], Reply: room[i], Drop: counters.NotDropped}
			}
			b.N = n
			h.ServeBurst(b)
		}
		if a := testing.AllocsPerRun(10, serve); a != 0 {
			t.Errorf("%d datagrams: %v allocations", n, a)
		}
		for i := range b.Packets {
			want := ""
			if i < n {
				want = text
			}
			if p := &b.Packets[i]; string(p.Reply) != want || p.Drop != counters.NotDropped {
				t.Errorf("%d datagrams, number %d: %q, %v", n, i, p.Reply, p.Drop)
			}
		}
		if b.N != n {
			t.Errorf("%d datagrams became %d", n, b.N)
		}
	}
}
