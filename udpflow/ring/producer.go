package ring

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/burst"
)

// Producer is the sending end of one ring. It belongs to one lane.
type Producer struct {
	view
	pos       uint64 // where the next record goes
	published uint64 // the tail as stored
	head      uint64 // the consumer's head when it was last looked at
	sleeping  *atomic.Uint64
}

// MaxPayload returns the largest payload that Push takes: burst.MaxPayload in a
// ring of 256 KiB or more.
func (p *Producer) MaxPayload() int { return maxPayload(p.size()) }

// Push writes a datagram, which was received at mono time rx and has segments of
// this size (0: it is one), behind those pushed before. The consumer does not see
// it before Publish. Push reports false, and writes nothing, when the ring is full
// or the payload exceeds MaxPayload; it never blocks.
func (p *Producer) Push(pkt *burst.Packet, rx int64, segment uint16) bool {
	if len(pkt.Payload) > p.MaxPayload() {
		return false
	}
	n := recordSize(len(pkt.Payload))
	off := p.pos & (p.size() - 1)
	var pad uint64
	if left := p.size() - off; n > left {
		pad = left
	}
	if !p.fits(pad + n) {
		if p.head = p.view.head(); !p.fits(pad + n) {
			return false
		}
	}
	step.Write(&p.data[0])
	if pad > 0 {
		binary.LittleEndian.PutUint32(p.data[off+offLength:], padLength)
		binary.LittleEndian.PutUint32(p.data[off+offMark:], mark(p.pos))
		p.pos += pad
		off = 0
	}
	encode(p.data[off:off+n], p.pos, pkt, rx, segment)
	p.pos += n
	return true
}

// fits reports whether n more bytes can be written, as far as the producer knows
// the head. A head that cannot be leaves no room.
func (p *Producer) fits(n uint64) bool {
	used := p.pos - p.head
	return used <= p.size() && n <= p.size()-used
}

// Publish lets the consumer see what was pushed. It costs one atomic store, and
// nothing if there is nothing new. NeedsWake comes after it.
func (p *Producer) Publish() {
	if p.pos == p.published {
		return
	}
	step.Write(&p.ctl.Tail)
	p.ctl.Tail.Store(p.pos)
	p.published = p.pos
}

// NeedsWake reports whether the consumer sleeps and it falls to the caller to
// wake it by its eventfd. Of all producers that ask, one is told so.
func (p *Producer) NeedsWake() bool {
	step.Read(p.sleeping)
	if p.sleeping.Load() == 0 {
		return false
	}
	step.Write(p.sleeping)
	return p.sleeping.CompareAndSwap(1, 0)
}

// TakeBack publishes what was pushed and returns the receiving end, from which
// the producer reads what the consumer has left. The consumer's process must be
// gone, and no new one may consume before the caller is done.
func (p *Producer) TakeBack() *Consumer {
	p.Publish()
	return newConsumer(p.view)
}

func encode(b []byte, pos uint64, pkt *burst.Packet, rx int64, segment uint16) {
	h := b[:headSize:headSize]
	le := binary.LittleEndian
	le.PutUint32(h[offLength:], uint32(len(pkt.Payload)))
	le.PutUint32(h[offMark:], mark(pos))
	le.PutUint64(h[offRx:], uint64(rx))
	copy(h[offRemoteIP:], pkt.Remote.IP[:])
	copy(h[offLocalIP:], pkt.Local.IP[:])
	le.PutUint32(h[offRemoteScope:], pkt.Remote.Scope)
	le.PutUint32(h[offLocalScope:], pkt.Local.Scope)
	le.PutUint32(h[offIfIndex:], pkt.IfIndex)
	le.PutUint32(h[offSocket:], pkt.Socket)
	le.PutUint16(h[offRemotePort:], pkt.Remote.Port)
	le.PutUint16(h[offLocalPort:], pkt.Local.Port)
	le.PutUint16(h[offSegment:], segment)
	h[offECN] = pkt.ECN
	le.PutUint64(h[offWay:], pkt.Way)
	copy(b[headSize:], pkt.Payload)
}
