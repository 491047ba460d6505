package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// queryLine is what the tests look at in a line of the query log.
type queryLine struct {
	Client    string `json:"client"`
	Transport string `json:"transport"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Rcode     string `json:"rcode"`
	Size      int    `json:"size"`
	Epoch     uint32 `json:"epoch"`
}

// queryLog returns the lines of a query log.
func (s *server) queryLog(name string) (lines []queryLine) {
	s.t.Helper()
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	for text := range strings.Lines(string(b)) {
		var l queryLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			s.t.Fatalf("%v in %q", err, text)
		}
		lines = append(lines, l)
	}
	return lines
}

// Every query is logged that was answered, over UDP and TCP, by all workers in whole
// lines; a reload opens the file anew.
func TestQueryLog(t *testing.T) {
	s := start(t, settings{workers: 2, top: "dns: {query_log: {file: queries, sample: 1}}"}.yaml(), zoneFiles())
	epoch := s.epoch()
	ask(t, "udp", dns4, "h1.example.com.", dns.TypeA)
	ask(t, "tcp", dns6, "nowhere.example.com.", dns.TypeMX)
	x := startDNS(t)
	s.await(10*time.Second, "the load runs", func() bool { return x.udp.Report().Answered > 5000 })
	sent := uint64(2)
	for _, r := range x.stop() {
		sent += r.Sent
		if err := r.Exact(); err != nil {
			t.Error(err)
		}
	}
	var logged, dropped float64
	s.await(5*time.Second, "everything is logged or dropped", func() bool {
		m := metrics(t)
		logged, dropped = m["dnsapp_dns_query_log_records_total"], m["dnsapp_dns_query_log_dropped_total"]
		return uint64(logged+dropped) == sent
	})
	t.Logf("%v logged, %v dropped", logged, dropped)
	if dropped > logged/10 {
		t.Errorf("%v of %d queries are not logged", dropped, sent)
	}
	lines := s.queryLog("queries")
	if len(lines) != int(logged) {
		t.Errorf("%d lines, %v counted", len(lines), logged)
	}
	for _, want := range []queryLine{
		{Client: "127.0.0.1", Transport: "udp", Name: "h1.example.com.", Type: "A", Rcode: "NOERROR", Epoch: epoch},
		{Client: "::1", Transport: "tcp", Name: "nowhere.example.com.", Type: "MX", Rcode: "NXDOMAIN", Epoch: epoch},
	} {
		n := 0
		for _, l := range lines {
			size := l.Size
			if l.Size = 0; l == want && size > 40 {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines like %+v", n, want)
		}
	}

	if err := os.Rename(s.path("queries"), s.path("queries.old")); err != nil {
		t.Fatal(err)
	}
	s.reload()
	ask(t, "udp", dns4, "h2.example.com.", dns.TypeA)
	s.await(5*time.Second, "the new file has a line", func() bool {
		info, err := os.Stat(s.path("queries"))
		return err == nil && info.Size() > 0
	})
	if lines := s.queryLog("queries"); len(lines) != 1 || lines[0].Epoch != s.epoch() || lines[0].Name != "h2.example.com." {
		t.Errorf("the new file: %+v", lines)
	}
}

// A query log that cannot be opened refuses the reload, by its key.
func TestQueryLogRefused(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	s.write("dnsapp.yaml", settings{top: "dns: {query_log: {file: run}}"}.yaml()) // a folder
	_, errs, code := s.tryCtl("reload")
	if code != 3 || !strings.Contains(string(errs), "dns.query_log.file") {
		t.Errorf("code %d: %s", code, errs)
	}
}
