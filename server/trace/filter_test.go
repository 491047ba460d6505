package trace

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// view returns a view of a datagram.
func view(src, dst string, sent bool) *View {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	v := &View{
		Src: s.Addr().As16(), Dst: d.Addr().As16(), SrcPort: s.Port(), DstPort: d.Port(), Ports: true,
		Version: 4, Protocol: protoUDP, Length: 100, Sent: sent,
	}
	if s.Addr().Is6() {
		v.Version = 6
	}
	return v
}

// Each expression takes exactly these of the views.
func TestFilter(t *testing.T) {
	views := []*View{
		view("192.0.2.1:4000", "198.51.100.9:53", false),        // 0
		view("198.51.100.9:53", "192.0.2.1:4000", true),         // 1
		view("[2001:db8::1]:4000", "[2001:db8:9::9]:53", false), // 2
		{Version: 4, Protocol: protoICMP, Src: netip.MustParseAddr("192.0.2.1").As16(), Dst: netip.MustParseAddr("198.51.100.9").As16(), Length: 200}, // 3
		{ARP: true, Tagged: true, VLAN: 7, Length: 60}, // 4
		{Length: 60}, // 5: neither IP nor ARP
	}
	for text, want := range map[string]string{
		"":                              "012345",
		"udp":                           "012",
		"icmp":                          "3",
		"icmp6":                         "",
		"ip":                            "013",
		"ip6":                           "2",
		"arp":                           "4",
		"vlan":                          "4",
		"vlan 7":                        "4",
		"vlan 8":                        "",
		"not vlan and not arp":          "01235",
		"host 192.0.2.1":                "013",
		"src host 192.0.2.1":            "03",
		"dst host 192.0.2.1":            "1",
		"host 2001:db8::1":              "2",
		"net 192.0.2.0/24":              "013",
		"net 0.0.0.0/0":                 "013",
		"net ::/0":                      "0123", // an IPv4 address is one of the mapped ones
		"ip6 net ::/0":                  "2",
		"dst net 2001:db8:9::/48":       "2",
		"src and dst net 2001:db8::/32": "2",
		"src and dst net 192.0.2.0/24":  "",
		"port 53":                       "012",
		"src port 53":                   "1",
		"src or dst port 4000":          "012",
		"portrange 3999-4001":           "012",
		"dst portrange 50-60":           "02",
		"udp port 53":                   "012",
		"tcp port 53":                   "",
		"udp dst port 53":               "02",
		"ip host 192.0.2.1":             "013",
		"inbound":                       "02345",
		"outbound":                      "1",
		"less 100":                      "01245",
		"greater 100":                   "0123",
		"greater 200":                   "3",
		// Joined alike and from the left, as pcap-filter(7) has it.
		"arp or icmp and host 192.0.2.1":   "3",
		"arp or (icmp and host 192.0.2.1)": "34",
		"host 192.0.2.1 and icmp or arp":   "34",
		"not udp port 53":                  "345",
		"!udp||arp":                        "345",
		"! (udp && inbound)":               "1345",
		"not not arp":                      "4",
		"not not not arp":                  "01235",
		"((arp))or(((udp)and inbound))":    "024",
		strings.Repeat("(", 30) + "udp" + strings.Repeat(")", 30):        "012",
		strings.Repeat("arp or (", 30) + "udp" + strings.Repeat(")", 30): "0124",
	} {
		f, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := ""
		for i, v := range views {
			if f.Match(v) {
				got += fmt.Sprint(i)
			}
		}
		if got != want {
			t.Errorf("%q takes %s, not %s", text, got, want)
		}
	}
	if !(*Filter)(nil).Match(views[0]) {
		t.Error("no filter does not want all")
	}
}

// What is wrong is named, with the word at which it is.
func TestFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"prot 53":           `"prot" stands where host`,
		"port":              "ends where a port from 0 to 65535",
		"port 65536":        `"65536" stands where a port`,
		"port 53 or 54":     `"54" stands where host`,
		"port -1":           `"-1"`,
		"host example.com":  `"example.com" stands where an IP address`,
		"host fe80::1%eth0": "an IP address",
		"net 192.0.2.1/24":  "did you mean 192.0.2.0/24?",
		"net 192.0.2.0":     "a network such as",
		"src 192.0.2.1":     "host, net, port or portrange",
		"portrange 20-10":   "a range of ports",
		"portrange 20":      "a range of ports",
		"(udp":              "ends where a closing parenthesis",
		"udp)":              `")" stands where and, or, or the end`,
		"udp udp":           `"udp" stands where and`,
		"and udp":           `"and" stands where host`,
		"not":               "ends where host",
		"less":              "ends where a length",
		"vlan 4096":         `"4096"`,
		strings.Repeat("(", 40) + "udp" + strings.Repeat(")", 40): "more than 32 parentheses",
		strings.Repeat("u", MaxFilter+1):                          "more than 1024",
		"udp" + strings.Repeat(" or udp", 140):                    "longer than 256 terms",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// Whatever text is given, Parse returns, and what it compiles matches without a
