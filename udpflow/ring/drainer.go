package ring

import "github.com/dnsapp/dnsapp/server/burst"

// Drainer reads several rings in the order that keeps each flow's packets in
// order. It works in rounds: it looks at the tails, newest epoch first, then reads
// the rings, oldest epoch first, up to those tails.
//
// Why: a flow's packets change rings once, from those of an older epoch to those
// of a newer one, and what the older ones hold of it is published before the first
// packet goes into the newer ones. So a round that sees that packet, having looked
// there first, sees all of its predecessors, and reads them first.
type Drainer struct {
	from  []*Consumer // newest epoch first
	tails []uint64    // of the round; valid for the indices 0..at
	at    int         // the ring that is being read; -1 between rounds
}

// NewDrainer returns a drainer of these rings, newest epoch first; the order of
// those of one epoch does not matter. Another drainer of the same consumers may
// take over at any time.
func NewDrainer(newestFirst []*Consumer) *Drainer {
	return &Drainer{from: newestFirst, tails: make([]uint64, len(newestFirst)), at: -1}
}

// Source says where a datagram that Fill has read came from.
type Source struct {
	Meta
	Ring int // index in the list given to NewDrainer
}

// Fill fills b with up to burst.Max datagrams, and from with the source of each,
// and returns how many: 0 if the rings are empty. It sets neither b.Now nor what
// Consumer.Next leaves alone. The payloads are valid until Release.
func (d *Drainer) Fill(b *burst.Burst, from *[burst.Max]Source) int {
	b.N = 0
	if d.at >= 0 {
		d.read(b, from)
	}
	if b.N == 0 {
		for i, c := range d.from {
			d.tails[i] = c.Tail()
		}
		d.at = len(d.from) - 1
		d.read(b, from)
	}
	return b.N
}

// read goes on with the round.
func (d *Drainer) read(b *burst.Burst, from *[burst.Max]Source) {
	for ; d.at >= 0; d.at-- {
		for d.from[d.at].Next(d.tails[d.at], &b.Packets[b.N], &from[b.N].Meta) {
			from[b.N].Ring = d.at
			if b.N++; b.N == burst.Max {
				return
			}
		}
	}
}

// Release releases what was read from all rings: call it when the burst has been
// served.
func (d *Drainer) Release() {
	for _, c := range d.from {
		c.Release()
	}
}
