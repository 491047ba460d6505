package header

import "encoding/binary"

// The ethertypes that are read.
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeVLAN = 0x8100
	TypeIPv6 = 0x86dd
)

// Sizes in bytes.
const (
	EthernetSize = 14
	VLANSize     = 4
	LinkMax      = EthernetSize + VLANSize
)

// MAC is a 48-bit link address.
type MAC [6]byte

// Broadcast is the link address of everybody.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Group reports whether m is a multicast or broadcast address.
func (m MAC) Group() bool { return m[0]&1 != 0 }

// Multicast6 returns the link address of an IPv6 multicast address (RFC 2464 7).
func Multicast6(ip *[16]byte) MAC { return MAC{0x33, 0x33, ip[12], ip[13], ip[14], ip[15]} }

// Link is the way a frame came, and so the way its answer goes: the addresses
// and the tag. The zero Link is no way.
type Link struct {
	Peer MAC    // who sent it; an answer's destination
	Own  MAC    // whom it was sent to; an answer's source
	TCI  uint16 // 802.1Q tag: priority, DEI and VLAN
	Tag  bool   // whether there was a tag
}

// VLAN returns the VLAN, 0 without one. A priority tag (VLAN 0) is none.
func (l *Link) VLAN() uint16 { return l.TCI & 0xfff }

// Size returns the bytes that Put writes.
func (l *Link) Size() int {
	if l.Tag {
		return LinkMax
	}
	return EthernetSize
}

// ParseLink returns how frame came, its ethertype and where its payload starts.
// ok is false where it is shorter than its link header.
func ParseLink(frame []byte) (l Link, typ uint16, at int, ok bool) {
	if len(frame) < EthernetSize {
		return l, 0, 0, false
	}
	l.Own, l.Peer = MAC(frame[0:6]), MAC(frame[6:12])
	typ, at = binary.BigEndian.Uint16(frame[12:]), EthernetSize
	if typ == TypeVLAN {
		if len(frame) < LinkMax {
			return l, 0, 0, false
		}
		l.TCI, l.Tag = binary.BigEndian.Uint16(frame[14:]), true
		typ, at = binary.BigEndian.Uint16(frame[16:]), LinkMax
	}
	return l, typ, at, true
}

// Put writes the link header of an answer that goes back over l, and returns its
// size. frame must have room for it.
func (l *Link) Put(frame []byte, typ uint16) int {
	copy(frame[0:6], l.Peer[:])
	copy(frame[6:12], l.Own[:])
	if l.Tag {
		binary.BigEndian.PutUint16(frame[12:], TypeVLAN)
		binary.BigEndian.PutUint16(frame[14:], l.TCI)
		binary.BigEndian.PutUint16(frame[16:], typ)
		return LinkMax
	}
	binary.BigEndian.PutUint16(frame[12:], typ)
	return EthernetSize
}

// Discovery reports whether frame is an ARP packet or a message of neighbour
// discovery (RFC 4861).
func Discovery(frame []byte) bool {
	_, typ, at, ok := ParseLink(frame)
	if !ok || typ == TypeARP {
		return ok
	}
	h, ok := ParseIPv6(frame[at:])
	return ok && typ == TypeIPv6 && h.Next() == ICMPv6 && len(h) >= IPv6Size+ICMPSize && h[IPv6Size] >= RouterSolicit && h[IPv6Size] <= Redirect6
}

// Advertisement reports whether a frame says where a host is that was asked for, or
// that says so of its own accord: an ARP reply, or a neighbour advertisement.
func Advertisement(frame []byte) bool {
	_, typ, at, ok := ParseLink(frame)
	if !ok {
		return false
	}
	if typ == TypeARP {
		a, ok := ParseARP(frame[at:])
		return ok && a.Op() == 2
	}
	h, ok := ParseIPv6(frame[at:])
	return ok && typ == TypeIPv6 && h.Next() == ICMPv6 && len(h) >= IPv6Size+ICMPSize && h[IPv6Size] == NeighAdvert
}

// ARPSize is the size of an ARP packet for Ethernet and IPv4.
const ARPSize = 28

// The operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is an ARP packet for Ethernet and IPv4 (RFC 826), at least ARPSize bytes.
type ARP []byte

// ParseARP returns b as an ARP packet; ok is false where it is none for Ethernet
// and IPv4.
func ParseARP(b []byte) (a ARP, ok bool) {
	if len(b) < ARPSize || binary.BigEndian.Uint64(b)>>16 != 0x000108000604 {
		return nil, false
	}
	return ARP(b), true
}

// Op returns the operation.
func (a ARP) Op() uint16 { return binary.BigEndian.Uint16(a[6:]) }

// SenderMAC returns the sender's hardware address.
func (a ARP) SenderMAC() MAC { return MAC(a[8:14]) }

// Sender returns the sender's protocol address, IPv4-mapped.
func (a ARP) Sender() [16]byte { return Mapped(a[14:18]) }

// Target returns the target's protocol address, IPv4-mapped.
func (a ARP) Target() [16]byte { return Mapped(a[24:28]) }

// PutARP writes an ARP packet of ARPSize bytes. The addresses are IPv4-mapped.
func PutARP(b []byte, op uint16, senderMAC MAC, sender *[16]byte, targetMAC MAC, target *[16]byte) {
	binary.BigEndian.PutUint64(b, 0x000108000604<<16|uint64(op))
	copy(b[8:14], senderMAC[:])
	copy(b[14:18], sender[12:])
	copy(b[18:24], targetMAC[:])
	copy(b[24:28], target[12:])
}

// Mapped returns the IPv4 address b in its IPv4-mapped form.
func Mapped(b []byte) (ip [16]byte) {
	ip[10], ip[11] = 0xff, 0xff
	copy(ip[12:], b[:4])
	return ip
}