// panic, and as its own negation does not.
func FuzzParse(f *testing.F) {
	f.Add("not (src host 192.0.2.1 or net 2001:db8::/32) and udp port 53 || vlan 7")
	f.Add("!!!((arp or tcp dst portrange 1-2) && less 9)")
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := Parse(text)
		if err != nil || len(filter.ops) == 0 {
			return
		}
		negated, err := Parse("not (" + text + ")")
		if err != nil {
			return // one more pair of parentheses, or a longer text, can be too much
		}
		for _, v := range []*View{view("192.0.2.1:4000", "198.51.100.9:53", false), view("[2001:db8::1]:1", "[::]:2", true), {ARP: true}, {Tagged: true, VLAN: 7}} {
			if filter.Match(v) == negated.Match(v) {
				t.Errorf("%q and its negation agree on %+v", text, v)
			}
		}
	})
}

// A frame has the view that another parser sees.
func TestReadFrame(t *testing.T) {
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	udp := &layers.UDP{SrcPort: 4000, DstPort: 53}
	ip4 := func(change func(*layers.IPv4)) *layers.IPv4 {
		ip := &layers.IPv4{Version: 4, TTL: 9, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{198, 51, 100, 9}}
		change(ip)
		return ip
	}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 9, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8:9::9")}
	frame := func(typ layers.EthernetType, rest ...gopacket.SerializableLayer) []byte {
		buf := gopacket.NewSerializeBuffer()
		e := *eth
		e.EthernetType = typ
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, append([]gopacket.SerializableLayer{&e}, rest...)...); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	payload := gopacket.Payload(strings.Repeat("x", 30))
	v4, v6 := *view("192.0.2.1:4000", "198.51.100.9:53", true), *view("[2001:db8::1]:4000", "[2001:db8:9::9]:53", true)
	without := func(v View) View { v.Ports, v.SrcPort, v.DstPort = false, 0, 0; return v }
	for name, c := range map[string]struct {
		frame []byte
		want  View
	}{
		"v4": {frame(layers.EthernetTypeIPv4, ip4(func(*layers.IPv4) {}), udp, payload), v4},
		"v4 with options": {frame(layers.EthernetTypeIPv4, ip4(func(ip *layers.IPv4) {
			ip.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 1}}
		}), udp, payload), v4},
		"first fragment": {frame(layers.EthernetTypeIPv4, ip4(func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments }), udp, payload), v4},
		"later fragment": {frame(layers.EthernetTypeIPv4, ip4(func(ip *layers.IPv4) { ip.FragOffset = 8 }), udp, payload), without(v4)},
		"v6":             {frame(layers.EthernetTypeIPv6, ip6, udp, payload), v6},
		"tagged": {frame(layers.EthernetTypeDot1Q, &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv6}, ip6, udp, payload),
			func() View { v := v6; v.Tagged, v.VLAN = true, 7; return v }()},
		"arp":   {frame(layers.EthernetTypeARP, payload), View{ARP: true, Sent: true}},
		"other": {frame(0x88cc, payload), View{Sent: true}},
		"short": {[]byte{1, 2, 3}, View{Sent: true}},
		"cut":   {frame(layers.EthernetTypeIPv4, ip4(func(*layers.IPv4) {}), udp, payload)[:30], View{Sent: true}},
	} {
		c.want.Length = len(c.frame)
		var got View
		got.ReadFrame(c.frame, true)
		if got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x1c\x00\x00\x00\x00\x09\x11\x00\x00\xc0\x00\x02\x01\xc6\x33\x64\x09\x0f\xa0\x00\x35\x00\x08\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v View
		v.ReadFrame(b, false)
		if v.Length != len(b) || v.Ports && v.Version == 0 {
			t.Errorf("%x: %+v", b, v)
		}
	})
}

// What a lane pays for each datagram that a filter refuses.
func BenchmarkMatch(b *testing.B) {
	f, err := Parse("host 192.0.2.77 and udp port 53")
	if err != nil {
		b.Fatal(err)
	}
	v := view("192.0.2.1:4000", "198.51.100.9:53", false)
	for b.Loop() {
		if f.Match(v) {
			b.Fatal("taken")
		}
	}
}
