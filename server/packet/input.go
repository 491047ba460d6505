package packet

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/fragment"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// Input reads frames. now is mono.Now; it never goes back.
func (l *Layer) Input(frames []Frame, now int64) {
	l.now = now
	l.frags.Reset()
	for i := range frames {
		f := &frames[i]
		f.Drop, f.Share, f.Payload = counters.NotDropped, false, nil
		v := l.frame(f)
		f.Verdict = v
		l.Stats.InBy[v]++
		if v == Dropped {
			l.Stats.Dropped[f.Drop]++
		}
	}
	l.Stats.In += uint64(len(frames))
}

func drop(f *Frame, r counters.Reason) Verdict {
	f.Drop = r
	return Dropped
}

// other gives what is not served to the kernel; without one it is dropped for r.
func (l *Layer) other(f *Frame, r counters.Reason) Verdict {
	if l.cfg.Kernel {
		return ToKernel
	}
	return drop(f, r)
}

// quiet is the verdict on ARP and NDP frames that the kernel reads as well.
func (l *Layer) quiet() Verdict {
	if l.cfg.Kernel {
		return ToKernel
	}
	return Consumed
}

func (l *Layer) frame(f *Frame) Verdict {
	link, typ, at, ok := header.ParseLink(f.Data)
	f.Link = link
	switch {
	case !ok || link.Peer.Group():
		return drop(f, counters.DropMalformed)
	case link.Own != l.mac && !link.Own.Group():
		return drop(f, counters.DropNotLocal)
	case f.Checked&Bad != 0:
		return drop(f, counters.DropChecksum)
	}
	switch typ {
	case header.TypeIPv4:
		return l.ipv4(f, f.Data[at:])
	case header.TypeIPv6:
		return l.ipv6(f, f.Data[at:])
	case header.TypeARP:
		return l.arp(f, f.Data[at:])
	}
	return l.other(f, counters.DropProtocol)
}

// packet is an IP packet for one of our addresses, or what was put together.
type packet struct {
	a     *local
	ip    []byte // from the IP header on
	addrs []byte // source and destination
	data  []byte // the upper-layer header and what follows
	proto uint8
}

func (l *Layer) ipv4(f *Frame, b []byte) Verdict {
	h, ok := header.ParseIPv4(b)
	if !ok {
		return drop(f, counters.DropMalformed)
	}
	if f.Checked&GoodIP == 0 && !h.ChecksumRight() {
		return drop(f, counters.DropChecksum)
	}
	a := l.lookup(0, mappedWord|uint64(binary.BigEndian.Uint32(h[16:])))
	if a == nil || a.vlan != f.Link.VLAN() || a.state != Preferred {
		return l.other(f, counters.DropNotLocal)
	}
	if f.Link.Own.Group() {
		return drop(f, counters.DropNotLocal) // RFC 1122 3.3.6
	}
	// No answer can go to "this network", loopback, multicast and reserved
	// addresses (RFC 1122 3.2.1.3), nor to ourselves.
	if h[12] == 0 || h[12] == 127 || h[12] >= 224 || [4]byte(h[12:16]) == [4]byte(h[16:20]) {
		return drop(f, counters.DropBadEndpoint)
	}
	if h.HeaderLen() > header.IPv4Size && !h.OptionsAllowed() {
		return drop(f, counters.DropOption)
	}
	p := packet{a, h, h.Addrs(), h.Payload(), h.Protocol()}
	f.ECN = h.ECN()
	if is, offset, more := h.Fragment(); is {
		return l.fragment4(f, &p, offset, more)
	}
	switch p.proto {
	case header.UDP:
		return l.udp(f, &p)
	case header.ICMP:
		return l.icmp4(f, &p)
	}
	return l.other(f, counters.DropProtocol)
}

// mapped reports whether an IPv6 address is IPv4-mapped. On the wire none is
// (RFC 4291 2.5.5.2), and here it would read as the IPv4 address.
func mapped(ip []byte) bool {
	hi, lo := words(ip)
	return hi == 0 && lo>>32 == 0xffff
}

