package conformance

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// dataDir returns the path of a data set beside the project, and skips the test
// if it is not there.
func dataDir(tb testing.TB, elem ...string) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{dir, "..", "shared", "data"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("SKIPPED, NOT PASSED: the data set is missing: %v", err)
	}
	return path
}

// readLines calls f with every JSON line of a file, gzipped or not.
func readLines[T any](tb testing.TB, path string, f func(T)) {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	dec := json.NewDecoder(bufio.NewReader(file))
	if strings.HasSuffix(path, ".gz") {
		zr, err := gzip.NewReader(file)
		if err != nil {
			tb.Fatal(err)
		}
		dec = json.NewDecoder(zr)
	}
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			tb.Fatalf("reading %s: %v", path, err)
		}
		f(v)
	}
}

// compile compiles zone text that is not in a file yet.
func compile(tb testing.TB, origin, text string) (*zone.Zone, zone.Report, error) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "zone")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return compileFile(tb, origin, file)
}

// compileFile compiles a zone file and checks its image.
func compileFile(tb testing.TB, origin, file string) (*zone.Zone, zone.Report, error) {
	tb.Helper()
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

// server answers from a set of zones.
type server struct {
	tb   testing.TB
	e    *auth.Engine
	lane *auth.Lane
}

func newServer(tb testing.TB, o auth.Options, zones ...*zone.Zone) *server {
	tb.Helper()
	s := &server{tb: tb, e: auth.New(o)}
	s.lane = s.e.NewLane(new(counters.Block))
	s.serve(zones...)
	return s
}

func (s *server) serve(zones ...*zone.Zone) {
	s.tb.Helper()
	set, err := zone.NewSet(zones)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.e.SetZones(set)
}

// ask returns the parsed answer to q.
func (s *server) ask(q *dns.Msg, t counters.Transport) *dns.Msg {
	s.tb.Helper()
	query, err := q.Pack()
	if err != nil {
		s.tb.Fatal(err)
	}
	out, reason := s.lane.Answer(nil, query, t, dns.MaxMsgSize)
	if reason != counters.NotDropped {
		s.tb.Fatalf("no answer to %v: %v", q.Question, reason)
	}
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		s.tb.Fatalf("unpacking the answer to %v: %v\n%x", q.Question, err, out)
	}
	if m.Id != q.Id {
		s.tb.Fatalf("answer to %v has id %d, not %d", q.Question, m.Id, q.Id)
	}
	return m
}

// unmarshalPair decodes a JSON array of two elements.
func unmarshalPair(b []byte, first, second any) error {
	var raw [2]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[0], first); err != nil {
		return err
	}
	return json.Unmarshal(raw[1], second)
}
