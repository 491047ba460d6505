package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Poll is how the lanes of the data path DPDK look for packets.
type Poll string

// The ways.
const (
	Adaptive Poll = "adaptive" // it sleeps for short times while there is little to do
	Busy     Poll = "busy"     // it never sleeps
)

// Device is one network device of the data path DPDK. Up to MTU the primary makes
// it; what follows is of the host that workers make of it, and a reload may change
// it.
type Device struct {
	Name        string `json:"name"`
	Device      string `json:"device"` // PCI address, or virtual device with its arguments
	Queues      int    `json:"queues"`
	Descriptors int    `json:"descriptors"` // per queue
	MTU         int    `json:"mtu"`

	Addresses  []netip.Prefix `json:"addresses"` // with the length of the prefix that is on the link
	VLAN       int            `json:"vlan"`      // 0: untagged
	Gateways   []netip.Addr   `json:"gateways"`  // at most one of each family
	Neighbours []Neighbour    `json:"neighbours"`
	Kernel     Kernel         `json:"kernel"`
}

// Kernel is how this host's kernel has a part in a device.
type Kernel struct {
	TAP       string         `json:"tap"`       // name of the TAP device; "": it has none
	Addresses []netip.Prefix `json:"addresses"` // of it; none: those of the device
}

// TAPAddresses returns the addresses that the kernel has at the TAP device of d.
func (d *Device) TAPAddresses() []netip.Prefix {
	if len(d.Kernel.Addresses) > 0 {
		return d.Kernel.Addresses
	}
	return d.Addresses
}

// Neighbour is a host on the link that is not asked for its link address.
type Neighbour struct {
	IP  netip.Addr
	MAC [6]byte
}

// String returns n as it is written in the file.
func (n Neighbour) String() string {
	return n.IP.String() + " " + net.HardwareAddr(n.MAC[:]).String()
}

// MarshalText implements encoding.TextMarshaler.
func (n Neighbour) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Neighbour) UnmarshalText(text []byte) error {
	if len(text) == 0 { // was refused
		*n = Neighbour{}
		return nil
	}
	ip, mac, _ := strings.Cut(string(text), " ")
	var err error
	if n.IP, err = netip.ParseAddr(ip); err != nil {
		return fmt.Errorf("neighbour %q: %w", text, err)
	}
	hw, err := net.ParseMAC(strings.TrimSpace(mac))
	if err != nil || len(hw) != len(n.MAC) {
		return fmt.Errorf("neighbour %q: %q is no link address of 6 octets", text, mac)
	}
	n.MAC = [6]byte(hw)
	return nil
}

// parsePrefix checks an address of a device and returns it in canonical form.
func parsePrefix(s string) (any, *fault) {
	const right = `write an address with the length of its prefix, such as "192.0.2.1/24" or "2001:db8::1/64"`
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			n := 24
			if a.Is6() {
				n = 64
			}
			return nil, &fault{fmt.Sprintf("%q has no prefix length", s), fmt.Sprintf("write %q, with that of its link", netip.PrefixFrom(a, n))}
		}
		return nil, &fault{fmt.Sprintf("%q is not an address with a prefix length", s), right}
	}
	if _, f := parseHost(p.Addr().String()); f != nil {
		return nil, f
	}
	switch a := p.Addr(); {
	case a.IsLoopback():
		return nil, &fault{fmt.Sprintf("%q is a loopback address", s), "write an address of the device's network"}
	case a == p.Masked().Addr() && p.Bits() < a.BitLen()-1:
		return nil, &fault{fmt.Sprintf("%q is a network, not a host in it", s), fmt.Sprintf("write the host's own address, such as %q", netip.PrefixFrom(a.Next(), p.Bits()))}
	}
	return p.String(), nil
}

// parseNeighbour checks a neighbour and returns it in canonical form.
func parseNeighbour(s string) (any, *fault) {
	const right = `write an address and a link address, such as "192.0.2.1 02:00:5e:00:53:01"`
	var n Neighbour
	if err := n.UnmarshalText([]byte(s)); err != nil {
		return nil, &fault{fmt.Sprintf("%q is not an address and a link address", s), right}
	}
	if _, f := parseHost(n.IP.String()); f != nil {
		return nil, f
	}
	if n.MAC[0]&1 != 0 || n.MAC == [6]byte{} {
		return nil, &fault{fmt.Sprintf("%q has the link address of no host", s), right}
	}
	return n.String(), nil
}
