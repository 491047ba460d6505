package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	dnsapp string // path; dnsappctl lies beside it
	rounds int
	names  int
	length time.Duration
	rates  []int // queries/s over UDP while it reloads

	traffic string // kinds of traffic for the peers, by commas; "": all

	forwardRate int // datagrams/s that are forwarded
	reloads     int
	results     string
}

// part is one thing to measure. It returns its table as Markdown.
type part struct {
	name   string
	pinned bool // the generator to a processor of its own
	run    func(o options, dir string) (string, error)
}

var parts = []part{
	{"peers", true, benchPeers},
	{"million", false, benchMillion},
	{"dispatch", true, benchDispatch},
	{"reload", false, benchReload},
	{"proxy", true, benchProxy},
	{"dpdk", true, benchDPDK},
}

// only are the parts that are measured only if they are named: they need what not
// every machine has.
var only = map[string]bool{"dpdk": true}

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
	chosenParts := flag.String("only", "", "`parts` to measure, by commas: peers, million, dispatch, reload, proxy, and dpdk, which needs a dnsapp of make build-dpdk (default: all but that)")
	flag.StringVar(&o.traffic, "traffic", "", "`kinds` of traffic to measure the peers with, by commas: "+strings.Join(trafficNames(), ", ")+" (default: all)")
	flag.StringVar(&o.dnsapp, "dnsapp", "bin/dnsapp", "the dnsapp `program`, beside dnsappctl")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, at least 5 for a table worth keeping")
	flag.IntVar(&o.names, "names", 10_000, "names in the zone")
	flag.DurationVar(&o.length, "for", 3*time.Second, "how long each measurement takes")
	rates := flag.String("rates", "30000,75000", "`queries/s` over UDP while it reloads, by commas")
	flag.IntVar(&o.forwardRate, "forward-rate", 60_000, "datagrams/s that are forwarded")
	flag.IntVar(&o.reloads, "reloads", 100, "reloads to measure")
	flag.StringVar(&o.results, "results", "bench/results", "`folder` of the tables; empty: print only")
	flag.Parse()
	for text := range strings.SplitSeq(*rates, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return fmt.Errorf("-rates: %q is no rate", text)
		}
		o.rates = append(o.rates, rate)
	}
	if o.rounds < 1 || o.names < 1 || o.forwardRate < 1 || o.reloads < 1 {
		return errors.New("rounds, names, rates and reloads must be positive")
	}
	chosen, err := choose(*chosenParts)
	if err != nil {
		return err
	}
	if o.dnsapp, err = filepath.Abs(o.dnsapp); err != nil {
		return err
	}
	if _, err := os.Stat(o.dnsapp); err != nil {
		return fmt.Errorf("%w (make build)", err)
	}
	for _, p := range chosen {
		if err := measurePart(p, o); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// choose returns the parts in a list of names; for none, all that every machine can
// measure.
func choose(list string) ([]part, error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return only[p.name] }), nil
	}
	var chosen []part
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no part %q, but peers, million, dispatch, reload, proxy and dpdk", name)
		}
		chosen = append(chosen, parts[at])
	}
	return chosen, nil
}

// measurePart measures one part in a folder of its own, and keeps its table.
func measurePart(p part, o options) error {
	if err := pin(p.pinned); err != nil {
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
	when := time.Now()
	text, err := p.run(o, dir)
	if err != nil {
		return err
	}
	fmt.Print(text)
	if o.results == "" {
		return nil
	}
	file := filepath.Join(o.results, when.Format("2006-01-02-1504")+"-"+p.name+".md")
	if err := os.MkdirAll(o.results, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "written to", file)
	return nil
}

// pin pins every thread of this process, and so those it starts, to the
// generator's processor, or lets them run on any.
func pin(pinned bool) error {
	var cpu unix.CPUSet
	if pinned {
		cpu.Set(generatorCPU)
	} else {
		cpu.Fill()
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &cpu); err != nil {
			return fmt.Errorf("pinning the generator: %w", err)
		}
	}
	return nil
}
