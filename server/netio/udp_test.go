package netio

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
)

// The sockets that the parsing tests stand for, by what they are bound to.
var bound = map[string]*UDP{
	"v4": NewUDP(-1, 1, 0, netip.MustParseAddrPort("192.0.2.1:53")), "v4 any": NewUDP(-1, 2, 0, netip.MustParseAddrPort("0.0.0.0:53")),
	"v6": NewUDP(-1, 3, 0, netip.MustParseAddrPort("[2001:db8::1]:53")), "v6 any": NewUDP(-1, 4, 0, netip.MustParseAddrPort("[::]:53")),
}

func TestNewUDP(t *testing.T) {
	for in, want := range map[string]struct{ wildcard, v6 bool }{
		"192.0.2.1:53": {false, false}, "0.0.0.0:53": {true, false}, "[2001:db8::1]:53": {false, true}, "[::]:53": {true, true},
		"[::ffff:192.0.2.1]:53": {false, false},
	} {
		u := NewUDP(5, 6, 7, netip.MustParseAddrPort(in))
		if u.FD != 5 || u.ID != 6 || u.Listener != 7 || u.Wildcard != want.wildcard || u.v6 != want.v6 {
			t.Errorf("%s: %+v", in, u)
		}
	}
}

// What is sent to an endpoint would be received as from it: names survive the
// way there and back, with the zone of a link-local address.
func TestNamesRoundTrip(t *testing.T) {
	for in, u := range map[string]*UDP{"198.51.100.7:40000": bound["v4"], "[2001:db8::7]:1": bound["v6"], "[fe80::1]:65535": bound["v6 any"]} {
		e := burst.EndpointOf(netip.MustParseAddrPort(in))
		if u.v6 {
			e.Scope = 3
		}
		var name [nameSize]byte
		for i := range name {
			name[i] = 0xaa // of the datagram before
		}
		n := u.encodeName(name[:], &e)
		var back burst.Endpoint
		if decodeName(&back, name[:n]); back != e {
			t.Errorf("%s came back as %+v", in, back)
		}
	}
}

// The PKTINFO that is sent names the address that was asked. An interface is
// named for a link-local address only: anything else may leave by any.
func TestControlRoundTrip(t *testing.T) {
	for in, c := range map[string]struct {
		u       *UDP
		ifindex uint32
	}{
		"192.0.2.77:53": {bound["v4 any"], 0}, "[2001:db8::77]:53": {bound["v6 any"], 0}, "[fe80::77]:53": {bound["v6 any"], 9}, "[febf::77]:53": {bound["v6 any"], 9},
		"[fec0::77]:53": {bound["v6 any"], 0},
	} {
		p := burst.Packet{Local: burst.EndpointOf(netip.MustParseAddrPort(in)), IfIndex: 9}
		var control [controlSize]byte
		for i := range control {
			control[i] = 0xaa
		}
		n := c.u.encodeControl(control[:], &p)
		msgs, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil || len(msgs) != 1 {
			t.Errorf("%s: %d messages, %v", in, len(msgs), err)
		}
		var back burst.Packet
		c.u.parse(&back, nil, control[:n])
		if back.Local != p.Local || back.IfIndex != c.ifindex {
			t.Errorf("%s came back as %v on interface %d", in, back.Local.AddrPort(), back.IfIndex)
		}
	}
	for _, u := range []*UDP{bound["v4"], bound["v6"]} {
		if n := u.encodeControl(make([]byte, controlSize), &burst.Packet{}); n != 0 {
			t.Errorf("a socket of one address sends %d octets of control", n)
		}
	}
}

// A name that is no address leaves nothing of the datagram before.
func TestNameThatIsNone(t *testing.T) {
	full := make([]byte, nameSize)
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6, unix.AF_UNIX} {
		binary.NativeEndian.PutUint16(full, family)
		for n := range full {
			if family == unix.AF_INET && n >= 8 {
				break
			}
			e := burst.Endpoint{Port: 7, Scope: 8, IP: [16]byte{9}}
			if decodeName(&e, full[:n]); e != (burst.Endpoint{}) {
				t.Errorf("family %d, %d octets: %+v", family, n, e)
			}
		}
	}
}

// FuzzControl parses any name and any control bytes, as a kernel that is not ours
// might write them. What parse makes of them can be encoded again.
func FuzzControl(f *testing.F) {
	for _, u := range bound {
		p := burst.Packet{Local: u.local, IfIndex: 2}
		var name [nameSize]byte
		var control [controlSize]byte
		n := u.encodeName(name[:], &u.local)
		c := u.encodeControl(control[:], &p)
		f.Add(name[:n], control[:c])
		f.Add(name[:n-1], append(bytes.Clone(control[:c]), control[:c]...))
	}
	huge := make([]byte, controlSize)
	binary.NativeEndian.PutUint64(huge, 1<<63-1)
	f.Add([]byte{}, huge)
	for n := range unix.SizeofCmsghdr { // shorter than their own header
		short := make([]byte, controlSize)
		short[0] = byte(n)
		f.Add([]byte{}, short)
	}
	f.Add([]byte{}, []byte{16, 0, 0, 0, 0, 0, 0, 0, 41, 0, 0, 0, 50, 0, 0, 0})
	f.Fuzz(func(t *testing.T, name, control []byte) {
		for what, u := range bound {
			p := burst.Packet{Socket: 99, Local: burst.Endpoint{Port: 98}, Remote: burst.Endpoint{Port: 97}, IfIndex: 96, ECN: 3}
			u.parse(&p, name, control)
			if p.Socket != u.ID || p.Local.Port != u.local.Port || p.ECN != 0 {
				t.Errorf("%s: socket %d, local %v, ECN %d", what, p.Socket, p.Local.AddrPort(), p.ECN)
			}
			if p.Remote.Port != 0 && len(name) < 8 {
				t.Errorf("%s: a remote %v out of %d octets", what, p.Remote.AddrPort(), len(name))
			}
			if len(control) < unix.SizeofCmsghdr+unix.SizeofInet4Pktinfo && (p.IfIndex != 0 || p.Local != u.local) {
				t.Errorf("%s: asked at %v on interface %d out of %d octets", what, p.Local.AddrPort(), p.IfIndex, len(control))
			}
			var encoded [nameSize]byte
			var back burst.Endpoint
			decodeName(&back, encoded[:u.encodeName(encoded[:], &p.Remote)])
			if u.v6 && back != p.Remote {
				t.Errorf("%s: the answer to %+v goes to %+v", what, p.Remote, back)
			}
			var answer [controlSize]byte
			if n := u.encodeControl(answer[:], &p); n > controlSize || (n != 0) != u.Wildcard {
				t.Errorf("%s: %d octets of control", what, n)
			}
		}
	})
}
