package ring

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/burst"
)

// Consumer is the receiving end of one ring. It belongs to one goroutine.
type Consumer struct {
	view
	pos      uint64 // the next record
	released uint64 // the head as stored
	damaged  uint64
}

func newConsumer(v view) *Consumer {
	head := v.head()
	return &Consumer{view: v, pos: head, released: head}
}

// Meta is what a record says of a datagram beside its burst.Packet.
type Meta struct {
	Rx      int64  // mono ns of reception
	Segment uint16 // size of the segments of a coalesced datagram, 0 if it is one
}

// Tail returns how far the producer has published, for Next.
func (c *Consumer) Tail() uint64 { return c.tail() }

// Next reads the next record before upTo, a value of Tail, into pkt and meta, and
// reports whether there was one. It leaves Reply and Drop alone. The payload lies
// in the ring: it is valid until Release, and a hostile producer may change it
// meanwhile.
//
// At damage Next skips to upTo, counts, and reports false.
func (c *Consumer) Next(upTo uint64, pkt *burst.Packet, meta *Meta) bool {
	for c.pos != upTo {
		avail := upTo - c.pos
		if avail > c.size() { // also: behind us
			break
		}
		step.Read(&c.data[0])
		off := c.pos & (c.size() - 1)
		left := c.size() - off
		length := binary.LittleEndian.Uint32(c.data[off+offLength:])
		if binary.LittleEndian.Uint32(c.data[off+offMark:]) != mark(c.pos) {
			break
		}
		if length == padLength {
			if left > avail {
				break
			}
			c.pos += left
			continue
		}
		if length > burst.MaxPayload {
			break
		}
		n := recordSize(int(length))
		if n > min(left, avail) {
			break
		}
		decode(c.data[off:off+n], int(length), pkt, meta)
		c.pos += n
		return true
	}
	if c.pos != upTo {
		c.damaged++
		c.pos = upTo
	}
	return false
}

// Release gives the room of all records read so far back to the producer: their
// payloads are no longer valid. Records that were read and not released are read
// again by the next consumer.
func (c *Consumer) Release() {
	if c.pos == c.released {
		return
	}
	step.Write(&c.ctl.Head)
	c.ctl.Head.Store(c.pos)
	c.released = c.pos
}

// Empty reports whether everything published has been read. (What was read and
// not released does not count.)
func (c *Consumer) Empty() bool { return c.tail() == c.pos }

// Damaged returns how often this consumer has met damage. An unknown number of
// datagrams was lost each time.
func (c *Consumer) Damaged() uint64 { return c.damaged }

func decode(b []byte, length int, pkt *burst.Packet, meta *Meta) {
	h := b[:headSize:headSize]
	le := binary.LittleEndian
	meta.Rx = int64(le.Uint64(h[offRx:]))
	meta.Segment = le.Uint16(h[offSegment:])
	copy(pkt.Remote.IP[:], h[offRemoteIP:])
	copy(pkt.Local.IP[:], h[offLocalIP:])
	pkt.Remote.Scope = le.Uint32(h[offRemoteScope:])
	pkt.Local.Scope = le.Uint32(h[offLocalScope:])
	pkt.IfIndex = le.Uint32(h[offIfIndex:])
	pkt.Socket = le.Uint32(h[offSocket:])
	pkt.Remote.Port = le.Uint16(h[offRemotePort:])
	pkt.Local.Port = le.Uint16(h[offLocalPort:])
	pkt.ECN = h[offECN]
	pkt.Way = le.Uint64(h[offWay:])
	pkt.Hash = 0
	end := headSize + length
	pkt.Payload = b[headSize:end:end]
}
