package dispatch

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// load is a lane with a full burst to split, over and over.
type load struct {
	l       *lane
	b       *burst.Burst
	drainer *ring.Drainer // empties what the lane forwards; nil: it forwards nothing
	in      burst.Burst
	from    [burst.Max]ring.Source
}

// newLoad returns a lane of a generation, outside a window or with flows that an
// older one serves: all of them, or none.
func newLoad(t testing.TB, window, forward bool) *load {
	w := newWorld(t)
	var clients []int
	for i := range burst.Max {
		clients = append(clients, i)
	}
	w.open(0)
	if forward {
		for i := range clients {
			w.own(0, 0, i)
		}
	}
	ld := &load{}
	if window {
		w.open(1)
		w.drain(0)
		ld.l = w.lane(1, 0, 0)
		ld.drainer = ring.NewDrainer(ld.l.rings[0].Inbox(0).Consumers())
	} else {
		ld.l = w.lane(0, 0)
	}
	ld.b = w.burst(clients...)
	return ld
}

func (ld *load) step(t testing.TB, served int) {
	ld.b.N = burst.Max
	ld.l.Split(ld.b)
	if ld.b.N != served {
		t.Fatalf("%d are served here, want %d", ld.b.N, served)
	}
	if served == burst.Max {
		return
	}
	if n := ld.drainer.Fill(&ld.in, &ld.from); n != burst.Max-served {
		t.Fatalf("%d came through", n)
	}
	ld.drainer.Release()
}

func TestSplitDoesNotAllocate(t *testing.T) {
	for name, c := range map[string]struct {
		window, forward bool
		served          int
	}{
		"outside a window":      {false, false, burst.Max},
		"in a window, new":      {true, false, burst.Max},
		"in a window, forwards": {true, true, 0},
	} {
		ld := newLoad(t, c.window, c.forward)
		if n := testing.AllocsPerRun(100, func() { ld.step(t, c.served) }); n != 0 {
			t.Errorf("%s: %v allocations a burst", name, n)
		}
	}
}

// A full burst of 64 known flows; ns/op is per datagram. affinity none costs
// nothing here, for nothing is called.
func BenchmarkSplit(b *testing.B) {
	for _, c := range []struct {
		name            string
		window, forward bool
		served          int
	}{
		{"outside a window", false, false, burst.Max},
		{"in a window, new flows", true, false, burst.Max},
		{"in a window, forwarded and drained", true, true, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			ld := newLoad(b, c.window, c.forward)
			b.ReportAllocs()
			for i := 0; i < b.N; i += burst.Max {
				ld.step(b, c.served)
			}
		})
	}
}
