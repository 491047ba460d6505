package auth

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// apex is what every test zone begins with. The origin is z.
const apex = `$ORIGIN z.
$TTL 300
@ 3600 SOA ns.x. host.x. 1 2 3 4 600
@ NS ns.x.
`

// compileZone compiles zone text for an origin.
func compileZone(tb testing.TB, origin, text string) (*zone.Zone, zone.Report, error) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "zone")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	c, rep, err := zone.Compile(origin, file)
	if err != nil {
		return nil, rep, err
	}
	image, err := c.Image()
	if err != nil {
		tb.Fatal(err)
	}
	z, err := zone.Open(image)
	if err != nil {
		tb.Fatal(err)
	}
	if err := z.Verify(); err != nil {
		tb.Fatal(err)
	}
	return z, rep, nil
}

// tester is an engine with zones and a lane.
type tester struct {
	testing.TB
	e     *Engine
	lane  *Lane
	block *counters.Block
}

// serve returns a tester for zones, given as pairs of origin and text.
func serve(tb testing.TB, o Options, zones ...string) *tester {
	tb.Helper()
	var list []*zone.Zone
	for i := 0; i < len(zones); i += 2 {
		z, _, err := compileZone(tb, zones[i], zones[i+1])
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, z)
	}
	set, err := zone.NewSet(list)
	if err != nil {
		tb.Fatal(err)
	}
	t := &tester{TB: tb, e: New(o), block: new(counters.Block)}
	t.e.SetZones(set)
	t.lane = t.e.NewLane(t.block)
	return t
}

// question returns a query without EDNS and with RD clear.
func question(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	m.RecursionDesired = false
	return m
}

// raw returns the octets of the answer to query, nil where there is none.
func (t *tester) raw(query []byte, tr counters.Transport) []byte {
	t.Helper()
	out, reason := t.lane.Answer(nil, query, tr, dns.MaxMsgSize)
	if (reason == counters.NotDropped) != (len(out) > 0) {
		t.Fatalf("answer of %d octets and reason %v", len(out), reason)
	}
	return out
}

// exchange returns the parsed answer to q.
func (t *tester) exchange(q *dns.Msg, tr counters.Transport) *dns.Msg {
	t.Helper()
	query, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return t.parse(t.raw(query, tr))
}

func (t *tester) parse(out []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		t.Fatalf("unpacking: %v\n%x", err, out)
	}
	checkPointers(t, out)
	return m
}

// ask returns the answer to a plain UDP query.
func (t *tester) ask(name string, qtype uint16) *dns.Msg {
	t.Helper()
	return t.exchange(question(name, qtype), counters.UDP)
}

// want checks an answer against a line such as
//
//	NXDOMAIN AA an=0 ns=SOA ar=
//
// in which a section is the space-separated list of its records, without OPT,
// as "owner type" with data for what is short, in any order.
func (t *tester) want(m *dns.Msg, rcode int, flags string, an, ns, ar []string) {
	t.Helper()
	var got []string
	for f, set := range map[string]bool{"AA": m.Authoritative, "TC": m.Truncated, "RA": m.RecursionAvailable, "RD": m.RecursionDesired, "AD": m.AuthenticatedData, "CD": m.CheckingDisabled} {
		if set {
			got = append(got, f)
		}
	}
	if m.Rcode != rcode || !sameSet(got, strings.Fields(flags)) {
		t.Errorf("%v: rcode %s flags %v, want %s %q\n%v", m.Question, dns.RcodeToString[m.Rcode], got, dns.RcodeToString[rcode], flags, m)
	}
	for _, s := range []struct {
		name string
		got  []dns.RR
		want []string
	}{{"answer", m.Answer, an}, {"authority", m.Ns, ns}, {"additional", m.Extra, ar}} {
		if texts := short(s.got); !sameSet(texts, s.want) {
			t.Errorf("%v: %s section %q, want %q", m.Question, s.name, texts, s.want)
		}
	}
}

// short returns records as "owner type data", OPT left out.
func short(rrs []dns.RR) []string {
	out := []string{}
	for _, rr := range rrs {
		h := rr.Header()
		if h.Rrtype == dns.TypeOPT {
			continue
		}
		data := strings.TrimPrefix(rr.String(), h.String())
		if h.Rrtype == dns.TypeSOA {
			out = append(out, fmt.Sprintf("%s SOA", h.Name))
			continue
		}
		out = append(out, fmt.Sprintf("%s %s %s", h.Name, dns.TypeToString[h.Rrtype], data))
	}
	return out
}

func sameSet(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// checkPointers checks that every compression pointer of a message points
// backwards, and below offset 0x4000.
func checkPointers(tb testing.TB, msg []byte) {
	tb.Helper()
	name := func(off int) int {
		for {
			c := int(msg[off])
			switch {
			case c == 0:
				return off + 1
			case c >= 0xc0:
				to := c&0x3f<<8 | int(msg[off+1])
				if to >= off {
					tb.Fatalf("pointer at %d to %d\n%x", off, to, msg)
				}
				return off + 2
			}
			off += c + 1
		}
	}
	count := func(at int) int { return int(msg[at])<<8 | int(msg[at+1]) }
	off := 12
	for range count(4) {
		off = name(off) + 4
	}
	for range count(6) + count(8) + count(10) {
		off = name(off)
		off += 10 + count(off+8)
	}
	if off != len(msg) {
		tb.Fatalf("records end at %d of %d octets", off, len(msg))
	}
}
