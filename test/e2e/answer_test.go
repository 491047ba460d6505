package e2e

import (
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// answers reports whether target answers a DNS query.
func answers(target string) bool {
	c := dns.Client{Timeout: 100 * time.Millisecond}
	_, _, err := c.Exchange(new(dns.Msg).SetQuestion("example.com.", dns.TypeSOA), target)
	return err == nil
}

// A wildcard bind answers from the address that was asked: a client that
// connected its socket hears no other.
func TestWildcardBind(t *testing.T) {
	more := `  - {name: all, address: ["0.0.0.0:5310", "[::]:5310"], service: identify, affinity: flow}
`
	s := start(t, settings{workers: 2, more: more}.yaml(), zoneFiles())
	targets := []string{"127.0.0.1:5310", "127.0.1.5:5310", "[::1]:5310", netip.AddrPortFrom(second6, 5310).String()}
	for round := range 2 {
		for _, target := range targets {
			for _, network := range []string{"udp", "tcp"} {
				if tag := whoAnswers(t, network, target); tag.Epoch != s.epoch() {
					t.Errorf("%s %s: %+v", network, target, tag)
				}
			}
		}
		if round == 0 {
			s.reload("--wait", "commit") // a socket from before is as good
		}
	}
	s.ctl("stop", "--now")
	s.awaitExit(5 * time.Second)
}

// Every class of answer over UDP and TCP, judged by another implementation's
// parser.
func TestAnswers(t *testing.T) {
	start(t, settings{}.yaml(), zoneFiles())
	for _, c := range []struct {
		name    string
		typ     uint16
		rcode   int
		answers int
		soa     bool // in the authority section
	}{
		{"h1.example.com.", dns.TypeA, dns.RcodeSuccess, 1, false},
		{"www.example.com.", dns.TypeA, dns.RcodeSuccess, 2, false}, // CNAME and its target
		{"a.w.example.com.", dns.TypeTXT, dns.RcodeSuccess, 1, false},
		{"h1.example.com.", dns.TypeAAAA, dns.RcodeSuccess, 0, true},
		{"w.example.com.", dns.TypeA, dns.RcodeSuccess, 0, true}, // empty non-terminal
		{"none.example.com.", dns.TypeA, dns.RcodeNameError, 0, true},
		{"example.org.", dns.TypeA, dns.RcodeRefused, 0, false},
	} {
		for _, network := range []string{"udp", "tcp"} {
			for _, target := range []string{dns4.String(), dns6.String()} {
				client := dns.Client{Net: network, Timeout: answerTimeout}
				m, _, err := client.Exchange(new(dns.Msg).SetQuestion(c.name, c.typ), target)
				if err != nil {
					t.Errorf("%s: %s %s: %v", c.name, network, target, err)
					continue
				}
				soa := len(m.Ns) == 1 && m.Ns[0].Header().Rrtype == dns.TypeSOA
				if m.Rcode != c.rcode || len(m.Answer) != c.answers || soa != c.soa || m.Authoritative != (c.rcode != dns.RcodeRefused) {
					t.Errorf("%s over %s:\n%v", c.name, network, m)
				}
			}
		}
	}
}

// /healthz and /readyz say yes while the server serves.
func TestHealth(t *testing.T) {
	start(t, settings{}.yaml(), zoneFiles())
	c := http.Client{Timeout: answerTimeout}
	for _, path := range []string{"/healthz", "/readyz"} {
		resp, err := c.Get("http://" + admin + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// A stream client of identify is told, line by line, who serves it, and stays
// with that generation over a reload.
func TestIdentifyStream(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	c, err := net.Dial("tcp", who4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := whoAnswersOn(t, c)
	r := s.startReload()
	r.awaitCommit()
	if after := whoAnswersOn(t, c); after != before {
		t.Errorf("a connection of %+v is served by %+v after the commit", before, after)
	}
	if tag := whoAnswers(t, "tcp", who4.String()); tag.Epoch != before.Epoch+1 {
		t.Errorf("a new connection is served by %+v, the reload was from epoch %d", tag, before.Epoch)
	}
	c.Close()
	r.wait()
}
