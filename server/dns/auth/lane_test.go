package auth

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// classes is a zone and, for each class of answer, a question for it.
const classZone = apex + `a A 192.0.2.1
mx MX 1 a
mx MX 2 b
b AAAA 2001:db8::1
c CNAME a
d DNAME w
*.w A 192.0.2.2
*.w TXT "wild"
sub NS ns.sub
sub NS a
ns.sub A 192.0.2.3
srv SRV 0 0 53 a
alias SVCB 0 svc
svc SVCB 1 . alpn=h2
svc A 192.0.2.4
big TXT "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
`

var classQuestions = map[string]*dns.Msg{
	"positive":    question("a.z.", dns.TypeA),
	"edns":        question("a.z.", dns.TypeA).SetEdns0(1232, true),
	"nodata":      question("a.z.", dns.TypeMX),
	"nxdomain":    question("deep.below.nx.z.", dns.TypeA),
	"referral":    question("www.sub.z.", dns.TypeA),
	"wildcard":    question("x.w.z.", dns.TypeA),
	"cname":       question("c.z.", dns.TypeA),
	"dname":       question("x.d.z.", dns.TypeA),
	"additional":  question("mx.z.", dns.TypeMX),
	"svcb":        question("alias.z.", dns.TypeSVCB),
	"any":         question("a.z.", dns.TypeANY),
	"apex":        question("z.", dns.TypeNS),
	"refused":     question("elsewhere.", dns.TypeA),
	"axfr":        question("z.", dns.TypeAXFR),
	"chaos":       chaosQuestion("version.bind."),
	"nsid":        optionQuestion(&dns.EDNS0_NSID{Code: dns.EDNS0NSID}),
	"two opt":     doubleOPT(),
	"bad version": badVersion(),
	"notify":      new(dns.Msg).SetNotify("z."),
}

func chaosQuestion(name string) *dns.Msg {
	q := question(name, dns.TypeTXT)
	q.Question[0].Qclass = dns.ClassCHAOS
	return q
}

func optionQuestion(o dns.EDNS0) *dns.Msg {
	q := question("a.z.", dns.TypeA).SetEdns0(1232, false)
	q.IsEdns0().Option = []dns.EDNS0{o}
	return q
}

func doubleOPT() *dns.Msg {
	q := question("a.z.", dns.TypeA).SetEdns0(1232, false)
	q.Extra = append(q.Extra, q.Extra[0])
	return q
}

func badVersion() *dns.Msg {
	q := question("a.z.", dns.TypeA).SetEdns0(1232, false)
	q.IsEdns0().SetVersion(7)
	return q
}

var classOptions = Options{Version: "dnsapp", Identity: "here", Generation: "epoch=1", TCPIdle: 10 * time.Second}

// No class of answer allocates, one by one or in a burst.
func TestNoAllocation(t *testing.T) {
	for _, minimal := range []bool{true, false} {
		o := classOptions
		o.Minimal = minimal
		s := serve(t, o, "z.", classZone)
		b := &burst.Burst{N: burst.Max}
		for name, q := range classQuestions {
			query, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, 0, dns.MaxMsgSize)
			for _, tr := range []counters.Transport{counters.UDP, counters.TCP} {
				if n := testing.AllocsPerRun(100, func() {
					if out, _ := s.lane.Answer(dst, query, tr, dns.MaxMsgSize); len(out) == 0 {
						t.Fatal("no answer")
					}
				}); n != 0 {
					t.Errorf("%s over %v: %v allocations", name, tr, n)
				}
			}
			for i := range b.Packets {
				b.Packets[i].Payload, b.Packets[i].Reply = query, make([]byte, 0, 4096)
			}
			if n := testing.AllocsPerRun(10, func() {
				for i := range b.Packets {
					b.Packets[i].Reply = b.Packets[i].Reply[:0]
				}
				s.lane.ServeBurst(b)
			}); n != 0 {
				t.Errorf("%s in a burst: %v allocations", name, n)
			}
		}
	}
}

// A burst gives each packet the answer that it would get alone, and counts each
// once.
func TestServeBurst(t *testing.T) {
	s := serve(t, classOptions, "z.", classZone)
	var queries [][]byte
	for _, q := range classQuestions {
		query, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		queries = append(queries, query)
	}
	answer := bytes.Clone(queries[0])
	answer[2] |= 0x80
	queries = append(queries, answer, []byte("short"), nil)

	alone := serve(t, classOptions, "z.", classZone)
	for n := 1; n <= burst.Max; n++ {
		b := &burst.Burst{N: n}
		for i := range b.Packets {
			b.Packets[i].Payload, b.Packets[i].Reply = queries[(i+n)%len(queries)], make([]byte, 0, 4096)
		}
		s.lane.ServeBurst(b)
		for i := range b.Packets {
			p := &b.Packets[i]
			if i >= n {
				if len(p.Reply) > 0 {
					t.Fatalf("packet %d of %d was answered", i, n)
				}
				continue
			}
			want, reason := alone.lane.Answer(nil, p.Payload, counters.UDP, 4096)
			class := counters.ClassPlain
			if reason == counters.NotDropped {
				class = alone.lane.Class()
				if low := uint16(want[3] & 15); low != 0 && class != counters.ClassOf(low) { // beside BADVERS
					t.Errorf("burst of %d, packet %d: rcode %d is of the class %v", n, i, low, class)
				}
			}
			if !bytes.Equal(p.Reply, want) || p.Drop != reason || p.Class != class {
				t.Errorf("burst of %d, packet %d: %x, %v, %v; alone %x, %v, %v", n, i, p.Reply, p.Drop, p.Class, want, reason, class)
			}
		}
	}
	for id := counters.Queries; id < counters.LatencyNs; id++ {
		if got, want := s.block.Load(id), alone.block.Load(id); got != want {
			t.Errorf("counter %d is %d, want %d", id, got, want)
		}
	}
}

