package packet

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/neighbour"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

// defendInterval is the least time between two announcements for a conflict
// (RFC 5227 2.4), nanoseconds.
const defendInterval = int64(10e9)

// router is the IPv6 router that was advertised.
type router struct {
	hop   route.Hop
	until int64
	asked int   // solicitations sent
	next  int64 // when the next is due
}

// Learn reads a frame that another layer on this link marked with Share: for what
// it says of neighbours, not to answer it or to pass it on. It is in no ledger.
func (l *Layer) Learn(frame []byte, now int64) {
	owner, kernel := l.owner, l.cfg.Kernel
	l.now, l.owner, l.cfg.Kernel = now, false, false
	f := Frame{Data: frame}
	link, typ, at, ok := header.ParseLink(frame)
	f.Link = link
	switch {
	case !ok || link.Peer.Group():
	case typ == header.TypeARP:
		l.arp(&f, frame[at:])
	case typ == header.TypeIPv6:
		if h, ok := header.ParseIPv6(frame[at:]); ok && h.Next() == header.ICMPv6 && len(h) >= header.IPv6Size+header.ICMPSize {
			l.discovery(&f, h)
		}
	}
	l.owner, l.cfg.Kernel = owner, kernel
}

// arp reads an ARP packet (RFC 826, RFC 5227).
func (l *Layer) arp(f *Frame, b []byte) Verdict {
	m, ok := header.ParseARP(b)
	if !ok || m.SenderMAC().Group() || m.Op() != header.ARPRequest && m.Op() != header.ARPReply {
		return drop(f, counters.DropMalformed)
	}
	vlan, sender, target, mac := f.Link.VLAN(), m.Sender(), m.Target(), m.SenderMAC()
	anybody := sender == header.Mapped([]byte{0, 0, 0, 0}) // a probe
	if a := l.find(&sender); a != nil && a.vlan == vlan {
		if mac != l.mac {
			l.conflict(f, a)
		}
		return Consumed
	}
	a := l.find(&target)
	ours := a != nil && a.vlan == vlan
	if m.Op() == header.ARPReply || sender == target {
		f.Share = true
		solicited := m.Op() == header.ARPReply && f.Link.Own == l.mac
		l.table.Advertised(neighbour.Key{IP: sender, VLAN: vlan},
			neighbour.Advert{MAC: mac, HasMAC: true, Solicited: solicited, Override: true}, l.now)
		return l.quiet()
	}
	switch {
	case !ours:
		return l.other(f, counters.DropNotLocal)
	case a.state == Tentative:
		if anybody && mac != l.mac { // both of us want it (RFC 5227 2.1.1)
			l.taken(f, a)
		}
		return Consumed
	case a.state == Taken:
		return Consumed
	}
	if !anybody && l.routes.OnLink(&sender, vlan) {
		f.Share = true
		l.table.Solicited(neighbour.Key{IP: sender, VLAN: vlan}, mac)
	}
	if !l.owner {
		return Consumed
	}
	out := l.reserve()
	if out == nil {
		return drop(f, counters.DropNoBuffer)
	}
	back := header.Link{Peer: mac, Own: l.mac, TCI: f.Link.TCI, Tag: f.Link.Tag}
	at := back.Put(out, header.TypeARP)
	header.PutARP(out[at:], header.ARPReply, l.mac, &target, mac, &sender)
	l.commit(at + header.ARPSize)
	return Consumed
}

// conflict is another host that uses a.
func (l *Layer) conflict(f *Frame, a *local) {
	switch a.state {
	case Tentative:
		l.taken(f, a)
	case Preferred:
		l.Stats.Conflicts++
		if l.owner && (l.defended == 0 || l.now-l.defended >= defendInterval) {
			l.defended = l.now
			l.announceOne(a)
		}
	}
}

// taken is an address that somebody had before us.
func (l *Layer) taken(f *Frame, a *local) {
	f.Share = true // sibling lanes want it too
	l.Stats.Duplicates++
	a.state = Taken
}

// discovery reads a message of neighbour discovery (RFC 4861), which is checked
// more closely than others: hop limit 255 says that it comes from this link.
func (l *Layer) discovery(f *Frame, h header.IPv6) Verdict {
	m := header.ICMPMessage(h[header.IPv6Size:])
	if h.HopLimit() != 255 || m.Code() != 0 {
		return drop(f, counters.DropMalformed)
	}
	if !header.Pseudo(h.Addrs(), header.ICMPv6, len(m)).Add(m).Right() {
		return drop(f, counters.DropChecksum)
	}
	switch m.Type() {
	case header.NeighSolicit:
		return l.solicited(f, h, m)
	case header.NeighAdvert:
		return l.advertised(f, h, m)
	case header.RouterAdvert:
		return l.routed(f, h, m)
	}
	return l.other(f, counters.DropProtocol) // redirects: routes are configured
}

// macOption returns the link address in the first option typ. ok is false for a
// message to be dropped.
func macOption(opts []byte, typ uint8) (mac header.MAC, has, ok bool) {
	v, ok := header.NDOption(opts, typ)
	if !ok || v == nil {
		return mac, false, ok
	}
	if len(v) != len(mac) || header.MAC(v).Group() {
		return mac, false, false
	}
	return header.MAC(v), true, true
}

