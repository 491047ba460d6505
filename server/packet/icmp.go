package packet

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

// minQuote is the least that an error quotes of a packet's data: its ports.
const minQuote = 8

func (l *Layer) icmp4(f *Frame, p *packet) Verdict {
	if len(p.data) < header.ICMPSize {
		return drop(f, counters.DropMalformed)
	}
	if !header.Sum(0).Add(p.data).Right() {
		return drop(f, counters.DropChecksum)
	}
	m := header.ICMPMessage(p.data)
	var fault Fault
	switch m.Type() {
	case header.EchoRequest:
		return l.echo(f, p)
	case header.Unreachable:
		switch m.Code() {
		case header.CodePort:
			fault.Kind = PortUnreachable
		case header.CodeFragNeeded:
			fault.Kind, fault.MTU = TooBig, int(m.Word()&0xffff) // RFC 1191 4
		default:
			fault.Kind = HostUnreachable
		}
	case header.TimeExceeded:
		fault.Kind = TimeExceeded
	case header.ParamProblem:
		fault.Kind, fault.Pointer = ParameterProblem, m.Word()>>24
	default: // source quench is ignored (RFC 6633), the rest is the kernel's
		return l.other(f, counters.DropProtocol)
	}
	fault.Type, fault.Code = m.Type(), m.Code()
	q := p.data[header.ICMPSize:]
	if len(q) < header.IPv4Size || q[0]>>4 != 4 || q[0]&0xf < 5 {
		return drop(f, counters.DropMalformed)
	}
	h := header.IPv4(q)
	if _, offset, _ := h.Fragment(); offset != 0 || h.Protocol() != header.UDP {
		return l.other(f, counters.DropProtocol) // a later fragment names no flow
	}
	if len(q) < h.HeaderLen()+minQuote || [4]byte(q[12:16]) != [4]byte(p.addrs[4:8]) {
		return drop(f, counters.DropMalformed) // whoever it quotes, it was not us
	}
	return l.quoted(f, p.a, h.Dst(), h.Payload(), fault)
}

func (l *Layer) icmp6(f *Frame, p *packet) Verdict {
	if len(p.data) < header.ICMPSize {
		return drop(f, counters.DropMalformed)
	}
	if !header.Pseudo(p.addrs, header.ICMPv6, len(p.data)).Add(p.data).Right() {
		return drop(f, counters.DropChecksum)
	}
	m := header.ICMPMessage(p.data)
	var fault Fault
	switch m.Type() {
	case header.EchoRequest6:
		return l.echo(f, p)
	case header.Unreachable6:
		fault.Kind = HostUnreachable
		if m.Code() == header.CodePort6 {
			fault.Kind = PortUnreachable
		}
	case header.PacketTooBig6:
		fault.Kind, fault.MTU = TooBig, int(m.Word())
	case header.TimeExceeded6:
		fault.Kind = TimeExceeded
	case header.ParamProblem6:
		fault.Kind, fault.Pointer = ParameterProblem, m.Word()
	default:
		return l.other(f, counters.DropProtocol)
	}
	fault.Type, fault.Code = m.Type(), m.Code()
	q := p.data[header.ICMPSize:]
	if len(q) < header.IPv6Size || q[0]>>4 != 6 {
		return drop(f, counters.DropMalformed)
	}
	h := header.IPv6(q)
	c := header.Walk(q, h.Next(), header.IPv6Size)
	if c.Fault == header.Intact && c.Fragment > 0 {
		if header.FragmentHeader(q[c.Fragment:]).Offset() != 0 {
			return l.other(f, counters.DropProtocol)
		}
		c = header.Walk(q, c.Proto, c.At)
	}
	switch {
	case c.Fault != header.Intact:
		return drop(f, counters.DropMalformed)
	case c.Proto != header.UDP:
		return l.other(f, counters.DropProtocol)
	case len(q) < c.At+minQuote || [16]byte(q[8:24]) != [16]byte(p.addrs[16:32]):
		return drop(f, counters.DropMalformed)
	}
	return l.quoted(f, p.a, h.Dst(), q[c.At:], fault)
}

// quoted is the verdict on an error about a datagram that a sent to remote: u is
// its UDP header.
func (l *Layer) quoted(f *Frame, a *local, remote [16]byte, u []byte, fault Fault) Verdict {
	port := binary.BigEndian.Uint16(u)
	if !a.serves(port) {
		return l.other(f, counters.DropNoListener)
	}
	f.Local = burst.Endpoint{IP: a.ip, Port: port}
	f.Remote = burst.Endpoint{IP: remote, Port: binary.BigEndian.Uint16(u[2:])}
	if a.v6 && linkLocal(&remote) {
		f.Remote.Scope = uint32(a.vlan)
	}
	f.Fault = fault
	return Error
}

