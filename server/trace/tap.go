package trace

import (
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// Tap is where a lane's datagrams are copied. It belongs to that lane.
type Tap struct {
	filter *Filter
	snap   int
	out    *ring.Producer
	counts *counts
	view   View
	record burst.Packet
	joined []byte // a payload of two parts
}

// Taps returns the taps of the lanes of a process, which copy at most snap octets of
// what the filter wants. They use r, which stays the caller's.
func Taps(r *shm.Region, f *Filter, snap int) ([]*Tap, error) {
	rings, list, err := attach(r)
	if err != nil {
		return nil, err
	}
	taps := make([]*Tap, rings.Lanes())
	for i := range taps {
		p := rings.Producer(i, 0)
		taps[i] = &Tap{filter: f, snap: max(0, min(snap, p.MaxPayload())), out: p, counts: list[i]}
		taps[i].joined = make([]byte, 0, taps[i].snap)
	}
	return taps, nil
}

// Received copies the datagrams of b, at the time of b. It reads nothing of them but
// addresses and payloads.
func (t *Tap) Received(b *burst.Burst) {
	for i := range b.N {
		t.Datagram(&b.Packets[i].Remote, &b.Packets[i].Local, nil, b.Packets[i].Payload, b.Now, false)
	}
	t.out.Publish()
}

// Sent copies the answers in b that were sent, at mono time now.
func (t *Tap) Sent(b *burst.Burst, now int64) {
	for i := range b.N {
		p := &b.Packets[i]
		if p.Drop == counters.NotDropped && (len(p.Reply) > 0 || p.Empty) {
			t.Answers(&p.Local, &p.Remote, p, now, true)
		}
	}
	t.out.Publish()
}

// Answers copies the datagrams that the Reply of p is. Flush lets the watcher see
// them.
func (t *Tap) Answers(src, dst *burst.Endpoint, p *burst.Packet, now int64, sent bool) {
	one, rest := p.Cut(p.Reply)
	t.Datagram(src, dst, nil, one, now, sent)
	for len(rest) > 0 {
		one, rest = p.Cut(rest)
		t.Datagram(src, dst, nil, one, now, sent)
	}
}

// Datagram copies one datagram, whose payload is head, which may be empty, and then
// rest. Flush lets the watcher see it.
func (t *Tap) Datagram(src, dst *burst.Endpoint, head, rest []byte, now int64, sent bool) {
	length := len(head) + len(rest)
	v := &t.view
	*v = View{
		Src: src.IP, Dst: dst.IP, SrcPort: src.Port, DstPort: dst.Port, Ports: true,
		Version: 6, Protocol: protoUDP, Length: length + ip6Headers, Sent: sent,
	}
	if src.Is4() {
		v.Version, v.Length = 4, length+ip4Headers
	}
	if !t.filter.Match(v) {
		return
	}
	t.record.Remote, t.record.Local = *src, *dst
	t.record.Socket = receivedDatagram
	if sent {
		t.record.Socket = sentDatagram
	}
	if len(head) > 0 {
		t.joined = append(t.joined[:0], head[:min(len(head), t.snap)]...)
		rest = append(t.joined, rest[:min(len(rest), t.snap-len(t.joined))]...)
	}
	t.push(rest, length, now)
}

// Headers of IP and UDP together, in octets: a datagram counts with them.
const (
	ip4Headers = 20 + 8
	ip6Headers = 40 + 8
)

// Frame copies one whole Ethernet frame. Flush lets the watcher see it.
func (t *Tap) Frame(frame []byte, now int64, sent bool) {
	t.view.ReadFrame(frame, sent)
	if !t.filter.Match(&t.view) {
		return
	}
	t.record.Remote, t.record.Local = burst.Endpoint{}, burst.Endpoint{}
	t.record.Socket = receivedFrame
	if sent {
		t.record.Socket = sentFrame
	}
	t.push(frame, len(frame), now)
}

// Flush lets the watcher see all that was copied.
func (t *Tap) Flush() { t.out.Publish() }

// push copies data, which is, or is the beginning of, so many octets.
func (t *Tap) push(data []byte, length int, now int64) {
	t.record.IfIndex = uint32(length)
	t.record.Payload = data[:min(len(data), t.snap)]
	if t.out.Push(&t.record, now, 0) {
		t.counts.Copied.Add(1)
	} else {
		t.counts.Dropped.Add(1)
	}
	t.record.Payload = nil // nothing of the lane's is kept
}
