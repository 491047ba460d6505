package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

type pdnsCase struct {
	Test    string `json:"test"`
	Variant string `json:"variant"`
	Q       struct {
		Name string   `json:"name"`
		Type string   `json:"type"`
		Opts []string `json:"opts"`
	} `json:"q"`
	Want struct {
		AN    []string `json:"an"`
		NS    []string `json:"ns"`
		AR    []string `json:"ar"`
		Rcode int      `json:"rcode"`
		TC    int      `json:"tc"`
		AA    int      `json:"aa"`
	} `json:"want"`
}

// TestPowerDNS: PowerDNS's regression queries over all their zones at once. The
// zones are unsigned here, so that NSEC and RRSIG records among the expected
// ones do not count; and a positive answer of ours also has the zone's name
// servers with their addresses, which PowerDNS never adds.
func TestPowerDNS(t *testing.T) {
	dir := dataDir(t, "pdns")
	list, err := os.ReadFile(filepath.Join(dir, "zones-portable.list"))
	if err != nil {
		t.Fatal(err)
	}
	var zones []*zone.Zone
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		z, _, err := compileFile(t, f[0], filepath.Join(dir, f[1]))
		if err != nil {
			t.Errorf("%s: %v", f[0], err)
			continue
		}
		zones = append(zones, z)
	}
	s := newServer(t, auth.Options{MaxUDPSize: 4096}, zones...)
	total, good := 0, 0
	readLines(t, filepath.Join(dir, "cases.jsonl"), func(c pdnsCase) {
		total++
		q := new(dns.Msg)
		typ, ok := dns.StringToType[c.Q.Type]
		if !ok {
			var rr dns.RFC3597
			rr.Hdr.Rrtype = 65226
			typ = rr.Hdr.Rrtype
		}
		q.SetQuestion(dns.Fqdn(c.Q.Name), typ)
		q.RecursionDesired = false
		transport := counters.UDP
		if slices.Contains(c.Q.Opts, "tcp") {
			transport = counters.TCP
		}
		if slices.Contains(c.Q.Opts, "dnssec") || slices.Contains(c.Q.Opts, "ednssubnet") {
			q.SetEdns0(4096, slices.Contains(c.Q.Opts, "dnssec"))
		}
		m := s.ask(q, transport)
		if problems := pdnsCompare(t, c, m); len(problems) > 0 {
			t.Errorf("%s: %s %s\n%s\ngot %v", c.Test, c.Q.Name, c.Q.Type, strings.Join(problems, "\n"), m)
			return
		}
		good++
	})
	t.Logf("%d of %d answers", good, total)
}

func pdnsCompare(t *testing.T, c pdnsCase, m *dns.Msg) (problems []string) {
	check := func(ok bool, what string) {
		if !ok {
			problems = append(problems, what)
		}
	}
	check(m.Rcode == c.Want.Rcode, "rcode")
	check(m.Authoritative == (c.Want.AA == 1), "AA")
	check(m.Truncated == (c.Want.TC == 1), "TC")
	an, ns, ar := pdnsRecords(t, c.Want.AN), pdnsRecords(t, c.Want.NS), pdnsRecords(t, c.Want.AR)
	check(slices.Equal(pdnsTexts(m.Answer), an), "answer, want "+strings.Join(an, "; "))
	var servers []string // whose addresses may be there, too
	if len(m.Answer) == 0 || len(ns) > 0 {
		check(slices.Equal(pdnsTexts(m.Ns), ns), "authority, want "+strings.Join(ns, "; "))
	} else {
		for _, rr := range m.Ns {
			if n, ok := rr.(*dns.NS); ok {
				servers = append(servers, strings.ToLower(n.Ns))
			}
		}
	}
	var extra []dns.RR
	for _, rr := range m.Extra {
		text := pdnsTexts([]dns.RR{rr})[0]
		if rr.Header().Rrtype != dns.TypeOPT && (slices.Contains(ar, text) || !slices.Contains(servers, strings.ToLower(rr.Header().Name))) {
			extra = append(extra, rr)
		}
	}
	check(slices.Equal(pdnsTexts(extra), ar), "additional, want "+strings.Join(ar, "; "))
	for _, line := range c.Want.AR {
		if strings.Contains(line, "\tOPT\t") {
			check(m.IsEdns0() != nil && m.IsEdns0().Do() == strings.Contains(line, "32768"), "OPT")
		}
	}
	return problems
}

// pdnsRecords parses expected records and leaves out those of signed zones.
func pdnsRecords(t *testing.T, lines []string) []string {
	var rrs []dns.RR
	for _, line := range lines {
		f := strings.Fields(line)
		if f[3] == "OPT" || f[3] == "NSEC" || f[3] == "NSEC3" || f[3] == "RRSIG" {
			continue
		}
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatalf("expected record %q: %v", line, err)
		}
		rrs = append(rrs, rr)
	}
	return pdnsTexts(rrs)
}

func pdnsTexts(rrs []dns.RR) []string {
	var out []string
	for _, rr := range rrs {
		out = append(out, rr.String())
	}
	slices.Sort(out)
	return out
}
