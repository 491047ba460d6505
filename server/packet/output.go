package packet

import (
	"math/rand/v2"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/neighbour"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

// hopLimit of what is sent (RFC 1700's default).
const hopLimit = 64

// Output writes the headers of datagrams. now is mono.Now; it never goes back.
func (l *Layer) Output(datagrams []Datagram, now int64) {
	l.now = now
	for i := range datagrams {
		d := &datagrams[i]
		d.Drop, d.Frame, d.Offload = counters.NotDropped, nil, false
		v := l.output(d)
		d.Verdict = v
		l.Stats.OutBy[v]++
		if v == Dropped {
			l.Stats.OutDropped[d.Drop]++
		}
	}
	l.Stats.Out += uint64(len(datagrams))
}

func refuse(d *Datagram, r counters.Reason) Verdict {
	d.Drop = r
	return Dropped
}

// sending is a datagram on its way.
type sending struct {
	header.IPFields
	v6   bool
	ip   int  // size of the IP header
	wait bool // for hop
	hop  neighbour.Key
	link header.Link
}

func (l *Layer) output(d *Datagram) Verdict {
	var s sending
	s.v6 = !is4(&d.Remote)
	switch {
	case s.v6 == is4(&d.Local) || d.Remote.Port == 0:
		return refuse(d, counters.DropBadEndpoint)
	case d.N < 0 || d.N > burst.MaxPayload || len(d.Buf) < Headroom+d.N:
		return refuse(d, counters.DropTooLarge)
	}
	s.ip, s.Proto, s.HopLimit, s.ECN = header.IPv4Size, header.UDP, hopLimit, d.ECN
	if s.v6 {
		s.ip = header.IPv6Size
	}
	s.Src, s.Dst, s.DF = &d.Local.IP, &d.Remote.IP, d.DF
	s.Length = header.UDPSize + d.N
	s.link = d.Link
	if s.link == (header.Link{}) {
		if r := l.way(d, &s); r != counters.NotDropped {
			return refuse(d, r)
		}
	}
	mtu := l.cfg.MTU
	if s.ip+s.Length > route.MinMTU4 {
		mtu = l.paths.Get(&d.Remote.IP, mtu, l.now)
	}
	if !s.v6 && !s.DF {
		l.id = l.id*6364136223846793005 + 1442695040888963407
		s.ID = uint16(l.id >> 48) // it may be cut on the way, if hardly ever
	}
	if s.ip+s.Length > mtu {
		if s.DF {
			return refuse(d, counters.DropTooLarge)
		}
		return l.split(d, &s, mtu)
	}
	size := s.link.Size()
	frame := d.Buf[Headroom-header.UDPSize-s.ip-size : Headroom+d.N]
	offload := l.cfg.Offload && !s.wait
	l.headers(frame, &s, offload)
	header.PutUDP(frame[size+s.ip:], d.Local.Port, d.Remote.Port, s.Length, header.PseudoOf(s.Src, s.Dst, header.UDP, s.Length), offload)
	if s.wait {
		if !l.table.Hold(s.hop, frame) {
			return refuse(d, counters.DropNeighbour)
		}
		return Waits
	}
	d.Frame, d.Offload, d.L2, d.L3 = frame, offload, uint8(size), uint8(s.ip)
	return Transmit
}

func is4(e *burst.Endpoint) bool {
	hi, lo := words(e.IP[:])
	return hi == 0 && lo>>32 == 0xffff
}

// headers writes the link and IP headers.
func (l *Layer) headers(frame []byte, s *sending, offload bool) {
	if s.v6 {
		header.PutIPv6(frame[s.link.Put(frame, header.TypeIPv6):], &s.IPFields)
		return
	}
	s.NoSum = offload
	header.PutIPv4(frame[s.link.Put(frame, header.TypeIPv4):], &s.IPFields)
}

// way finds the next hop of d and its link address.
func (l *Layer) way(d *Datagram, s *sending) counters.Reason {
	hop, ok := l.routes.Lookup(&d.Remote.IP)
	switch {
	case s.v6 && linkLocal(&d.Remote.IP): // its scope says on which link it is
		hop = route.Hop{IP: d.Remote.IP, VLAN: uint16(d.Remote.Scope)}
	case !ok && s.v6 && l.now < l.router.until:
		hop = l.router.hop
	case !ok:
		return counters.DropNoRoute
	}
	s.hop = neighbour.Key(hop)
	mac, known := l.table.Resolve(s.hop, l.now)
	s.wait = !known
	s.link = header.Link{Peer: mac, Own: l.mac, TCI: hop.VLAN, Tag: hop.VLAN != 0}
	return counters.NotDropped
}

// split sends d in fragments (RFC 791 3.2, RFC 8200 4.5). They go through Tx, or
// wait as frames do. A datagram is dropped with the first fragment that can do
// neither: the rest would be of no use.
func (l *Layer) split(d *Datagram, s *sending, mtu int) Verdict {
	size, extra := s.link.Size(), 0
	if s.v6 {
		extra = header.FragmentSize
	}
	// The UDP header, and its checksum over everything, before it is cut.
	whole := d.Buf[Headroom-header.UDPSize : Headroom+d.N]
	header.PutUDP(whole, d.Local.Port, d.Remote.Port, s.Length, header.PseudoOf(s.Src, s.Dst, header.UDP, s.Length), false)

	id, each := rand.Uint32(), (mtu-s.ip-extra)&^7 // unpredictable (RFC 7739)
	fields := *s
	fields.ID = uint16(id)
	if s.v6 {
		fields.Proto = header.FragmentProto
	}
	for at := 0; at < len(whole); at += each {
		data := whole[at:min(at+each, len(whole))]
		fields.Length, fields.Offset, fields.More = extra+len(data), at, at+each < len(whole)
		out := l.scratch
		if !s.wait {
			if out = l.reserve(); out == nil {
				return refuse(d, counters.DropNoBuffer)
			}
		}
		l.headers(out, &fields, false)
		if s.v6 {
			header.PutFragment(out[size+s.ip:], header.UDP, at, fields.More, id)
		}
		n := size + s.ip + extra
		n += copy(out[n:], data)
		if !s.wait {
			l.commit(n)
		} else if !l.table.Hold(s.hop, out[:n]) {
			return refuse(d, counters.DropNeighbour)
		}
	}
	if s.wait {
		return Waits
	}
	return Split
}
