package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// table gathers the samples.
type table struct {
	o        options
	kinds    []traffic
	when     time.Time
	load     float64 // of the machine, before
	versions map[string]string
	order    []string // of the servers
	samples  map[string]map[string][]sample
	memory   map[string][]float64 // MiB of all processes
}

func newTable(o options, kinds []traffic) *table {
	return &table{
		o: o, kinds: kinds, when: time.Now(), load: loadAverage(),
		versions: map[string]string{}, samples: map[string]map[string][]sample{}, memory: map[string][]float64{},
	}
}

func (t *table) add(server, kind string, s sample) {
	if t.samples[server] == nil {
		t.samples[server] = map[string][]sample{}
		t.order = append(t.order, server)
	}
	t.samples[server][kind] = append(t.samples[server][kind], s)
}

// busy is the load average from which on a measurement says so.
const busy = 0.7

// reference is the server that the ratios are against.
const reference = "Knot DNS"

// heading begins a table: what it is of, when and on what it was measured, and
// what else the machine did.
func heading(b *strings.Builder, title string, when time.Time, before float64) {
	fmt.Fprintf(b, "# %s, %s\n\n%s. Load average before: %.1f.\n\n", title, when.Format("2006-01-02 15:04"), machine(), before)
	if before > busy {
		b.WriteString("**The machine was busy with other things: these figures are no measure.**\n\n")
	}
}

// String returns the table as Markdown.
func (t *table) String() string {
	var b strings.Builder
	heading(&b, "CPU per query", t.when, t.load)
	fmt.Fprintf(&b, "UDP over loopback, %d names, a tenth of the queries for names that do not exist unless said; server on processor %d, generator on %d;\n",
		t.o.names, serverCPU, generatorCPU)
	fmt.Fprintf(&b, "medians of %d interleaved rounds of %v (lowest to highest in parentheses).\n\n", t.o.rounds, t.o.length)
	for _, s := range t.order {
		fmt.Fprintf(&b, "* %s: %s\n", s, t.versions[s])
	}
	for _, k := range t.kinds {
		fmt.Fprintf(&b, "\n## %s\n\n", strings.ToUpper(k.title[:1])+k.title[1:])
		if k.rate == 0 {
			b.WriteString("| server | q/s | CPU us per query | of Knot's | lost |\n|---|---|---|---|---|\n")
		} else {
			b.WriteString("| server | CPU us per query | of Knot's | lost | p50 us | p99 us |\n|---|---|---|---|---|---|\n")
		}
		base, _, _ := spread(t.pick(reference, k.name, perQuery))
		for _, s := range t.order {
			cost, low, high := spread(t.pick(s, k.name, perQuery))
			costs := fmt.Sprintf("%.2f (%.2f to %.2f) | %.2f", cost, low, high, cost/base)
			lost := 0.0
			for _, n := range t.pick(s, k.name, func(s sample) float64 { return float64(s.lost) }) {
				lost += n
			}
			if k.rate == 0 {
				qps, _, _ := spread(t.pick(s, k.name, func(s sample) float64 { return s.rate }))
				fmt.Fprintf(&b, "| %s | %.0f | %s | %.0f |\n", s, qps, costs, lost)
				continue
			}
			p50, _, _ := spread(t.pick(s, k.name, func(s sample) float64 { return float64(s.p50) / 1e3 }))
			p99, _, _ := spread(t.pick(s, k.name, func(s sample) float64 { return float64(s.p99) / 1e3 }))
			fmt.Fprintf(&b, "| %s | %s | %.0f | %.0f | %.0f |\n", s, costs, lost, p50, p99)
		}
	}
	b.WriteString("\n## Memory at the end\n\n| server | PSS MiB of all processes |\n|---|---|\n")
	for _, s := range t.order {
		mem, _, _ := spread(t.memory[s])
		fmt.Fprintf(&b, "| %s | %.1f |\n", s, mem)
	}
	return b.String()
}

func perQuery(s sample) float64 { return float64(s.perQuery) / 1e3 }

func (t *table) pick(server, kind string, f func(sample) float64) []float64 {
	list := t.samples[server][kind]
	out := make([]float64, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}

// spread returns the median, the lowest and the highest of a list, zeros of an
// empty one.
func spread(list []float64) (median, low, high float64) {
	if len(list) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}

// loadAverage returns the load average of the last minute.
func loadAverage() float64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return float64(info.Loads[0]) / (1 << 16)
}

// machine describes what was measured on.
func machine() string {
	var u unix.Utsname
	kernel := "an unknown kernel"
	if unix.Uname(&u) == nil {
		kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d x %s, %s", kernel, processors(), model, runtime.Version())
}

// processors returns how many processors are online, whatever this process is
// pinned to.
func processors() int {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return runtime.NumCPU()
	}
	n := -1 // the first line is the sum
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "cpu") {
			n++
		}
	}
	return n
}
