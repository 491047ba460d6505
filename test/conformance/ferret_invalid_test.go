package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
)

// ferretInvalid is a line of the sample of ill-formed zones.
type ferretInvalid struct {
	ID   int    `json:"id"`
	Zone string `json:"zone"`
	Pre  map[string]struct {
		Code   int
		Output []string
	} `json:"pre"`
	Exp []struct {
		Query struct {
			Name, Type string
		}
		Expected []struct {
			Servers  string   `json:"Server/s"`
			Response []string `json:"Response"`
		} `json:"Expected Response"`
	} `json:"exp"`
}

// TestFerretInvalid: an ill-formed zone is refused, and then nothing is answered
// from it; or it is served, and then every query has an answer that a client can
// parse. Nothing crashes. How often we agree with the others is logged.
func TestFerretInvalid(t *testing.T) {
	s := newServer(t, auth.Options{MaxUDPSize: 4096})
	zones, loaded, agree, queries := 0, 0, 0, 0
	readLines(t, dataDir(t, "ferret-invalid-sample.jsonl.gz"), func(f ferretInvalid) {
		zones++
		z, _, err := compile(t, invalidOrigin(f.Zone), f.Zone)
		accepting := 0
		for _, v := range f.Pre {
			if v.Code == 0 {
				accepting++
			}
		}
		if err == nil && accepting == 0 && len(f.Pre) > 0 {
			t.Errorf("zone %d: accepted by nobody else\n%s", f.ID, f.Zone)
		}
		if err != nil && accepting > 0 && accepting == len(f.Pre) {
			t.Errorf("zone %d: refused by nobody else: %v\n%s", f.ID, err, f.Zone)
		}
		if err != nil {
			s.serve()
		} else {
			loaded++
			s.serve(z)
		}
		for _, c := range f.Exp {
			q := new(dns.Msg)
			q.SetQuestion(c.Query.Name, dns.StringToType[c.Query.Type])
			q.RecursionDesired = false
			m := s.ask(q, counters.UDP)
			if err != nil {
				if m.Rcode != dns.RcodeRefused || len(m.Answer)+len(m.Ns)+len(m.Extra) > 0 {
					t.Errorf("zone %d is refused (%v), but answers %v", f.ID, err, m)
				}
				continue
			}
			queries++
			got := keyOf(m)
			most := 0
			for _, e := range c.Expected {
				most = max(most, len(strings.Fields(e.Servers)))
			}
			ok := false
			for _, e := range c.Expected {
				exp := ferretExpect{lines: e.Response}
				ok = ok || len(strings.Fields(e.Servers)) == most && exp.key(t) == got
			}
			if ok {
				agree++
			}
		}
	})
	t.Logf("%d of %d zones loaded, %d of %d majority answers", loaded, zones, agree, queries)
}

// invalidOrigin returns the owner of the SOA record in zone text, or, where one
// is missing, the last label of the first owner.
func invalidOrigin(text string) string {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); slices.Contains(f, "SOA") {
			return f[0]
		}
	}
	first := strings.Fields(text)[0]
	labels := dns.SplitDomainName(first)
	return dns.Fqdn(labels[len(labels)-1])
}
