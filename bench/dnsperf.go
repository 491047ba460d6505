package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

var (
	dnsperfDone = regexp.MustCompile(`(?m)^\s*Queries completed:\s+(\d+)`)
	dnsperfLost = regexp.MustCompile(`(?m)^\s*Queries lost:\s+(\d+)`)
)

// dnsperf measures the server under dnsperf, a generator that is not ours. Its
// start and end are counted, too.
func (r *running) dnsperf(kind traffic, length time.Duration) (sample, error) {
	file := filepath.Join(filepath.Dir(r.log), "dnsperf.queries")
	if err := writeQueries(file, kind.queries); err != nil {
		return sample{}, err
	}
	pids, err := r.pids()
	if err != nil {
		return sample{}, err
	}
	begin, err := proc.CPU(pids...)
	if err != nil {
		return sample{}, err
	}
	started := time.Now()
	out, err := exec.Command("dnsperf", "-s", target.Addr().String(), "-p", strconv.Itoa(int(target.Port())), "-d", file,
		"-l", strconv.Itoa(max(int(length.Seconds()), 1)), "-c", "8", "-q", strconv.Itoa(64*socketsInFlight)).CombinedOutput()
	elapsed := time.Since(started)
	if err != nil {
		return sample{}, fmt.Errorf("dnsperf: %w: %s", err, out)
	}
	end, err := proc.CPU(pids...)
	if err != nil {
		return sample{}, err
	}
	done, err := number(dnsperfDone, out)
	if err != nil {
		return sample{}, err
	}
	lost, err := number(dnsperfLost, out)
	if err != nil {
		return sample{}, err
	}
	if done == 0 {
		return sample{}, fmt.Errorf("dnsperf got no answers: %s", out)
	}
	return sample{
		rate:     float64(done) / elapsed.Seconds(),
		perQuery: (end - begin) / time.Duration(done),
		lost:     lost,
	}, nil
}

// number returns the number that pattern finds in the words of dnsperf.
func number(pattern *regexp.Regexp, out []byte) (uint64, error) {
	m := pattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("dnsperf does not say %v: %s", pattern, out)
	}
	return strconv.ParseUint(string(m[1]), 10, 64)
}

// writeQueries writes the input of dnsperf.
func writeQueries(file string, queries []load.Query) error {
	var b strings.Builder
	for _, q := range queries {
		fmt.Fprintf(&b, "%s A\n", q.Name)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