// Counters are by transport, type and rcode.
func TestCounters(t *testing.T) {
	s := serve(t, classOptions, "z.", classZone)
	s.ask("a.z.", dns.TypeA)
	s.exchange(question("nx.z.", dns.TypeMX), counters.TCP)
	s.exchange(badVersion(), counters.UDP)
	s.raw([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, counters.UDP)
	want := map[counters.ID]uint64{
		counters.QueryID(counters.UDP, dns.TypeA, dns.RcodeSuccess):    1,
		counters.QueryID(counters.TCP, dns.TypeMX, dns.RcodeNameError): 1,
		counters.QueryID(counters.UDP, dns.TypeA, dns.RcodeBadVers):    1,
		counters.QueryID(counters.UDP, 0, dns.RcodeFormatError):        1,
	}
	for id := counters.Queries; id < counters.LatencyNs; id++ {
		if got := s.block.Load(id); got != want[id] {
			t.Errorf("counter %d is %d, want %d", id, got, want[id])
		}
	}
}

// Names of class CH are answered where configured and refused elsewhere.
func TestChaos(t *testing.T) {
	s := serve(t, classOptions, "z.", classZone)
	for name, text := range map[string]string{"version.bind.": "dnsapp", "VERSION.server.": "dnsapp", "id.server.": "here", "hostname.bind.": "here", "generation.dnsapp.": "epoch=1"} {
		m := s.exchange(chaosQuestion(name), counters.UDP)
		if len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != text || m.Answer[0].Header().Class != dns.ClassCHAOS || !m.Authoritative {
			t.Errorf("%s: %v", name, m)
		}
	}
	bare := serve(t, Options{}, "z.", classZone)
	for _, name := range []string{"version.bind.", "id.server.", "generation.dnsapp.", "a.z.", "."} {
		if m := bare.exchange(chaosQuestion(name), counters.UDP); m.Rcode != dns.RcodeRefused || m.Authoritative {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// NSID and keepalive are there when asked for, keepalive over TCP only.
func TestOptions(t *testing.T) {
	s := serve(t, classOptions, "z.", classZone)
	m := s.exchange(optionQuestion(&dns.EDNS0_NSID{Code: dns.EDNS0NSID}), counters.UDP)
	if o := m.IsEdns0().Option; len(o) != 1 || o[0].String() != fmt.Sprintf("%x", "here") {
		t.Errorf("NSID: %v", o)
	}
	keepalive := optionQuestion(&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE})
	if o := s.exchange(keepalive, counters.UDP).IsEdns0().Option; len(o) != 0 {
		t.Errorf("keepalive over UDP: %v", o)
	}
	o := s.exchange(keepalive, counters.TCP).IsEdns0().Option
	if len(o) != 1 || o[0].(*dns.EDNS0_TCP_KEEPALIVE).Timeout != 100 {
		t.Errorf("keepalive over TCP: %v", o)
	}
}

// An error says why, to clients that speak EDNS (RFC 8914).
func TestExtendedErrors(t *testing.T) {
	s := serve(t, Options{}, "z.", classZone)
	for _, c := range []struct {
		q    *dns.Msg
		tr   counters.Transport
		want int
	}{
		{question("elsewhere.", dns.TypeA), counters.UDP, 20},
		{chaosQuestion("version.bind."), counters.UDP, 20},
		{question("z.", dns.TypeAXFR), counters.UDP, 21},
		{question("z.", dns.TypeAXFR), counters.TCP, 18},
		{new(dns.Msg).SetNotify("z."), counters.UDP, 21},
		{question("nx.z.", dns.TypeA), counters.UDP, -1},
	} {
		m := s.exchange(c.q.Copy().SetEdns0(1232, false), c.tr)
		got := -1
		for _, o := range m.IsEdns0().Option {
			got = int(o.(*dns.EDNS0_EDE).InfoCode)
		}
		if got != c.want {
			t.Errorf("%v: EDE %d, want %d", c.q.Question, got, c.want)
		}
		if m := s.exchange(c.q, c.tr); m.IsEdns0() != nil {
			t.Errorf("%v: OPT for a client without EDNS", c.q.Question)
		}
	}
}

// Transfers are not here; IXFR over UDP says "come by TCP" with the SOA.
func TestTransfers(t *testing.T) {
	s := serve(t, Options{Minimal: true}, "z.", classZone)
	s.want(s.ask("z.", dns.TypeAXFR), dns.RcodeNotImplemented, "", nil, nil, nil)
	s.want(s.ask("z.", dns.TypeIXFR), dns.RcodeSuccess, "AA", []string{"z. SOA"}, nil, nil)
	s.want(s.exchange(question("z.", dns.TypeAXFR), counters.TCP), dns.RcodeRefused, "", nil, nil, nil)
	s.want(s.exchange(question("z.", dns.TypeIXFR), counters.TCP), dns.RcodeRefused, "", nil, nil, nil)
	s.want(s.ask("elsewhere.", dns.TypeAXFR), dns.RcodeRefused, "", nil, nil, nil)
}

// ANY: one RRset over UDP, all over TCP (RFC 8482 4.1).
func TestAny(t *testing.T) {
	s := serve(t, Options{}, "z.", apex+"a A 192.0.2.1\na MX 1 b\na TXT t\ne.e A 192.0.2.2\n")
	s.want(s.ask("a.z.", dns.TypeANY), dns.RcodeSuccess, "AA", []string{"a.z. A 192.0.2.1"}, nil, nil)
	s.want(s.exchange(question("a.z.", dns.TypeANY), counters.TCP), dns.RcodeSuccess, "AA",
		[]string{"a.z. A 192.0.2.1", "a.z. MX 1 b.z.", `a.z. TXT "t"`}, nil, nil)
	s.want(s.ask("e.z.", dns.TypeANY), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
	s.want(s.ask("nx.z.", dns.TypeANY), dns.RcodeNameError, "AA", nil, []string{soa}, nil)
}

// Additional data: addresses, and what they lead on to.
func TestAdditional(t *testing.T) {
	s := serve(t, Options{}, "z.", strings.Replace(classZone, "@ NS ns.x.", "@ NS a", 1)+`naptr NAPTR 1 1 "s" "x" "" srv
naptr NAPTR 2 1 "a" "x" "" b
naptr NAPTR 3 1 "u" "x" "" svc
wmx MX 1 any.w
`)
	ns := []string{"z. NS a.z."}
	a := "a.z. A 192.0.2.1"
	s.want(s.ask("mx.z.", dns.TypeMX), dns.RcodeSuccess, "AA", []string{"mx.z. MX 1 a.z.", "mx.z. MX 2 b.z."}, ns, []string{a, "b.z. AAAA 2001:db8::1"})
	s.want(s.ask("a.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{a}, ns, nil)
	s.want(s.ask("a.z.", dns.TypeMX), dns.RcodeSuccess, "AA", nil, []string{soa}, nil)
	s.want(s.ask("z.", dns.TypeNS), dns.RcodeSuccess, "AA", ns, nil, []string{a})
	s.want(s.ask("naptr.z.", dns.TypeNAPTR), dns.RcodeSuccess, "AA", []string{
		`naptr.z. NAPTR 1 1 "s" "x" "" srv.z.`, `naptr.z. NAPTR 2 1 "a" "x" "" b.z.`, `naptr.z. NAPTR 3 1 "u" "x" "" svc.z.`,
	}, ns, []string{"srv.z. SRV 0 0 53 a.z.", a, "b.z. AAAA 2001:db8::1"})
	s.want(s.ask("alias.z.", dns.TypeSVCB), dns.RcodeSuccess, "AA", []string{"alias.z. SVCB 0 svc.z."}, ns, []string{`svc.z. SVCB 1 . alpn="h2"`, "svc.z. A 192.0.2.4", a})
	s.want(s.ask("wmx.z.", dns.TypeMX), dns.RcodeSuccess, "AA", []string{"wmx.z. MX 1 any.w.z."}, ns, []string{"any.w.z. A 192.0.2.2", a})
}

// A new set is used from the next message on, also beside running lanes.
func TestSetZones(t *testing.T) {
	s := serve(t, Options{Minimal: true}, "z.", apex+"a A 192.0.2.1\n")
	other := serve(t, Options{Minimal: true}, "z.", apex+"a A 192.0.2.2\n")
	sets := []*zone.Set{s.e.Zones(), other.e.Zones()}
	query, _ := question("a.z.", dns.TypeA).Pack()
	var wg sync.WaitGroup
	for range 2 {
		lane := s.e.NewLane(new(counters.Block))
		wg.Go(func() {
			for range 2000 {
				out, _ := lane.Answer(nil, query, counters.UDP, 512)
				if last := out[len(out)-1]; last != 1 && last != 2 {
					t.Errorf("answer %x", out)
				}
			}
		})
	}
	for i := range 2000 {
		s.e.SetZones(sets[i%2])
	}
	wg.Wait()
	s.e.SetZones(sets[1])
	s.want(s.ask("a.z.", dns.TypeA), dns.RcodeSuccess, "AA", []string{"a.z. A 192.0.2.2"}, nil, nil)
	s.e.SetZones(nil)
	s.want(s.ask("a.z.", dns.TypeA), dns.RcodeRefused, "", nil, nil, nil)
}
