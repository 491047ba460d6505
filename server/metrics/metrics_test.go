package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/shm"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files and the table of docs/metrics.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fixed is a source that always says the same.
type fixed struct {
	sample *Sample
	err    error // of Sample
	ready  error
}

func (f fixed) Sample(context.Context) (*Sample, error) { return f.sample, f.err }
func (f fixed) Ready(context.Context) error             { return f.ready }

// sample returns a sample in which every family has a metric, and every number
// is another.
func sample() *Sample {
	soon, now := 31*time.Second, time.Duration(0)
	s := &Sample{
		Backends: []control.BackendStatus{{Name: "app", Servers: []control.ServerStatus{
			{Name: "a", State: "enabled", Health: "up", Weight: 1, Flows: 12, Begun: 345, Refused: 2},
			{Name: "b", State: "draining", Health: "down", Weight: 1, Flows: 3, Begun: 30, Silent: 5},
		}}},
		Version:   control.Version{Version: "v0.1.0", Revision: "f737e20", Go: "go1.26"},
		StartedAt: day, ConfigLoadedAt: day.Add(time.Hour), Step: control.StepDrain,
		Generations: []Generation{
			{
				Epoch: 5, State: "active", RxOwner: true, Workers: 4, Ready: 3, Slot: 1, FlowSlots: 65536, RingFill: 0.25,
				Processes: []Process{{Worker: 0, Resident: 11 << 20, OpenFDs: 41, MaxFDs: 1024}, {Worker: 3, Resident: 12 << 20}},
			},
			{
				Epoch: 4, State: "draining", Workers: 2, Ready: 2, Load: &control.Load{Flows: 70, TCP: 7}, FlowSlots: 4096, RingFill: 0.5,
				DrainLeft: &soon, Processes: []Process{{Worker: 0, Resident: 13 << 20, OpenFDs: 42, MaxFDs: 1024}},
			},
			{
				Epoch: 3, State: "draining", Workers: 2, Ready: 2, Load: &control.Load{Flows: 1, TCP: 1}, Slot: 2, FlowSlots: 1024, DrainLeft: &now,
			},
		},
		Reloads:  map[control.Outcome]uint64{control.OutcomeDone: 6, control.OutcomeRefused: 2},
		Refusals: map[Refusal]uint64{RefusedConfig: 1, RefusedZone: 1}, Lapses: 3, Fences: 4, ConfigHash: 1<<48 - 1,
		LastReload: &control.ReloadReport{
			OK: true, StartedAt: day.Add(2 * time.Hour), Elapsed: control.Millis(2034 * time.Millisecond),
			Steps: []control.StepTime{
				{Step: control.StepPrepare, Elapsed: control.Millis(3 * time.Millisecond)},
				{Step: control.StepHandover, Elapsed: control.Millis(4 * time.Millisecond)},
				{Step: control.StepHandover, Elapsed: control.Millis(1 * time.Millisecond)},
			},
			Gap: control.Millis(361 * time.Microsecond), Handed: 9,
		},
		Respawns: 8, Zones: 11, ZoneRecords: 1200, StaleZones: 1, Standby: true,
		PerZone: []Zone{
			{"example.com.", control.ZoneQueries{UDP: 31, TCP: 32, NXDomain: 33, Truncated: 34}}, {"idle.example.", control.ZoneQueries{}},
			{"other", control.ZoneQueries{TCP: 35}},
		},
	}
	for id := range counters.Queries {
		s.Counters[id] = uint64(id) + 1000
	}
	s.Counters[counters.Received] = 50_000
	s.Counters[counters.QueryID(counters.UDP, 1, 0)] = 21
	s.Counters[counters.QueryID(counters.TCP, 65280, 4095)] = 22
	s.Counters[counters.LatencyID(counters.UDP, counters.ClassNoError, 1)] = 23
	s.Counters[counters.LatencyID(counters.UDP, counters.ClassNXDomain, 1500)] = 24
	s.Counters[counters.LatencyID(counters.UDP, counters.ClassNXDomain, 1<<62)] = 25
	s.Counters[counters.LatencyNsID(counters.UDP, counters.ClassNXDomain)] = 26_000_000_000
	return s
}

