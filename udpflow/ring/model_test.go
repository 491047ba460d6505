package ring

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/burst"
)

// item is a record of the model: its number, the size of its payload, and the index
// it ends at.
type item struct {
	seq, size int
	end       uint64
}

// The ring is a queue of bounded size: what was published comes out once and in
// order, what was not is forgotten with its producer, what was not released comes
// again with the next consumer, and a push is refused exactly when there is no room.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const size = MinBytes
		r := newRings(t, 1, 1, size)
		p, c := r.Producer(0, 0), r.Consumer(0, 0)
		var queue []item // from the first not released on
		var seq, read, published int
		var head, pos, tail uint64 // of the queue: released, pushed, published up to
		genSize := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, p.MaxPayload()))
		next := func(t *rapid.T) bool {
			var pkt burst.Packet
			var m Meta
			ok := c.Next(c.Tail(), &pkt, &m)
			if ok != (read < published) {
				t.Fatalf("read %v, with %d of %d published read", ok, read, published)
			}
			if ok {
				check(t, queue[read].seq, queue[read].size, &pkt, m)
				read++
			}
			return ok
		}
		release := func() {
			c.Release()
			if read > 0 {
				head = queue[read-1].end
			}
			queue, published, read = queue[read:], published-read, 0
		}
		actions := map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				n := genSize.Draw(t, "bytes")
				start, need := pos, recordSize(n)
				if left := size - start%size; need > left {
					start += left
				}
				room := start+need-head <= size
				if ok := push(p, seq, n); ok != room {
					t.Fatalf("pushed %v: %d bytes at %d, released up to %d", ok, need, pos, head)
				}
				if room {
					pos = start + need
					queue = append(queue, item{seq, n, pos})
					seq++
				}
			},
			"publish": func(*rapid.T) {
				p.Publish()
				published, tail = len(queue), pos
			},
			"read":    func(t *rapid.T) { next(t) },
			"release": func(*rapid.T) { release() },
			"respawn the producer": func(*rapid.T) {
				p = r.Producer(0, 0)
				queue, pos = queue[:published], tail
			},
			"respawn the consumer": func(*rapid.T) {
				c = r.Consumer(0, 0)
				read = 0
			},
			"take back": func(t *rapid.T) {
				c = p.TakeBack()
				published, tail, read = len(queue), pos, 0
				for next(t) {
				}
				release()
			},
			"": func(t *rapid.T) {
				if c.Damaged() != 0 {
					t.Fatal("damage")
				}
				if c.Empty() != (read == published) {
					t.Fatalf("empty %v, with %d of %d published read", c.Empty(), read, published)
				}
			},
		}
		rt.Repeat(actions)
	})
}
