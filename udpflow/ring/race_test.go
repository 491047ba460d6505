package ring

import (
	"sync"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
)

// Two lanes and a worker at full speed, in rings that are full half the time: all
// records arrive once, whole and in order, and no wake-up is lost.
func TestConcurrent(t *testing.T) {
	const lanes, records = 2, 20_000
	r := newRings(t, lanes, 1, MinBytes)
	wake := make(chan struct{}, lanes) // the eventfd
	deadline := time.After(time.Minute)
	var wg sync.WaitGroup
	room := make([]chan struct{}, lanes) // wakes a producer that met a full ring; a lane would drop
	for l := range lanes {
		room[l] = make(chan struct{}, 1)
		wg.Go(func() {
			p := r.Producer(l, 0)
			show := func() {
				p.Publish()
				if p.NeedsWake() {
					wake <- struct{}{}
				}
			}
			for seq := range records {
				for !push(p, seq, seq%300) {
					show()
					select {
					case <-room[l]:
					case <-t.Context().Done():
						return
					}
				}
				if seq%7 == 0 {
					show()
				}
			}
			show()
		})
	}
	in := r.Inbox(0)
	d := NewDrainer(in.Consumers())
	var b burst.Burst
	var from [burst.Max]Source
	next := make([]int, lanes)
	for total := 0; total < lanes*records; {
		for n := d.Fill(&b, &from); n > 0; n = d.Fill(&b, &from) {
			for i := range n {
				l := from[i].Ring
				check(t, next[l], next[l]%300, &b.Packets[i], from[i].Meta)
				next[l]++
			}
			total += n
			d.Release()
			for l := range lanes {
				select {
				case room[l] <- struct{}{}:
				default:
				}
			}
		}
		if total < lanes*records && in.PrepareSleep() {
			select {
			case <-wake:
			case <-deadline:
				t.Fatalf("asleep with %v of %d records", next, records)
			}
			in.Awake()
		}
	}
	wg.Wait()
	for _, c := range in.Consumers() {
		if c.Damaged() != 0 {
			t.Error("damage")
		}
	}
}
