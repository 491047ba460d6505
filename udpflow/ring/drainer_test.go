package ring

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
)

// A round reads up to the tails it began with, oldest epoch first, in bursts of at
// most burst.Max; what is published meanwhile waits for the next round, also if
// another drainer takes over in between.
func TestDrainerRounds(t *testing.T) {
	for name, takeOver := range map[string]bool{"one drainer": false, "a new drainer for each burst": true} {
		t.Run(name, func(t *testing.T) {
			r := newRings(t, 3, 1, 64<<10)
			newest, middle, oldest := r.Producer(0, 0), r.Producer(1, 0), r.Producer(2, 0)
			publish := func(p *Producer, from, n int) {
				for seq := range n {
					if !push(p, from+seq, 20) {
						t.Fatal("full")
					}
				}
				p.Publish()
			}
			consumers := r.Inbox(0).Consumers()
			d := NewDrainer(consumers)
			var b burst.Burst
			var from [burst.Max]Source
			read := func(want ...[3]int) { // ring, first, how many
				t.Helper()
				i := 0
				n := d.Fill(&b, &from)
				for _, w := range want {
					for seq := w[1]; seq < w[1]+w[2]; seq, i = seq+1, i+1 {
						if i >= n || from[i].Ring != w[0] {
							t.Fatalf("record %d of %d does not come from ring %d", i, n, w[0])
						}
						check(t, seq, 20, &b.Packets[i], from[i].Meta)
					}
				}
				if i != n || b.N != n {
					t.Fatalf("%d records, N is %d; want %d", n, b.N, i)
				}
				d.Release()
				if takeOver {
					d = NewDrainer(consumers)
				}
			}
			read()
			publish(newest, 0, 10)
			publish(middle, 100, 5)
			publish(oldest, 200, 70)
			read([3]int{2, 200, 64})
			publish(oldest, 270, 3)
			if takeOver { // it begins a round
				read([3]int{2, 264, 9}, [3]int{1, 100, 5}, [3]int{0, 0, 10})
			} else {
				read([3]int{2, 264, 6}, [3]int{1, 100, 5}, [3]int{0, 0, 10})
				read([3]int{2, 270, 3})
			}
			read()
			publish(middle, 105, 64)
			read([3]int{1, 105, 64})
			read()
		})
	}
}

// A drainer of no rings finds nothing.
func TestDrainerOfNothing(t *testing.T) {
	d := NewDrainer(nil)
	var b burst.Burst
	var from [burst.Max]Source
	if n := d.Fill(&b, &from); n != 0 {
		t.Fatalf("read %d records", n)
	}
	d.Release()
}
