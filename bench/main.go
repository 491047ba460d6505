package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/netns"
)

// The processors of the server and of the generator.
const (
	serverCPU    = 0
	generatorCPU = 1
)

type options struct {
	dnsapp  string
	rounds  int
	names   int
	length  time.Duration
	rates   []int // queries/s; 0: as many as it answers
	results string
}

func main() {
	code, inside, err := netns.Enter()
	switch {
	case err != nil:
	case inside:
		err = run()
	default:
		os.Exit(code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	rates := flag.String("rates", "0,20000,5000", "queries/s to measure at, by commas; 0: as many as the server answers")
	flag.StringVar(&o.dnsapp, "dnsapp", "bin/dnsapp", "the dnsapp `program`")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, at least 5 for a table worth keeping")
	flag.IntVar(&o.names, "names", 10_000, "names in the zone")
	flag.DurationVar(&o.length, "for", 3*time.Second, "how long each measurement takes")
	flag.StringVar(&o.results, "results", "bench/results", "`folder` of the tables; empty: print only")
	flag.Parse()
	for r := range strings.SplitSeq(*rates, ",") {
		n, err := strconv.Atoi(r)
		if err != nil || n < 0 {
			return fmt.Errorf("reading the rates: %q is no number of queries/s", r)
		}
		o.rates = append(o.rates, n)
	}
	if o.rounds < 1 || o.names < 1 {
		return errors.New("rounds and names must be positive")
	}
	program, err := filepath.Abs(o.dnsapp)
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%w (make build)", err)
	}

	var cpu unix.CPUSet
	cpu.Set(generatorCPU)
	if err := pinAll(&cpu); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dnsapp-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // workers run as another user
		return err
	}
	zone, queries := workload(o.names)
	if err := os.WriteFile(filepath.Join(dir, "example.com.zone"), []byte(zone), 0o644); err != nil {
		return err
	}
	t := newTable(o)
	peers := []peer{knot(), nsd(), dnsapp(program)}
	for _, p := range peers {
		if _, err := exec.LookPath(p.program); err != nil {
			return fmt.Errorf("%w (bench/deps.sh knot nsd installs it)", err)
		}
		t.versions[p.name] = p.version()
	}
	for round := range o.rounds {
		for i := range peers {
			p := peers[(i+round)%len(peers)]
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, p.name)
			if err := measure(p, dir, o, queries, t); err != nil {
				return fmt.Errorf("measuring %s: %w", p.name, err)
			}
		}
	}
	text := t.String()
	fmt.Print(text)
	if o.results == "" {
		return nil
	}
	file := filepath.Join(o.results, t.when.Format("2006-01-02-1504")+".md")
	if err := os.MkdirAll(o.results, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "written to", file)
	return nil
}

// pinAll pins every thread of this process, and so those it starts, to cpu.
func pinAll(cpu *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, cpu); err != nil {
			return fmt.Errorf("pinning to processor %d: %w", generatorCPU, err)
		}
	}
	return nil
}
