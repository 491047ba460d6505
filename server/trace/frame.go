package trace

import (
	"encoding/binary"

	"github.com/dnsapp/dnsapp/server/packet/header"
)

// ReadFrame makes v the view of an Ethernet frame. What the frame does not have, or
// has in pieces, is left zero.
func (v *View) ReadFrame(frame []byte, sent bool) {
	*v = View{Length: len(frame), Sent: sent}
	link, typ, at, ok := header.ParseLink(frame)
	if !ok {
		return
	}
	if link.Tag {
		v.Tagged, v.VLAN = true, link.VLAN()
	}
	switch b := frame[at:]; typ {
	case header.TypeIPv4:
		v.readIPv4(b)
	case header.TypeIPv6:
		v.readIPv6(b)
	case header.TypeARP:
		v.ARP = true
	}
}

func (v *View) readIPv4(b []byte) {
	h, ok := header.ParseIPv4(b)
	if !ok {
		return
	}
	v.Version, v.Protocol, v.Src, v.Dst = 4, h.Protocol(), h.Src(), h.Dst()
	if _, offset, _ := h.Fragment(); offset == 0 {
		v.readPorts(h.Payload())
	}
}

func (v *View) readIPv6(b []byte) {
	h, ok := header.ParseIPv6(b)
	if !ok {
		return
	}
	c := header.Walk(h, h.Next(), header.IPv6Size)
	v.Version, v.Protocol, v.Src, v.Dst = 6, c.Proto, h.Src(), h.Dst()
	if c.Fault == header.Cut || c.At > len(h) {
		return
	}
	if c.Fragment != 0 && header.FragmentHeader(h[c.Fragment:]).Offset() != 0 {
		return
	}
	v.readPorts(h[c.At:])
}

func (v *View) readPorts(b []byte) {
	if (v.Protocol == protoUDP || v.Protocol == protoTCP) && len(b) >= 4 {
		v.Ports, v.SrcPort, v.DstPort = true, binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
}
