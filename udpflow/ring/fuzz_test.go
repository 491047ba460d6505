package ring

import (
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
)

// Whatever a hostile producer writes into the bytes and indices of a ring, its
// consumer stays within the bytes, comes to an end, and goes on with the records of
// the next producer.
func FuzzConsumer(f *testing.F) {
	r := newRings(f, 1, 1, MinBytes)
	p := r.Producer(0, 0)
	for seq, n := range []int{0, 1, 700, 1500, 40, 900} {
		push(p, seq, n)
	}
	p.Publish()
	good := r.view(0, 0)
	f.Add(good.data, uint64(0), good.ctl.Tail.Load())
	f.Add(good.data, uint64(0), uint64(1<<40))
	f.Add(good.data[72:], uint64(1<<63), uint64(1<<63+800))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'a', 's', 'n', 'd'}, uint64(0), uint64(MinBytes))
	f.Add([]byte{}, ^uint64(7), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, head, tail uint64) {
		r := newRings(t, 1, 1, MinBytes)
		v := r.view(0, 0)
		copy(v.data, data)
		v.ctl.Head.Store(head)
		v.ctl.Tail.Store(tail)
		c := r.Consumer(0, 0)
		var pkt burst.Packet
		var m Meta
		upTo := c.Tail()
		read := 0
		for ; c.Next(upTo, &pkt, &m); read++ {
			if !within(pkt.Payload, v.data) || cap(pkt.Payload) != len(pkt.Payload) {
				t.Fatalf("a payload of %d bytes leaves the ring", len(pkt.Payload))
			}
		}
		if read > MinBytes/headSize {
			t.Fatalf("read %d records from %d bytes", read, MinBytes)
		}
		if !c.Empty() || c.Damaged() > 1 {
			t.Fatalf("empty %v after damage %d", c.Empty(), c.Damaged())
		}
		c.Release()
		p := r.Producer(0, 0)
		for seq := range 20 {
			if !push(p, seq, 100*seq) {
				t.Fatalf("record %d refused by an empty ring", seq)
			}
			p.Publish()
			if !c.Next(c.Tail(), &pkt, &m) {
				t.Fatalf("record %d is not read", seq)
			}
			check(t, seq, 100*seq, &pkt, m)
			c.Release()
		}
	})
}
