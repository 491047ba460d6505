package packet

import (
	"math"

	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/neighbour"
)

// Times in nanoseconds.
const (
	detectTime   = int64(1e9) // RetransTimer, the time that an owner has to answer (RFC 4862 5.4)
	announceTime = int64(1e9) // between the two announcements
	solicitTime  = int64(4e9) // RTR_SOLICITATION_INTERVAL (RFC 4861 10)
	maxSolicits  = 3          // MAX_RTR_SOLICITATIONS
)

// Own makes this layer the one that answers for the addresses. It announces them,
// or begins to ask whether they are taken; call Tick next.
func (l *Layer) Own(now int64) {
	l.now, l.owner = now, true
	for i := range l.locals {
		l.announceOne(&l.locals[i])
	}
	l.announce = now + announceTime
	l.router.next = now
}

// Disown ends that.
func (l *Layer) Disown() { l.owner, l.announce = false, 0 }

// Tick does what is due at now and returns when to call it again, at the latest;
// math.MaxInt64: after the next Input or Output.
func (l *Layer) Tick(now int64) (next int64) {
	l.now = now
	l.frags.Expire(now)
	next = l.table.Tick(now)
	l.Stats.Unresolved = l.table.Lost
	if at, ok := l.frags.Deadline(); ok {
		next = min(next, at)
	}
	if !l.owner {
		return next
	}
	for i := range l.locals {
		if a := &l.locals[i]; a.state == Tentative {
			next = min(next, l.detect(a))
		}
	}
	if l.announce != 0 && now >= l.announce {
		l.announce = 0
		for i := range l.locals {
			l.announceOne(&l.locals[i])
		}
	}
	if l.announce != 0 {
		next = min(next, l.announce)
	}
	if l.cfg.Routers && now >= l.router.until && l.router.asked < maxSolicits {
		if now >= l.router.next {
			l.solicitRouters()
			l.router.next = now + solicitTime
		}
		next = min(next, l.router.next)
	}
	return next
}

// detect asks whether a is taken and, when nobody has answered in time, begins to
// use it. It returns when to look again.
func (l *Layer) detect(a *local) int64 {
	if a.asked == 0 {
		a.asked = l.now
		l.ask(neighbour.Key{IP: a.ip, VLAN: a.vlan}, header.MAC{}, a, true)
	}
	if l.now < a.asked+detectTime {
		return a.asked + detectTime
	}
	a.state = Preferred
	l.announceOne(a)
	return math.MaxInt64
}

// announceOne tells the link that a is at our address: a gratuitous ARP request
// (RFC 5227 2.3) or an unsolicited advertisement (RFC 4861 7.2.6).
func (l *Layer) announceOne(a *local) {
	if a.state != Preferred {
		return
	}
	out := l.reserve()
	if out == nil {
		return
	}
	link := header.Link{Peer: header.Broadcast, Own: l.mac, TCI: a.vlan, Tag: a.vlan != 0}
	if a.v6 {
		to := allNodes
		link.Peer = header.Multicast6(&to)
		l.commit(putND(out, &link, header.NeighAdvert, header.FlagReplace, &a.ip, &to, &a.ip, header.TargetLink, l.mac))
		return
	}
	at := link.Put(out, header.TypeARP)
	header.PutARP(out[at:], header.ARPRequest, l.mac, &a.ip, header.MAC{}, &a.ip)
	l.commit(at + header.ARPSize)
}

// ask sends an ARP request or a neighbour solicitation for k: to mac, or to
// everybody where it is zero. from is the address of ours that asks; detecting
// whether it is free, it must not be told (RFC 4861 4.3, RFC 5227 1.1).
func (l *Layer) ask(k neighbour.Key, mac header.MAC, from *local, detecting bool) {
	out := l.reserve()
	if out == nil {
		return
	}
	link := header.Link{Peer: mac, Own: l.mac, TCI: k.VLAN, Tag: k.VLAN != 0}
	if !from.v6 {
		if mac == (header.MAC{}) {
			link.Peer = header.Broadcast
		}
		sender := from.ip
		if detecting {
			sender = header.Mapped([]byte{0, 0, 0, 0})
		}
		at := link.Put(out, header.TypeARP)
		header.PutARP(out[at:], header.ARPRequest, l.mac, &sender, header.MAC{}, &k.IP)
		l.commit(at + header.ARPSize)
		return
	}
	to, src, option := k.IP, from.ip, uint8(header.SourceLink)
	if mac == (header.MAC{}) {
		to = header.SolicitedNode(&k.IP)
		link.Peer = header.Multicast6(&to)
	}
	if detecting {
		src, option = [16]byte{}, 0
	}
	l.commit(putND(out, &link, header.NeighSolicit, 0, &src, &to, &k.IP, option, l.mac))
}

// solicitRouters asks the routers of each link with an IPv6 address (RFC 4861 6.3.7).
func (l *Layer) solicitRouters() {
	l.router.asked++
	for i := range l.locals {
		a := &l.locals[i]
		if !a.v6 || a.state != Preferred || l.asker(a.vlan, true) != a {
			continue
		}
		out := l.reserve()
		if out == nil {
			return
		}
		to := allRouters
		link := header.Link{Peer: header.Multicast6(&to), Own: l.mac, TCI: a.vlan, Tag: a.vlan != 0}
		at := link.Put(out, header.TypeIPv6)
		n := header.ICMPSize + header.NDLinkSize
		header.PutIPv6(out[at:], &header.IPFields{Src: &a.ip, Dst: &to, Proto: header.ICMPv6, HopLimit: 255, Length: n})
		message := out[at+header.IPv6Size:][:n]
		message[8], message[9] = header.SourceLink, 1
		copy(message[10:], l.mac[:])
		header.PutICMP(message, header.RouterSolicit, 0, 0, header.Pseudo(header.IPv6(out[at:]).Addrs(), header.ICMPv6, n))
		l.commit(at + header.IPv6Size + n)
	}
}

// asker returns the address of ours that speaks on a link, nil without one.
func (l *Layer) asker(vlan uint16, v6 bool) *local {
	for i := range l.locals {
		if a := &l.locals[i]; a.vlan == vlan && a.v6 == v6 && a.state == Preferred {
			return a
		}
	}
	return nil
}

// effects is what the layer does for its neighbour table.
type effects Layer

// Probe asks for k.
func (e *effects) Probe(k neighbour.Key, mac header.MAC) {
	l := (*Layer)(e)
	if a := l.asker(k.VLAN, !mapped(k.IP[:])); a != nil {
		l.ask(k, mac, a, false)
	}
}

// Release sends a frame that waited.
func (e *effects) Release(frame []byte) {
	l := (*Layer)(e)
	if out := l.reserve(); out != nil {
		l.commit(copy(out, frame))
	}
}