// registryOf returns a registry of one sample alone, which refuses what Describe
// did not announce.
func registryOf(t *testing.T, s *Sample) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(collector{fixed{sample: s}}); err != nil {
		t.Fatal(err)
	}
	return r
}

// exposition returns what Prometheus gets.
func exposition(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// values returns the samples of an exposition by their name and labels.
func values(t *testing.T, text string) map[string]float64 {
	t.Helper()
	m := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		m[line[:i]] = v
	}
	return m
}

func TestGolden(t *testing.T) {
	for name, s := range map[string]*Sample{
		"full":  sample(),
		"fresh": {StartedAt: day, ConfigLoadedAt: day, Step: control.StepSteady},
	} {
		golden(t, filepath.Join("testdata", name+".txt"), exposition(t, registryOf(t, s)))
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), -rewrite accepts it:\n%s", file, d)
	}
}

// The names are as Prometheus wants them, and every family has a metric.
func TestLint(t *testing.T) {
	families, err := registryOf(t, sample()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	seen := map[string]string{}
	for _, f := range families {
		seen[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	n := 0
	for _, s := range sections {
		for _, f := range s.families {
			n++
			if seen[f.name] != string(f.kind) {
				t.Errorf("%s is a %q, want a %s", f.name, seen[f.name], f.kind)
			}
		}
	}
	if n != len(seen) {
		t.Errorf("%d families in the sections, %d exported", n, len(seen))
	}
}

// live is a source over real counters.
type live struct {
	set  *counters.Set
	gens []counters.Live
}

func (l *live) Ready(context.Context) error { return nil }

func (l *live) Sample(context.Context) (*Sample, error) {
	s := &Sample{}
	l.set.Read(&s.Counters, l.gens)
	return s, nil
}

// Whatever lanes count, and whichever generations come and go, no exported
// counter falls, and none loses what was counted.
func TestCountersNeverFall(t *testing.T) {
	const lanes = 3
	set, err := counters.Format(shm.Heap(counters.RegionSize))
	if err != nil {
		t.Fatal(err)
	}
	src := &live{set: set}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(collector{src})
	rnd := rand.New(rand.NewPCG(1, 2))
	last, total, epoch := map[string]float64{}, uint64(0), uint32(0)
	for range 300 {
		switch {
		case len(src.gens) == 0, len(src.gens) < counters.NumSlots && rnd.IntN(8) == 0: // a new generation
			slot := 0
			for slices.ContainsFunc(src.gens, func(g counters.Live) bool { return g.Slot == slot }) {
				slot++
			}
			epoch++
			src.gens = append(src.gens, counters.Live{Slot: slot, Epoch: epoch, Lanes: lanes})
		case rnd.IntN(8) == 0: // the oldest goes
			g := src.gens[0]
			set.Fold(g.Slot, g.Epoch, g.Lanes)
			src.gens = src.gens[1:]
		default:
			g := src.gens[rnd.IntN(len(src.gens))]
			b, n := set.Block(g.Slot, rnd.IntN(lanes)), rnd.Uint64N(1000)
			total += n
			b.Add(counters.Received, n)
			b.Add(counters.ID(rnd.IntN(int(counters.LatencyNs))), n)
			b.Add(counters.LatencyID(counters.UDP, counters.ClassNoError, rnd.Int64N(1<<31)), n)
			b.Add(counters.LatencyNsID(counters.UDP, counters.ClassNoError), n)
		}
		now := values(t, exposition(t, reg))
		for name, v := range last {
			family, _, _ := strings.Cut(name, "{")
			counter := strings.HasSuffix(family, "_total") || strings.HasPrefix(family, "dnsapp_request_duration_seconds")
			if counter && now[name] < v {
				t.Fatalf("%s fell from %v to %v", name, v, now[name])
			}
		}
		last = now
	}
	if last["dnsapp_datagrams_received_total"] < float64(total) {
		t.Errorf("received %v, counted %d", last["dnsapp_datagrams_received_total"], total)
	}
	if got := last[`dnsapp_request_duration_seconds_count{rcode="NOERROR",transport="udp"}`]; got != float64(total) {
		t.Errorf("the histogram holds %v, counted %d", got, total)
	}
}

func TestPages(t *testing.T) {
	up := NewServer(fixed{sample: sample()}, slog.New(slog.DiscardHandler)).Handler
	down := NewServer(fixed{err: errors.New("busy"), ready: errors.New("epoch 3 has no worker")}, slog.New(slog.DiscardHandler)).Handler
	for _, c := range []struct {
		h            http.Handler
		method, path string
		code         int
		body         string
	}{
		{up, "GET", "/", 200, `<a href="/metrics">`},
		{up, "GET", "/metrics", 200, "\ndnsapp_generation_epoch 5\n"},
		{up, "GET", "/metrics", 200, "\nprocess_open_fds "},
		{up, "GET", "/healthz", 200, "ok\n"},
		{up, "GET", "/readyz", 200, "ok\n"},
		{up, "HEAD", "/readyz", 200, ""},
		{up, "POST", "/metrics", 405, ""},
		{up, "GET", "/nothing", 404, ""},
		{down, "GET", "/healthz", 200, "ok\n"},
		{down, "GET", "/readyz", 503, "not ready: epoch 3 has no worker\n"},
		{down, "GET", "/metrics", 500, "asking the supervisor: busy"},
	} {
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s: %d %.200q, want %d with %q", c.method, c.path, w.Code, w.Body, c.code, c.body)
		}
	}
}

// The server ends clients that dawdle.
func TestTimeouts(t *testing.T) {
	s := NewServer(fixed{}, slog.New(slog.DiscardHandler))
	for name, d := range map[string]time.Duration{
		"ReadHeaderTimeout": s.ReadHeaderTimeout, "ReadTimeout": s.ReadTimeout, "WriteTimeout": s.WriteTimeout, "IdleTimeout": s.IdleTimeout,
	} {
		if d <= 0 || d > time.Minute {
			t.Errorf("%s is %v", name, d)
		}
	}
}

// The table of docs/metrics.md is the families.
func TestDocument(t *testing.T) {
	const begin, end = "<!-- The tables are generated from server/metrics/families.go: go test ./server/metrics -rewrite -->\n", "<!-- end of the tables -->\n"
	file := filepath.Join("..", "..", "docs", "metrics.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks around the tables", file)
	}
	golden(t, file, head+begin+tables()+end+tail)

	// Label values are explained.
	var words []string
	for r := counters.NotDropped + 1; r < counters.NumReasons; r++ {
		words = append(words, r.String())
	}
	for _, r := range Refusals {
		words = append(words, string(r))
	}
	for _, s := range control.Steps {
		words = append(words, string(s))
	}
	for _, o := range control.Outcomes {
		if o != control.OutcomeCommitted {
			words = append(words, string(o))
		}
	}
	for _, w := range words {
		if !strings.Contains(head, "`"+w+"`") {
			t.Errorf("%s does not explain `%s`", file, w)
		}
	}
	// Names in the text are names of families.
	known := map[string]bool{}
	for _, s := range sections {
		for _, f := range s.families {
			known[f.name] = true
			known[f.name+"_bucket"] = f.kind == histogramKind
		}
	}
	for _, name := range regexp.MustCompile(`dnsapp_[a-z_]+`).FindAllString(head, -1) {
		if !known[name] {
			t.Errorf("%s names %s, which there is not", file, name)
		}
	}
}

// tables returns the families as they are documented.
func tables() string {
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", s.title)
		for _, f := range s.families {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, strings.Join(f.labels, ", "), f.help)
		}
	}
	return b.String() + "\n"
}