// Believe takes an error into account for later datagrams: a path that carries
// less than was thought. The caller has found that the flow (f.Local, f.Remote) is
// one of its own. It reports whether anything changed.
func (l *Layer) Believe(f *Frame, now int64) bool {
	if f.Fault.Kind != TooBig {
		return false
	}
	mtu := f.Fault.MTU
	if f.Remote.Is4() && mtu == 0 {
		mtu = route.MinMTU4 // RFC 1191 5: an old router; the safe guess
	}
	return l.paths.Report(&f.Remote.IP, mtu, l.cfg.MTU, !f.Remote.Is4(), now)
}

// echo answers an echo request in its own frame, without its options and extension
// headers.
func (l *Layer) echo(f *Frame, p *packet) Verdict {
	if l.cfg.Kernel {
		return ToKernel
	}
	if !l.owner {
		return Consumed
	}
	if !l.echoes.take(l.now) {
		return drop(f, counters.DropLimit)
	}
	var src, dst [16]byte
	at := f.Link.Size()
	fields := header.IPFields{Src: &dst, Dst: &src, HopLimit: 64, ECN: 0, Length: len(p.data)}
	size, typ := header.IPv4Size, uint16(header.TypeIPv4)
	if p.a.v6 {
		size, typ = header.IPv6Size, header.TypeIPv6
		src, dst = [16]byte(p.addrs[:16]), [16]byte(p.addrs[16:32])
		fields.Proto = header.ICMPv6
	} else {
		src, dst = header.Mapped(p.addrs), header.Mapped(p.addrs[4:])
		fields.Proto = header.ICMP
	}
	out := f.Data[:at+size+len(p.data)]
	message := out[at+size:]
	copy(message, p.data)
	word := header.ICMPMessage(message).Word()
	f.Link.Put(out, typ)
	if p.a.v6 {
		header.PutIPv6(out[at:], &fields)
		header.PutICMP(message, header.EchoReply6, 0, word, header.Pseudo(header.IPv6(out[at:]).Addrs(), header.ICMPv6, len(message)))
	} else {
		header.PutIPv4(out[at:], &fields)
		header.PutICMP(message, header.EchoReply, 0, word, 0)
	}
	f.Data = out
	return Transmit
}

// unreachable tells the sender of p that nobody listens on its port.
func (l *Layer) unreachable(f *Frame, p *packet) {
	if p.a.v6 {
		l.send(f, p, header.Unreachable6, header.CodePort6, 0)
	} else {
		l.send(f, p, header.Unreachable, header.CodePort, 0)
	}
}

// problem tells the sender of the IPv6 packet p that its header is refused.
func (l *Layer) problem(f *Frame, p *packet, code uint8, pointer int) {
	if !l.cfg.Kernel { // the kernel is not asked twice
		l.send(f, p, header.ParamProblem6, code, uint32(pointer))
	}
}

// send sends an ICMP error about p, back the way it came. p was sent to one address
// of ours from an address that can be answered (RFC 1122 3.2.2, RFC 4443 2.4), and
// is itself no error.
func (l *Layer) send(f *Frame, p *packet, typ, code uint8, word uint32) {
	if !l.owner {
		return
	}
	if !l.errors.take(l.now) {
		l.Stats.Limited++
		return
	}
	// As much of p as fits the least MTU (RFC 4443 3.1), or 576 bytes (RFC 1812 4.3.2.3).
	limit, ip, ethertype := 576, header.IPv4Size, uint16(header.TypeIPv4)
	if p.a.v6 {
		limit, ip, ethertype = route.MinMTU6, header.IPv6Size, header.TypeIPv6
	}
	limit = min(limit, l.cfg.MTU)
	out := l.reserve()
	if out == nil {
		return
	}
	at := f.Link.Put(out, ethertype)
	n := header.ICMPSize + copy(out[at+ip+header.ICMPSize:at+limit], p.ip)
	var src, dst [16]byte
	fields := header.IPFields{Src: &dst, Dst: &src, HopLimit: 64, Length: n}
	message := out[at+ip : at+ip+n]
	if p.a.v6 {
		src, dst = [16]byte(p.addrs[:16]), [16]byte(p.addrs[16:32])
		fields.Proto = header.ICMPv6
		header.PutIPv6(out[at:], &fields)
		header.PutICMP(message, typ, code, word, header.Pseudo(header.IPv6(out[at:]).Addrs(), header.ICMPv6, n))
	} else {
		src, dst = header.Mapped(p.addrs), header.Mapped(p.addrs[4:])
		fields.Proto = header.ICMP
		header.PutIPv4(out[at:], &fields)
		header.PutICMP(message, typ, code, word, 0)
	}
	l.Stats.Errors++
	l.commit(at + ip + n)
}

// reserve returns room for a frame, nil where Tx has none.
func (l *Layer) reserve() []byte {
	out := l.tx.Reserve()
	if out == nil {
		l.Stats.NoRoom++
		return nil
	}
	return out[:MaxFrame(l.cfg.MTU)]
}

func (l *Layer) commit(n int) {
	l.Stats.Made++
	l.tx.Commit(n)
}
