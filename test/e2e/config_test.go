package e2e

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/dnsapp/dnsapp/test/load"
)

// Where the servers of the tests listen; the network namespace is ours.
var (
	dns4 = netip.MustParseAddrPort("127.0.0.1:5300")
	dns6 = netip.MustParseAddrPort("[::1]:5300")
	who4 = netip.MustParseAddrPort("127.0.0.1:5399")
	who6 = netip.MustParseAddrPort("[::1]:5399")
)

const admin = "127.0.0.1:9153"

// settings are the parts of a configuration that tests vary.
type settings struct {
	name    string // default edge-1
	workers int    // default 1
	lanes   int    // default 1
	reload  string // flow mapping, default {}
	zone    string // file of example.com, default example.com.zone
	more    string // appended to the list of listeners
	top     string // further keys at the top
}

// yaml returns the configuration: DNS and identify on loopback of both families,
// UDP and TCP.
func (c settings) yaml() string {
	or := func(s, def string) string {
		if s == "" {
			return def
		}
		return s
	}
	return fmt.Sprintf(`name: %s
control: control.sock
admin: %s
pid_file: dnsapp.pid
state_dir: state
workers: %d
lanes: %d
expose_generation: true
log: {level: debug}
reload: %s
%s
zones:
  - {name: example.com, file: %s}
listeners:
  - {name: dns, address: ["%v", "%v"], service: dns}
  - {name: who, address: ["%v", "%v"], service: identify, affinity: flow}
%s`, or(c.name, "edge-1"), admin, max(c.workers, 1), max(c.lanes, 1), or(c.reload, "{}"), c.top, or(c.zone, "example.com.zone"), dns4, dns6, who4, who6, c.more)
}

// hosts is how many host names the test zone has.
const hosts = 1000

// zoneFiles has the zone that settings.yaml names.
func zoneFiles() map[string]string { return map[string]string{"example.com.zone": zone(1)} }

// zone returns a zone with h0 .. h999, a wildcard below w, and what else the
// queries of queries need.
func zone(serial int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `$ORIGIN example.com.
$TTL 300
@ SOA ns1 admin %d 3600 600 86400 60
@ NS ns1
@ MX 10 mail
ns1 A 192.0.2.1
ns1 AAAA 2001:db8::1
mail A 192.0.2.2
www CNAME h0
*.w TXT "wild"
serial TXT "%d"
`, serial, serial)
	for i := range hosts {
		fmt.Fprintf(&b, "h%d A 192.0.2.%d\n", i, i%256)
	}
	return b.String()
}

// queries returns questions of every class of answer, a tenth of them for names
// that do not exist.
func queries(keepalive bool) []load.Query {
	q := func(name string, typ uint16, rcode int) load.Query {
		return load.Query{Name: name, Type: typ, Rcode: rcode, EDNS: 1232, Keepalive: keepalive}
	}
	const a, mx, txt, aaaa = 1, 15, 16, 28
	var list []load.Query
	for i := range 70 {
		list = append(list, q(fmt.Sprintf("h%d.example.com", i*13%hosts), a, load.NoError))
	}
	for i := range 10 {
		list = append(list,
			q(fmt.Sprintf("no%d.example.com", i), a, load.NXDomain),
			q(fmt.Sprintf("x%d.w.example.com", i), txt, load.NoError),
			q(fmt.Sprintf("H%d.Example.COM", i), aaaa, load.NoError)) // NODATA, case kept
	}
	return append(list, q("example.com", mx, load.NoError), q("www.example.com", a, load.NoError))
}