func (l *Layer) ipv6(f *Frame, b []byte) Verdict {
	h, ok := header.ParseIPv6(b)
	if !ok {
		return drop(f, counters.DropMalformed)
	}
	if mapped(h[8:24]) || mapped(h[24:40]) {
		return drop(f, counters.DropBadEndpoint)
	}
	if h.Next() == header.ICMPv6 && len(h) >= header.IPv6Size+header.ICMPSize {
		if t := h[header.IPv6Size]; t >= header.RouterSolicit && t <= header.Redirect6 {
			return l.discovery(f, h)
		}
	}
	a := l.lookup(words(h[24:40]))
	if a == nil || a.vlan != f.Link.VLAN() || a.state != Preferred {
		return l.other(f, counters.DropNotLocal)
	}
	if f.Link.Own.Group() {
		return drop(f, counters.DropNotLocal)
	}
	// No answer can go to the unspecified, loopback and multicast addresses
	// (RFC 4291 2.5.2, 2.5.3, 2.7), nor to ourselves.
	hi, lo := words(h[8:24])
	if hi == 0 && lo <= 1 || h[8] == 0xff || hi == a.hi && lo == a.lo {
		return drop(f, counters.DropBadEndpoint)
	}
	f.ECN = h.ECN()
	return l.chain(f, &packet{a, h, h.Addrs(), nil, h.Next()}, header.IPv6Size)
}

// chain follows the extension headers of p from at on to what serves them.
func (l *Layer) chain(f *Frame, p *packet, at int) Verdict {
	c := header.Chain{Proto: p.proto, At: at, Pointer: 6}
	if p.proto != header.UDP { // by far most are
		c = header.Walk(p.ip, p.proto, at)
	}
	if c.Fault != header.Intact {
		return l.faulty(f, p, &c)
	}
	if c.Fragment > 0 {
		return l.fragment6(f, p, &c)
	}
	p.proto, p.data = c.Proto, p.ip[c.At:]
	switch c.Proto {
	case header.UDP:
		return l.udp(f, p)
	case header.ICMPv6:
		return l.icmp6(f, p)
	case header.NoNext:
		return drop(f, counters.DropProtocol)
	case header.TCP:
		return l.other(f, counters.DropProtocol)
	}
	if !l.cfg.Kernel {
		l.problem(f, p, header.CodeUnknownNext, c.Pointer) // RFC 8200 4
	}
	return l.other(f, counters.DropProtocol)
}

// faulty drops a packet whose extension headers are refused, and says so to its
// sender where the RFC does.
func (l *Layer) faulty(f *Frame, p *packet, c *header.Chain) Verdict {
	switch c.Fault {
	case header.Cut:
		return drop(f, counters.DropMalformed)
	case header.Erroneous:
		l.problem(f, p, header.CodeErroneous6, c.Pointer)
	case header.UnknownNext:
		l.problem(f, p, header.CodeUnknownNext, c.Pointer)
	case header.UnknownOpt:
		l.problem(f, p, header.CodeUnknownOpt, c.Pointer)
	}
	return drop(f, counters.DropOption)
}

func (l *Layer) udp(f *Frame, p *packet) Verdict {
	u := p.data
	if len(u) < header.UDPSize {
		return drop(f, counters.DropMalformed)
	}
	n := int(binary.BigEndian.Uint16(u[4:]))
	if n < header.UDPSize || n > len(u) {
		return drop(f, counters.DropMalformed)
	}
	u = u[:n]
	served := p.a.serves(binary.BigEndian.Uint16(u[2:]))
	if !served && l.cfg.Kernel {
		return ToKernel
	}
	if sum := binary.BigEndian.Uint16(u[6:]); sum == 0 {
		if p.a.v6 {
			return drop(f, counters.DropChecksum) // RFC 8200 8.1
		}
	} else if f.Checked&GoodUDP == 0 && !header.Pseudo(p.addrs, header.UDP, n).Add(u).Right() {
		return drop(f, counters.DropChecksum)
	}
	if !served {
		l.unreachable(f, p)
		return drop(f, counters.DropNoListener)
	}
	f.Remote.Port = binary.BigEndian.Uint16(u)
	if f.Remote.Port == 0 {
		return drop(f, counters.DropBadEndpoint)
	}
	f.Local = burst.Endpoint{IP: p.a.ip, Port: binary.BigEndian.Uint16(u[2:])}
	if p.a.v6 {
		f.Remote.IP = [16]byte(p.addrs[:16])
	} else {
		f.Remote.IP = header.Mapped(p.addrs)
	}
	f.Remote.Scope = 0
	if p.a.v6 && linkLocal(&f.Remote.IP) {
		f.Remote.Scope = uint32(p.a.vlan)
	}
	f.Payload = u[header.UDPSize:]
	return Deliver
}

func linkLocal(ip *[16]byte) bool { return ip[0] == 0xfe && ip[1]&0xc0 == 0x80 }

