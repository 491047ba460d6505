package auth

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
)

// The tests of this file are public bugs of well-known servers: a zone, a query,
// the right answer.

const soa = "z. SOA"

var minimal = Options{Minimal: true}

// Empty non-terminals exist: they stop a wildcard above them, and are NODATA.
func TestPitfall01EmptyNonTerminals(t *testing.T) {
	s := serve(t, minimal, "z.", apex+"*.e A 192.0.2.1\nr.c.e A 192.0.2.2\nf.*.e A 192.0.2.3\n*.k.e TXT k\n")
	s.want(s.ask("x.c.e.z.", dns.TypeA), dns.RcodeNameError, "AA", nil, []string{soa}, nil)
	s.want(s.ask("c.e.z.", dns.TypeA), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
	s.want(s.ask("x.e.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"x.e.z. A 192.0.2.1"}, nil, nil)
	s.want(s.ask("k.e.z.", dns.TypeA), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
	s.want(s.ask("y.x.e.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"y.x.e.z. A 192.0.2.1"}, nil, nil)
	// A wildcard without records of its own, because only names below it have any.
	s = serve(t, minimal, "z.", apex+"f.*.e A 192.0.2.3\n")
	s.want(s.ask("x.e.z.", dns.TypeA), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
}

// A literal asterisk in a query is a label like any other.
func TestPitfall02LiteralAsterisk(t *testing.T) {
	s := serve(t, minimal, "z.", apex+"*.z. A 192.0.2.1\n")
	s.want(s.ask("ghost.*.z.", dns.TypeA), dns.RcodeNameError, "AA", nil, []string{soa}, nil)
	s.want(s.ask("*.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"*.z. A 192.0.2.1"}, nil, nil)
	s.want(s.ask("a.b.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"a.b.z. A 192.0.2.1"}, nil, nil)
}

// Glue is not an answer, and neither are the NS records of a cut.
func TestPitfall03GlueIsNoAnswer(t *testing.T) {
	s := serve(t, Options{}, "z.", apex+"b NS n.b\nn.b A 192.0.2.1\n")
	ns, glue := []string{"b.z. NS n.b.z."}, []string{"n.b.z. A 192.0.2.1"}
	for _, q := range []*dns.Msg{question("n.b.z.", dns.TypeA), question("b.z.", dns.TypeNS), question("b.z.", dns.TypeANY), question("x.y.b.z.", dns.TypeTXT)} {
		s.want(s.exchange(q, counters.UDP), dns.RcodeSuccess, "", nil, ns, glue)
	}
}

// Below a cut nothing counts but glue.
func TestPitfall04NestedCuts(t *testing.T) {
	s := serve(t, minimal, "z.", apex+`b NS n.b
n.b A 192.0.2.1
c.b NS n.c.b
n.c.b A 192.0.2.2
*.b A 192.0.2.3
d.b DNAME elsewhere.
e.b CNAME elsewhere.
`)
	ns, glue := []string{"b.z. NS n.b.z."}, []string{"n.b.z. A 192.0.2.1"}
	for _, name := range []string{"c.b.z.", "x.c.b.z.", "x.b.z.", "x.d.b.z.", "e.b.z."} {
		s.want(s.ask(name, dns.TypeA), dns.RcodeSuccess, "", nil, ns, glue)
	}
	s.want(s.ask("c.b.z.", dns.TypeSOA), dns.RcodeSuccess, "", nil, ns, glue)
	s.want(s.ask("x.b.z.", dns.TypeSOA), dns.RcodeSuccess, "", nil, ns, glue)
	s.want(s.ask("c.b.z.", dns.TypeDS), dns.RcodeSuccess, "", nil, ns, glue)
}

// DS is the parent's, whether or not the child is served here, too.
func TestPitfall05DSAtCut(t *testing.T) {
	const ds = "1 13 2 0000000000000000000000000000000000000000000000000000000000000000"
	parent := apex + "b NS n.b\nn.b A 192.0.2.1\nb DS " + ds + "\nu NS ns.x.\n"
	child := "@ 300 SOA ns.x. h.x. 1 2 3 4 5\n@ 300 NS ns.x.\n"
	for name, s := range map[string]*tester{
		"parent":           serve(t, minimal, "z.", parent),
		"parent and child": serve(t, minimal, "z.", parent, "b.z.", child, "u.z.", child),
	} {
		t.Log(name)
		s.want(s.ask("b.z.", dns.TypeDS), dns.RcodeSuccess, "AA", []string{"b.z. DS " + ds}, nil, nil)
		s.want(s.ask("u.z.", dns.TypeDS), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
	}
	s := serve(t, minimal, "b.z.", child)
	s.want(s.ask("b.z.", dns.TypeDS), dns.RcodeSuccess, "AA", nil, []string{"b.z. SOA"}, nil)
	s = serve(t, minimal, ".", child)
	s.want(s.ask(".", dns.TypeDS), dns.RcodeSuccess, "AA", nil, []string{". SOA"}, nil)
}

// DNAME (RFC 6672).
func TestPitfall06DNAME(t *testing.T) {
	s := serve(t, minimal, "z.", apex+`d 60 DNAME e
d A 192.0.2.1
d TXT "at the owner"
www.e A 192.0.2.2
one 60 DNAME two
two 70 DNAME e
loop DNAME pool
pool DNAME loop
self DNAME a.self
out DNAME elsewhere.
hidden.out A 192.0.2.3
long DNAME `+strings.Repeat("a123456789012345678901234567890123456789012345678901234567890.", 3)+`z.
back CNAME www.d
`)
	const dname, cname = "d.z. DNAME e.z.", "www.d.z. CNAME www.e.z."
	m := s.ask("www.d.z.", dns.TypeA)
	s.want(m, dns.RcodeSuccess, "AA", []string{dname, cname, "www.e.z. A 192.0.2.2"}, nil, nil)
	if ttl := m.Answer[1].Header().Ttl; ttl != 60 {
		t.Errorf("TTL of the CNAME is %d, not that of the DNAME, 60", ttl)
	}
	s.want(s.ask("d.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"d.z. A 192.0.2.1"}, nil, nil)
	s.want(s.ask("d.z.", dns.TypeAAAA), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
	s.want(s.ask("d.z.", dns.TypeDNAME), dns.RcodeSuccess, "AA", []string{dname}, nil, nil)
	s.want(s.ask("no.d.z.", dns.TypeA), dns.RcodeNameError, "AA", []string{dname, "no.d.z. CNAME no.e.z."}, []string{soa}, nil)
	// Twice in one chain.
	s.want(s.ask("www.one.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{
		"one.z. DNAME two.z.", "www.one.z. CNAME www.two.z.", "two.z. DNAME e.z.", "www.two.z. CNAME www.e.z.", "www.e.z. A 192.0.2.2"}, nil, nil)
	s.want(s.ask("back.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{
		"back.z. CNAME www.d.z.", dname, cname, "www.e.z. A 192.0.2.2"}, nil, nil)
	// Loops end; the record is there once.
	s.want(s.ask("x.loop.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{
		"loop.z. DNAME pool.z.", "x.loop.z. CNAME x.pool.z.", "pool.z. DNAME loop.z.", "x.pool.z. CNAME x.loop.z."}, nil, nil)
	s.want(s.ask("x.self.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{
		"self.z. DNAME a.self.z.", "x.self.z. CNAME x.a.self.z."}, nil, nil)
	// Out of the zone, and what is below it is hidden.
	s.want(s.ask("hidden.out.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{
		"out.z. DNAME elsewhere.", "hidden.out.z. CNAME hidden.elsewhere."}, nil, nil)
	// 255 octets are the limit.
	long := strings.Repeat("b123456789012345678901234567890123456789012345678901234567890.", 2)
	m = s.ask(long+"long.z.", dns.TypeA)
	s.want(m, dns.RcodeYXDomain, "AA", short(m.Answer[:1]), nil, nil)
	if m.Answer[0].Header().Rrtype != dns.TypeDNAME {
		t.Errorf("YXDOMAIN without the DNAME: %v", m)
	}
}

// The synthesised CNAME answers QTYPE CNAME.
func TestPitfall07DNAMEAnswersCNAME(t *testing.T) {
	s := serve(t, minimal, "z.", apex+"d DNAME e\nwww.e CNAME f\nf A 192.0.2.1\n")
	s.want(s.ask("www.d.z.", dns.TypeCNAME), dns.RcodeSuccess, "AA", []string{"d.z. DNAME e.z.", "www.d.z. CNAME www.e.z."}, nil, nil)
}

// A chain's rcode is that of its end, and a loop ends.
func TestPitfall08CNAMEChains(t *testing.T) {
	s := serve(t, minimal, "z.", apex+`a CNAME b
b CNAME c
c A 192.0.2.1
nx CNAME nowhere
nd CNAME c
out CNAME www.elsewhere.
loop CNAME pool
pool CNAME loop
self CNAME self
*.w CNAME target.w
cut CNAME www.sub
sub NS ns.sub
ns.sub A 192.0.2.9
other CNAME host.y.
gone CNAME gone.y.
`, "y.", "@ 300 SOA ns.x. h.x. 1 2 3 4 5\n@ 300 NS ns.x.\nhost 300 A 192.0.2.7\nmore 300 MX 1 host\n")
	s.want(s.ask("a.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"a.z. CNAME b.z.", "b.z. CNAME c.z.", "c.z. A 192.0.2.1"}, nil, nil)
	s.want(s.ask("a.z.", dns.TypeCNAME), dns.RcodeSuccess, "AA", []string{"a.z. CNAME b.z."}, nil, nil)
	s.want(s.ask("nx.z.", dns.TypeA), dns.RcodeNameError, "AA", []string{"nx.z. CNAME nowhere.z."}, []string{soa}, nil)
	s.want(s.ask("nd.z.", dns.TypeAAAA), dns.RcodeSuccess, "AA", []string{"nd.z. CNAME c.z."}, []string{soa}, nil)
	s.want(s.ask("out.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"out.z. CNAME www.elsewhere."}, nil, nil)
	s.want(s.ask("loop.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"loop.z. CNAME pool.z.", "pool.z. CNAME loop.z."}, nil, nil)
	s.want(s.ask("self.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"self.z. CNAME self.z."}, nil, nil)
	s.want(s.ask("x.w.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"x.w.z. CNAME target.w.z.", "target.w.z. CNAME target.w.z."}, nil, nil)
	s.want(s.ask("cut.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"cut.z. CNAME www.sub.z."}, []string{"sub.z. NS ns.sub.z."}, []string{"ns.sub.z. A 192.0.2.9"})
	s.want(s.ask("other.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"other.z. CNAME host.y.", "host.y. A 192.0.2.7"}, nil, nil)
	s.want(s.ask("gone.z.", dns.TypeA), dns.RcodeNameError, "AA", []string{"gone.z. CNAME gone.y."}, []string{"y. SOA"}, nil)

	for what, text := range map[string]string{
		"CNAME and other data": "a CNAME b\na A 192.0.2.1\n",
		"CNAME at the apex":    "@ CNAME b\n",
		"two CNAMEs":           "a CNAME b\na CNAME c\n",
	} {
		if _, _, err := compileZone(t, "z.", apex+text); err == nil || !strings.Contains(err.Error(), "CNAME") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A chain longer than maxChain is cut, not refused.
func TestChainIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString(apex)
	for i := range 40 {
		fmt.Fprintf(&text, "n%d CNAME n%d\n", i, i+1)
	}
	s := serve(t, Options{MaxUDPSize: 4096}, "z.", text.String())
	if m := s.exchange(question("n0.z.", dns.TypeA).SetEdns0(4096, false), counters.UDP); len(m.Answer) != maxChain || m.Rcode != dns.RcodeSuccess {
		t.Errorf("%d records, rcode %d", len(m.Answer), m.Rcode)
	}
}

// A negative answer lives for the smaller of the SOA's TTL and MINIMUM; the
// record itself keeps its TTL.
func TestPitfall10NegativeTTL(t *testing.T) {
	for _, c := range []struct{ ttl, minimum, want uint32 }{{3600, 600, 600}, {300, 600, 300}, {0, 600, 0}} {
		s := serve(t, minimal, "z.", fmt.Sprintf("@ %d SOA ns.x. h.x. 1 2 3 4 %d\n@ 300 NS ns.x.\n", c.ttl, c.minimum))
		for _, q := range []*dns.Msg{question("nx.z.", dns.TypeA), question("z.", dns.TypeTXT)} {
			if m := s.exchange(q, counters.UDP); len(m.Ns) != 1 || m.Ns[0].Header().Ttl != c.want {
				t.Errorf("SOA TTL %d, MINIMUM %d: %v", c.ttl, c.minimum, m)
			}
		}
		m := s.ask("z.", dns.TypeSOA)
		if soa := m.Answer[0].(*dns.SOA); soa.Hdr.Ttl != c.ttl || soa.Minttl != c.minimum {
			t.Errorf("SOA is %v", soa)
		}
	}
}

// Truncation (RFC 2181 9, RFC 6891 6.2, RFC 9471).
func TestPitfall11Truncation(t *testing.T) {
	var text strings.Builder
	text.WriteString(apex)
	for i := range 100 {
		fmt.Fprintf(&text, "big A 192.0.2.%d\nfits TXT %q\n", i, strings.Repeat("x", 100))
	}
	text.WriteString("sub NS ns1.sub\n")
	for i := range 13 {
		fmt.Fprintf(&text, "sub NS ns%d.sub\nns%d.sub AAAA 2001:db8::%x\nns%d.sub A 192.0.2.%d\n", i, i, i+1, i, i+1)
		fmt.Fprintf(&text, "sib NS n%d.srv\nn%d.srv AAAA 2001:db8::%x\n", i, i, i+1)
	}
	s := serve(t, Options{MaxUDPSize: 4096}, "z.", text.String())
	for _, size := range []int{0, 100, 511, 512, 513, 800, 1232, 4096, 65535} {
		for _, name := range []string{"big.z.", "a.sub.z.", "a.sib.z.", "nx.z."} {
			q := question(name, dns.TypeA)
			if size > 0 {
				q.SetEdns0(uint16(size), false)
			}
			query, _ := q.Pack()
			out := s.raw(query, counters.UDP)
			m := s.parse(out)
			limit := min(max(size, 512), 4096)
			if len(out) > limit {
				t.Errorf("%s, size %d: answer has %d octets", name, size, len(out))
			}
			if (m.IsEdns0() != nil) != (size > 0) {
				t.Errorf("%s, size %d: OPT is %v", name, size, m.IsEdns0())
			}
			full := s.parse(s.raw(query, counters.TCP))
			if full.Truncated {
				t.Errorf("%s: truncated over TCP", name)
			}
			complete := len(m.Answer) == len(full.Answer) && len(m.Ns) == len(full.Ns) && (name != "a.sub.z." || len(m.Extra) == len(full.Extra))
			if m.Truncated == complete {
				t.Errorf("%s, size %d: TC is %v, answer %d of %d, authority %d of %d, additional %d of %d", name, size, m.Truncated,
					len(m.Answer), len(full.Answer), len(m.Ns), len(full.Ns), len(m.Extra), len(full.Extra))
			}
		}
	}
	// Over TCP there is no TC: what no message can hold is an error.
	var huge strings.Builder
	huge.WriteString(apex)
	for i := range 246 {
		fmt.Fprintf(&huge, "huge TXT %q\n", fmt.Sprintf("%03d", i)+strings.Repeat("x", 250))
	}
	h := serve(t, minimal, "z.", huge.String())
	long := strings.Repeat("a.", 100)
	if m := h.exchange(question("huge.z.", dns.TypeTXT), counters.TCP); len(m.Answer) != 246 || m.Truncated {
		t.Errorf("%d records of 246, TC %v", len(m.Answer), m.Truncated)
	}
	w := serve(t, minimal, "z.", strings.ReplaceAll(huge.String(), "huge TXT", "*.w TXT"))
	if m := w.exchange(question(long+"w.z.", dns.TypeTXT).SetEdns0(1232, false), counters.TCP); m.Rcode != dns.RcodeServerFailure || m.Truncated || m.Authoritative || len(m.Answer) != 0 {
		t.Errorf("no room over TCP: rcode %d, TC %v, %d records", m.Rcode, m.Truncated, len(m.Answer))
	}
	// Sibling glue can be left out: it is no reason for TC.
	if m := s.exchange(question("a.sib.z.", dns.TypeA), counters.UDP); m.Truncated || len(m.Ns) != 13 || len(m.Extra) == 13 {
		t.Errorf("sibling glue: %v", m)
	}
}

// EDNS (RFC 6891).
func TestPitfall12EDNS(t *testing.T) {
	s := serve(t, minimal, "z.", apex+"a A 192.0.2.1\n")
	q := question("a.z.", dns.TypeA).SetEdns0(1232, true)
	m := s.exchange(q, counters.UDP)
	if o := m.IsEdns0(); o == nil || !o.Do() || o.UDPSize() != DefaultMaxUDPSize || o.Version() != 0 || len(o.Option) != 0 {
		t.Errorf("OPT is %v", o)
	}
	q.IsEdns0().SetVersion(1)
	m = s.exchange(q, counters.UDP)
	if o := m.IsEdns0(); m.Rcode != dns.RcodeBadVers || o == nil || o.Version() != 0 || len(m.Question) != 1 || len(m.Answer) != 0 || m.Authoritative {
		t.Errorf("version 1: %v", m)
	}
	// Unknown options and keepalive over UDP are ignored.
	q = question("a.z.", dns.TypeA).SetEdns0(1232, false)
	q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: []byte{1, 2}}, &dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE}}
	if m = s.exchange(q, counters.UDP); m.Rcode != dns.RcodeSuccess || len(m.IsEdns0().Option) != 0 {
		t.Errorf("unknown option: %v", m)
	}
	for what, mangle := range map[string]func(*dns.Msg){
		"two OPT":          func(m *dns.Msg) { m.SetEdns0(1232, false); m.Extra = append(m.Extra, m.Extra[0]) },
		"OPT in answer":    func(m *dns.Msg) { m.SetEdns0(1232, false); m.Answer, m.Extra = m.Extra, nil },
		"OPT in authority": func(m *dns.Msg) { m.SetEdns0(1232, false); m.Ns, m.Extra = m.Extra, nil },
		"OPT with a name":  func(m *dns.Msg) { m.SetEdns0(1232, false); m.Extra[0].Header().Name = "x." },
	} {
		q := question("a.z.", dns.TypeA)
		mangle(q)
		if m := s.exchange(q, counters.UDP); m.Rcode != dns.RcodeFormatError || len(m.Answer) != 0 || m.Authoritative {
			t.Errorf("%s: %v", what, m)
		}
	}
	query, _ := question("a.z.", dns.TypeA).SetEdns0(1232, false).Pack()
	query = append(query, 0, 3, 0, 9) // an option that leaves the record
	binary.BigEndian.PutUint16(query[len(query)-6:], 4)
	if m := s.parse(s.raw(query, counters.UDP)); m.Rcode != dns.RcodeFormatError {
		t.Errorf("bad option: %v", m)
	}
}

// The header of an answer (RFC 1035 4.1.1, RFC 8906).
func TestPitfall13Header(t *testing.T) {
	s := serve(t, minimal, "z.", apex+"a A 192.0.2.1\n")
	ok, _ := question("a.z.", dns.TypeA).Pack()
	edit := func(f func(q []byte)) []byte {
		q := bytes.Clone(ok)
		f(q)
		return q
	}
	if out, reason := s.lane.Answer(nil, edit(func(q []byte) { q[2] |= 0x80 }), counters.UDP, 65535); len(out) > 0 || reason != counters.DropNotQuery {
		t.Errorf("QR=1: %x, %v", out, reason)
	}
	for n := range 12 {
		if out, reason := s.lane.Answer(nil, ok[:n], counters.UDP, 65535); len(out) > 0 || reason != counters.DropShort {
			t.Errorf("%d octets: %x, %v", n, out, reason)
		}
	}
	for _, c := range []struct {
		what  string
		query []byte
		rcode int
	}{
		{"QDCOUNT 0", edit(func(q []byte) { q[5] = 0 })[:12], dns.RcodeFormatError},
		{"QDCOUNT 0 with a question", edit(func(q []byte) { q[5] = 0 }), dns.RcodeFormatError},
		{"QDCOUNT 2", append(edit(func(q []byte) { q[5] = 2 }), ok[12:]...), dns.RcodeFormatError},
		{"question cut short", ok[:len(ok)-1], dns.RcodeFormatError},
		{"octets behind the message", append(bytes.Clone(ok), 0), dns.RcodeFormatError},
		{"ARCOUNT 1 without a record", edit(func(q []byte) { q[11] = 1 }), dns.RcodeFormatError},
		{"NOTIFY", edit(func(q []byte) { q[2] = 4 << 3 }), dns.RcodeNotImplemented},
		{"opcode 15", edit(func(q []byte) { q[2] = 15 << 3 }), dns.RcodeNotImplemented},
		{"opcode 15 without a question", edit(func(q []byte) { q[2], q[5] = 15<<3, 0 })[:12], dns.RcodeNotImplemented},
		{"class HS", edit(func(q []byte) { q[len(q)-1] = 4 }), dns.RcodeRefused},
	} {
		out := s.raw(c.query, counters.UDP)
		m := s.parse(out)
		if m.Rcode != c.rcode || m.Authoritative || len(m.Answer)+len(m.Ns)+len(m.Extra) > 0 {
			t.Errorf("%s: %v", c.what, m)
		}
		if m.Opcode != int(c.query[2]>>3) {
			t.Errorf("%s: opcode %d", c.what, m.Opcode)
		}
	}
	for bits := range 1 << 9 {
		q := edit(func(q []byte) {
			q[2] = byte(bits & 7)     // AA TC RD
			q[3] = byte(bits>>3) << 4 // RA Z AD CD, and a bit over
			q[3] |= byte(bits>>7) & 3 // RCODE
		})
		out := s.raw(q, counters.UDP)
		if got, want := binary.BigEndian.Uint16(out[2:]), 0x8400|uint16(q[2]&1)<<8|uint16(q[3]&0x10); got != want {
			t.Fatalf("query flags %x: answer flags %#x, want %#x", q[2:4], got, want)
		}
	}
}

// Compression (RFC 1035 4.1.4), in requests and in answers.
func TestPitfall15Compression(t *testing.T) {
	var text strings.Builder
	text.WriteString(apex)
	for i := range 500 { // far beyond offset 0x3fff
		fmt.Fprintf(&text, "many NS a-rather-long-name-for-a-server-%d.many\na-rather-long-name-for-a-server-%d.many A 10.0.%d.%d\n", i, i, i>>8, i&255)
	}
	s := serve(t, Options{}, "z.", text.String())
	q := question("many.z.", dns.TypeA)
	m := s.exchange(q, counters.TCP) // checks every pointer
	if len(m.Ns) != 500 || len(m.Extra) != 500 {
		t.Errorf("%d servers, %d addresses, rcode %d", len(m.Ns), len(m.Extra), m.Rcode)
	}
	for _, rr := range m.Extra {
		if !strings.HasPrefix(rr.Header().Name, "a-rather-long-name-for-a-server-") || !strings.HasSuffix(rr.Header().Name, ".many.z.") {
			t.Fatalf("glue of %s", rr.Header().Name)
		}
	}

	head := []byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for what, c := range map[string]struct {
		query []byte
		rcode int
	}{
		"QNAME points to itself":   {append(bytes.Clone(head), 0xc0, 12, 0, 1, 0, 1), dns.RcodeFormatError},
		"QNAME points forward":     {append(bytes.Clone(head), 1, 'a', 0xc0, 20, 0, 1, 0, 1, 0, 0), dns.RcodeFormatError},
		"QNAME points into header": {append(bytes.Clone(head), 1, 'a', 0xc0, 4, 0, 1, 0, 1), dns.RcodeFormatError},
		"label type 01":            {append(bytes.Clone(head), 0x41, 'a', 0, 0, 1, 0, 1), dns.RcodeFormatError},
	} {
		if m := s.parse(s.raw(c.query, counters.UDP)); m.Rcode != c.rcode || len(m.Question) != 0 {
			t.Errorf("%s: %v", what, m)
		}
	}
	// A long chain of pointers in the additional section, each to the one
	// before, is valid; one that points forward is not.
	query, _ := question("a.z.", dns.TypeA).Pack()
	to := 12
	for range 100 {
		at := len(query)
		query = append(query, 0xc0|byte(to>>8), byte(to), 0, 16, 0, 1, 0, 0, 0, 0, 0, 0)
		to = at
	}
	query[11] = 100
	if m := s.parse(s.raw(query, counters.UDP)); m.Rcode != dns.RcodeNameError {
		t.Errorf("chain of pointers: %v", m)
	}
	query[len(query)-11] += 13
	if m := s.parse(s.raw(query, counters.UDP)); m.Rcode != dns.RcodeFormatError {
		t.Errorf("forward pointer: %v", m)
	}
}

// Names are wire format inside: every octet survives.
func TestPitfall16Names(t *testing.T) {
	s := serve(t, minimal, "z.", apex+`a\.b A 192.0.2.1
a\000b A 192.0.2.2
\@ A 192.0.2.3
a\032b A 192.0.2.4
c CNAME org\.
d CNAME a\.b
org\..z. A 192.0.2.5
`)
	for name, addr := range map[string]string{`a\.b.z.`: "1", `a\000b.z.`: "2", `\@.z.`: "3", `a\032b.z.`: "4", `org\..z.`: "5"} {
		m := s.ask(name, dns.TypeA)
		if len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "192.0.2."+addr) {
			t.Errorf("%s: %v", name, m)
		}
	}
	s.want(s.ask("a.b.z.", dns.TypeA), dns.RcodeNameError, "AA", nil, []string{soa}, nil)
	// "org\." is one label and relative.
	s.want(s.ask("c.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{`c.z. CNAME org\..z.`, `org\..z. A 192.0.2.5`}, nil, nil)
	s.want(s.ask("d.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{`d.z. CNAME a\.b.z.`, `a\.b.z. A 192.0.2.1`}, nil, nil)
}

// The question is echoed octet by octet; names compare without case.
func TestPitfall17Case(t *testing.T) {
	s := serve(t, Options{}, "z.", apex+"WwW A 192.0.2.1\n*.Wild A 192.0.2.2\nSuB NS nS.sUb\nNs.SuB A 192.0.2.3\nd DNAME e\n[\\091]~ TXT x\n")
	for name, n := range map[string]int{"www.z.": 1, "WWW.Z.": 1, "wWw.z.": 1, "FoO.wIlD.Z.": 1, "X.sUB.z.": 0, "A.D.z.": 2, "[[]~.z.": 0} {
		q := question(name, dns.TypeA)
		query, _ := q.Pack()
		out := s.raw(query, counters.UDP)
		if !bytes.Equal(out[12:len(query)], query[12:]) {
			t.Errorf("%s: question is %x", name, out[12:len(query)])
		}
		m := s.parse(out)
		if len(m.Answer) != n || m.Rcode != dns.RcodeSuccess && name != "A.D.z." {
			t.Errorf("%s: %v", name, m)
		}
	}
	if m := s.ask("A.D.z.", dns.TypeA); m.Answer[1].(*dns.CNAME).Target != "A.e.z." {
		t.Errorf("case of the synthesised target: %v", m)
	}
	// {|}~[\]^ are not letters, though they differ in the same bit.
	s.want(s.ask(`{[]~.z.`, dns.TypeTXT), dns.RcodeNameError, "AA", nil, []string{soa}, nil)
}

// TTL (RFC 2181 8).
func TestPitfall19TTL(t *testing.T) {
	s := serve(t, minimal, "z.", apex+"a 0 A 192.0.2.1\nb 2147483647 A 192.0.2.2\n")
	for name, ttl := range map[string]uint32{"a.z.": 0, "b.z.": 1<<31 - 1} {
		if m := s.ask(name, dns.TypeA); len(m.Answer) != 1 || m.Answer[0].Header().Ttl != ttl {
			t.Errorf("%s: %v", name, m)
		}
	}
	for _, ttl := range []string{"2147483648", "4294967295", "4294967296"} {
		if _, _, err := compileZone(t, "z.", apex+"a "+ttl+" A 192.0.2.1\n"); err == nil || !strings.Contains(err.Error(), ":5: ") {
			t.Errorf("TTL %s: %v", ttl, err)
		}
	}
}