func (l *Layer) solicited(f *Frame, h header.IPv6, m header.ICMPMessage) Verdict {
	if len(m) < header.NDSize || m[8] == 0xff {
		return drop(f, counters.DropMalformed)
	}
	src, dst, target, vlan := h.Src(), h.Dst(), [16]byte(m[8:24]), f.Link.VLAN()
	mac, has, ok := macOption(m[header.NDSize:], header.SourceLink)
	detecting := src == [16]byte{}
	if !ok || detecting && (has || dst != header.SolicitedNode(&target)) || src[0] == 0xff {
		return drop(f, counters.DropMalformed) // RFC 4861 7.1.1
	}
	a := l.find(&target)
	if a == nil || a.vlan != vlan || !a.v6 {
		return l.other(f, counters.DropNotLocal)
	}
	if a.state != Preferred {
		if a.state == Tentative && detecting && f.Link.Peer != l.mac { // RFC 4862 5.4.3
			l.taken(f, a)
		}
		return Consumed
	}
	if f.Link.Peer == l.mac {
		return Consumed // another generation of ours
	}
	if has && !detecting {
		f.Share = true
		l.table.Solicited(neighbour.Key{IP: src, VLAN: vlan}, mac)
	}
	if !l.owner {
		return Consumed
	}
	out := l.reserve()
	if out == nil {
		return drop(f, counters.DropNoBuffer)
	}
	flags, to := uint32(header.FlagReplace|header.FlagAnswer), src
	back := header.Link{Peer: f.Link.Peer, Own: l.mac, TCI: f.Link.TCI, Tag: f.Link.Tag}
	switch {
	case detecting: // it must hear that the address is ours (RFC 4861 7.2.4)
		flags, to = header.FlagReplace, allNodes
		back.Peer = header.Multicast6(&to)
	case has:
		back.Peer = mac
	}
	l.commit(putND(out, &back, header.NeighAdvert, flags, &target, &to, &target, header.TargetLink, l.mac))
	return Consumed
}

var (
	allNodes   = [16]byte{0xff, 0x02, 15: 1}
	allRouters = [16]byte{0xff, 0x02, 15: 2}
)

// putND writes a whole frame with a message of neighbour discovery and returns its
// size.
func putND(b []byte, link *header.Link, typ uint8, flags uint32, src, dst, target *[16]byte, option uint8, mac header.MAC) int {
	at := link.Put(b, header.TypeIPv6)
	n := header.NDSize
	if option != 0 {
		n += header.NDLinkSize
	}
	header.PutIPv6(b[at:], &header.IPFields{Src: src, Dst: dst, Proto: header.ICMPv6, HopLimit: 255, Length: n})
	header.PutND(b[at+header.IPv6Size:][:n], typ, flags, target, option, mac, header.Pseudo(header.IPv6(b[at:]).Addrs(), header.ICMPv6, n))
	return at + header.IPv6Size + n
}

func (l *Layer) advertised(f *Frame, h header.IPv6, m header.ICMPMessage) Verdict {
	flags, dst := m.Word(), h.Dst()
	if len(m) < header.NDSize || m[8] == 0xff || dst[0] == 0xff && flags&header.FlagAnswer != 0 {
		return drop(f, counters.DropMalformed) // RFC 4861 7.1.2
	}
	mac, has, ok := macOption(m[header.NDSize:], header.TargetLink)
	if !ok {
		return drop(f, counters.DropMalformed)
	}
	target, vlan := [16]byte(m[8:24]), f.Link.VLAN()
	if a := l.find(&target); a != nil && a.vlan == vlan {
		if f.Link.Peer != l.mac {
			l.conflict(f, a)
		}
		return Consumed
	}
	f.Share = true
	l.table.Advertised(neighbour.Key{IP: target, VLAN: vlan}, neighbour.Advert{
		MAC: mac, HasMAC: has, Solicited: flags&header.FlagAnswer != 0,
		Override: flags&header.FlagReplace != 0, Router: flags&header.FlagRouter != 0,
	}, l.now)
	return l.quiet()
}

// routed takes a router's advertisement for a default route, where that is wanted.
func (l *Layer) routed(f *Frame, h header.IPv6, m header.ICMPMessage) Verdict {
	const size = 16
	src := h.Src()
	if len(m) < size || !linkLocal(&src) {
		return drop(f, counters.DropMalformed) // RFC 4861 6.1.2
	}
	mac, has, ok := macOption(m[size:], header.SourceLink)
	if !ok {
		return drop(f, counters.DropMalformed)
	}
	if l.cfg.Routers {
		f.Share = true
		hop := route.Hop{IP: src, VLAN: f.Link.VLAN()}
		lifetime := int64(binary.BigEndian.Uint16(m[6:])) * 1e9
		if has {
			l.table.Solicited(neighbour.Key(hop), mac)
		}
		// The first router is kept until it expires or resigns (RFC 4861 6.3.6).
		if l.router.hop == hop || l.now >= l.router.until {
			l.router.hop, l.router.until = hop, l.now+lifetime
		}
	}
	return l.quiet()
}