func (l *Layer) fragment4(f *Frame, p *packet, offset int, more bool) Verdict {
	if p.proto != header.UDP {
		return l.other(f, counters.DropProtocol)
	}
	h := header.IPv4(p.ip)
	d, res := l.frags.Add(&fragment.Part{
		Key:    fragment.Key{Src: h.Src(), Dst: h.Dst(), ID: uint32(h.ID()), VLAN: p.a.vlan, Proto: p.proto},
		Offset: offset, More: more, Next: p.proto, ECN: f.ECN, Data: p.data,
	}, l.now)
	if res != fragment.Complete {
		return l.fragment(f, p, res, 0)
	}
	if len(d.Buf)-fragment.Room > 65535-header.IPv4Size {
		return drop(f, counters.DropFragment)
	}
	return l.whole(f, p, d)
}

func (l *Layer) fragment6(f *Frame, p *packet, c *header.Chain) Verdict {
	fh, data := header.FragmentHeader(p.ip[c.Fragment:]), p.ip[c.At:]
	if fh.Offset() == 0 {
		// The whole chain of headers must be in the first fragment (RFC 7112 5).
		inner := header.Walk(p.ip, c.Proto, c.At)
		if inner.Fault == header.Cut || inner.Proto == header.UDP && len(p.ip)-inner.At < header.UDPSize {
			l.problem(f, p, header.CodeIncomplete, 0)
			return drop(f, counters.DropOption)
		}
		if inner.Fault != header.Intact {
			return l.faulty(f, p, &inner)
		}
		if inner.Fragment > 0 {
			return drop(f, counters.DropOption)
		}
		if !fh.More() { // an atomic fragment has nothing to do with others (RFC 6946)
			p.proto = c.Proto
			f.Checked = 0
			return l.chain(f, p, c.At)
		}
	}
	if c.Proto != header.UDP && c.Proto != header.Destination && c.Proto != header.Routing {
		return l.other(f, counters.DropProtocol)
	}
	h := header.IPv6(p.ip)
	d, res := l.frags.Add(&fragment.Part{
		Key:    fragment.Key{Src: h.Src(), Dst: h.Dst(), ID: fh.ID(), VLAN: p.a.vlan},
		Offset: fh.Offset(), More: fh.More(), Next: fh.Next(), ECN: f.ECN, Data: data,
	}, l.now)
	if res != fragment.Complete {
		return l.fragment(f, p, res, c.Fragment)
	}
	return l.whole(f, p, d)
}

// fragment is the verdict on a fragment that completes nothing. at is where an
// IPv6 fragment header starts.
func (l *Layer) fragment(f *Frame, p *packet, res fragment.Result, at int) Verdict {
	switch res {
	case fragment.Held:
		return Held
	case fragment.Overlap:
		return drop(f, counters.DropFragOverlap)
	case fragment.Limit:
		return drop(f, counters.DropFragLimit)
	case fragment.Odd:
		if p.a.v6 {
			l.problem(f, p, header.CodeErroneous6, 4) // the payload length (RFC 8200 4.5)
		}
	case fragment.TooLong:
		if p.a.v6 {
			l.problem(f, p, header.CodeErroneous6, at+2) // the fragment offset
		}
	}
	return drop(f, counters.DropFragment)
}

// whole goes on with a datagram that was put together. It becomes a frame of its
// own, so that the kernel and ICMP errors can have it.
func (l *Layer) whole(f *Frame, p *packet, d fragment.Datagram) Verdict {
	size, ip := f.Link.Size(), header.IPv4Size
	fields := header.IPFields{Proto: d.Next, HopLimit: 64, ECN: d.ECN, Length: len(d.Buf) - fragment.Room}
	var src, dst [16]byte
	fields.Src, fields.Dst = &src, &dst
	typ := uint16(header.TypeIPv4)
	if p.a.v6 {
		ip, typ = header.IPv6Size, header.TypeIPv6
		src, dst = header.IPv6(p.ip).Src(), header.IPv6(p.ip).Dst()
	} else {
		src, dst = header.IPv4(p.ip).Src(), header.IPv4(p.ip).Dst()
	}
	f.Data = d.Buf[fragment.Room-ip-size:]
	arrived := header.Link{Peer: f.Link.Own, Own: f.Link.Peer, TCI: f.Link.TCI, Tag: f.Link.Tag}
	arrived.Put(f.Data, typ)
	f.Checked, f.ECN = 0, d.ECN
	q := packet{a: p.a, ip: f.Data[size:], proto: d.Next}
	if !p.a.v6 {
		header.PutIPv4(q.ip, &fields)
		q.addrs, q.data = header.IPv4(q.ip).Addrs(), q.ip[ip:]
		return l.udp(f, &q)
	}
	header.PutIPv6(q.ip, &fields)
	q.addrs = header.IPv6(q.ip).Addrs()
	return l.chain(f, &q, ip)
}
