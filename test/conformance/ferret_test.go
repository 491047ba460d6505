package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
)

// ferretZone is a line of the sample: one zone, and what servers answered.
type ferretZone struct {
	ID    int    `json:"id"`
	Zone  string `json:"zone"`
	Cases []struct {
		Q struct {
			Name, Type string
		} `json:"q"`
		Tag string `json:"tag"`
		Exp []ferretExpect
	} `json:"cases"`
}

// ferretExpect is an answer and the servers that gave it.
type ferretExpect struct {
	servers []string
	lines   []string
}

func (e *ferretExpect) UnmarshalJSON(b []byte) error {
	return unmarshalPair(b, &e.servers, &e.lines)
}

// answerKey is what the data set's comparison rule looks at: rcode, flags minus
// RA, question, answer and additional sets, authority where there is no answer.
type answerKey struct {
	rcode, flags, question string
	answer, authority      string
	additional             string
}

// key parses an expected answer.
func (e *ferretExpect) key(t *testing.T) answerKey {
	var k answerKey
	sections := map[string][]string{}
	section := ""
	for _, line := range e.lines {
		switch {
		case strings.HasPrefix(line, ";"):
			section = line
		case section != "":
			sections[section] = append(sections[section], line)
		case strings.HasPrefix(line, "rcode "):
			k.rcode = strings.TrimPrefix(line, "rcode ")
		case strings.HasPrefix(line, "flags "):
			k.flags = normalFlags(strings.Fields(line)[1:])
		}
	}
	k.question = strings.ToLower(strings.Join(sections[";QUESTION"], "|"))
	k.answer = normalRecords(t, sections[";ANSWER"])
	k.additional = normalRecords(t, sections[";ADDITIONAL"])
	if k.answer == "" {
		k.authority = normalRecords(t, sections[";AUTHORITY"])
	}
	return k
}

func normalFlags(flags []string) string {
	flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "RA" })
	slices.Sort(flags)
	return strings.Join(flags, " ")
}

func normalRecords(t *testing.T, lines []string) string {
	var out []string
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			t.Fatalf("expected record %q: %v", l, err)
		}
		out = append(out, strings.ToLower(rr.String()))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// keyOf returns what the rule looks at in our answer.
func keyOf(m *dns.Msg) answerKey {
	text := func(rrs []dns.RR) string {
		var out []string
		for _, rr := range rrs {
			if rr.Header().Rrtype != dns.TypeOPT {
				out = append(out, strings.ToLower(rr.String()))
			}
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	flags := []string{"QR"}
	for f, set := range map[string]bool{"AA": m.Authoritative, "TC": m.Truncated, "RD": m.RecursionDesired, "AD": m.AuthenticatedData, "CD": m.CheckingDisabled} {
		if set {
			flags = append(flags, f)
		}
	}
	k := answerKey{
		rcode:      dns.RcodeToString[m.Rcode],
		flags:      normalFlags(flags),
		answer:     text(m.Answer),
		additional: text(m.Extra),
	}
	for _, q := range m.Question {
		k.question = strings.ToLower(fmt.Sprintf("%s %s %s", q.Name, dns.ClassToString[q.Qclass], dns.TypeToString[q.Qtype]))
	}
	if k.answer == "" {
		k.authority = text(m.Ns)
	}
	return k
}

// zoneOrigin returns the owner of the SOA record in zone text.
func zoneOrigin(t *testing.T, text string) string {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); slices.Contains(f, "SOA") {
			return f[0]
		}
	}
	t.Fatalf("no SOA in\n%s", text)
	return ""
}

// TestFerretSample: each zone, loaded alone by the normal path, gives the answer
// that most of BIND, NSD, Knot and PowerDNS gave. Where they tie, any of the
// tied answers will do.
func TestFerretSample(t *testing.T) {
	s := newServer(t, auth.Options{MaxUDPSize: 4096})
	total, good := 0, 0
	readLines(t, dataDir(t, "ferret-sample.jsonl.gz"), func(f ferretZone) {
		z, _, err := compile(t, zoneOrigin(t, f.Zone), f.Zone)
		if err != nil {
			total += len(f.Cases)
			t.Errorf("zone %d: %v\n%s", f.ID, err, f.Zone)
			return
		}
		s.serve(z)
		for _, c := range f.Cases {
			total++
			q := new(dns.Msg)
			q.SetQuestion(c.Q.Name, dns.StringToType[c.Q.Type])
			q.RecursionDesired = false
			got := keyOf(s.ask(q, counters.UDP))
			most := 0
			for _, e := range c.Exp {
				most = max(most, len(e.servers))
			}
			ok := false
			for _, e := range c.Exp {
				ok = ok || len(e.servers) == most && e.key(t) == got
			}
			if ok {
				good++
				continue
			}
			t.Errorf("zone %d, %s %s (%s):\n%s\ngot  %+v", f.ID, c.Q.Name, c.Q.Type, c.Tag, f.Zone, got)
			for _, e := range c.Exp {
				t.Logf("%v: %+v", e.servers, e.key(t))
			}
		}
	})
	t.Logf("%d of %d majority answers", good, total)
}
