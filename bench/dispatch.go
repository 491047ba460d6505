package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// The listeners that are compared: the same service, whose flows one records.
var (
	withoutFlows = target
	withFlows    = netip.AddrPortFrom(target.Addr(), target.Port()+1)
)

// dispatching returns dnsapp with both listeners, and one lane.
func dispatching(program string) peer {
	p := dnsapp(program)
	config := p.config
	p.config = func(dir string) string {
		return config(dir) + fmt.Sprintf("  - {name: flows, address: [\"%v\"], service: dns, affinity: flow}\n", withFlows)
	}
	return p
}

// knownFlows is how many flows ask in turn where flows are known.
const knownFlows = 8000

// clients are who asks: how many flows each socket of the generator has.
type clients struct {
	name  string
	flows int
}

var crowds = []clients{
	{fmt.Sprintf("%d flows", knownFlows), (knownFlows + socketsInFlight - 1) / socketsInFlight},
	// 12 million: at these rates none asks twice within a minute.
	{"each query from another port", load.MaxFlows},
}

// pair is one comparison: CPU per datagram without and with what is measured.
type pair struct {
	without, with time.Duration
	rate          float64 // datagrams/s, with
}

func (p pair) ratio() float64 { return float64(p.with) / float64(p.without) }

// dispatchBench is the state of the part.
type dispatchBench struct {
	o       options
	dir     string
	queries []load.Query
}

// turns is how often both sides of a comparison are measured in one round. Each
// takes its part of the time of one measurement: what is next to each other in
// time is best compared.
const turns = 6

// benchDispatch measures affinity flow against none, and a forwarded datagram
// against one that is served where it is read.
func benchDispatch(o options, dir string) (string, error) {
	b := dispatchBench{o: o, dir: dir}
	var zone string
	zone, b.queries = workload(o.names)
	if err := os.WriteFile(filepath.Join(dir, "example.com.zone"), []byte(zone), 0o644); err != nil {
		return "", err
	}
	when, busyness := time.Now(), loadAverage()
	recorded := map[string][]pair{}
	var forwarded []pair
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d: dispatch\n", round+1, o.rounds)
		for i := range crowds {
			c := crowds[(i+round)%len(crowds)]
			p, err := b.affinities(c, round)
			if err != nil {
				return "", err
			}
			recorded[c.name] = append(recorded[c.name], p...)
		}
		p, err := b.forwarding()
		if err != nil {
			return "", err
		}
		forwarded = append(forwarded, p)
	}

	var t strings.Builder
	heading(&t, "Dispatch", when, busyness)
	fmt.Fprintf(&t, "DNS over UDP and IPv4 loopback, %d names; server (one worker, one lane a generation) on processor %d, generator on %d;\n", o.names, serverCPU, generatorCPU)
	fmt.Fprintf(&t, "%d interleaved rounds of %v a measurement. Medians; of ratios of neighbouring measurements also the lowest and the highest.\n", o.rounds, o.length)
	fmt.Fprintf(&t, "dnsapp: %s.\n", dnsapp(o.dnsapp).version())
	fmt.Fprintf(&t, "\n## affinity: flow over none, outside windows\n\nAs many datagrams as the server answers; %d turns of %v a round.\n\n", turns, o.length/turns)
	t.WriteString("| clients | none, CPU us | flow, CPU us | ratio | datagrams/s with flow |\n|---|---|---|---|---|\n")
	for _, c := range crowds {
		comparison(&t, c.name, recorded[c.name])
	}
	fmt.Fprintf(&t, "\n## A datagram forwarded to the draining generation over one that is served where it is read\n\n"+
		"%d datagrams/s, of which a tick of 1 ms brings some %d at once; the same flows before and after a reload.\n\n", o.forwardRate, o.forwardRate/1000)
	t.WriteString("| clients | local, CPU us | forwarded, CPU us | ratio | datagrams/s forwarded |\n|---|---|---|---|---|\n")
	comparison(&t, fmt.Sprintf("%d flows", knownFlows), forwarded)
	return t.String(), nil
}

// comparison writes one row.
func comparison(t *strings.Builder, name string, pairs []pair) {
	var without, with, ratios, rates []float64
	for _, p := range pairs {
		without, with = append(without, float64(p.without)/1e3), append(with, float64(p.with)/1e3)
		ratios, rates = append(ratios, p.ratio()), append(rates, p.rate)
	}
	a, _, _ := spread(without)
	b, _, _ := spread(with)
	r, low, high := spread(ratios)
	rate, _, _ := spread(rates)
	fmt.Fprintf(t, "| %s | %.2f | %.2f | %.3f (%.3f to %.3f) | %.0f |\n", name, a, b, r, low, high, rate)
}

// affinities compares the two listeners of one server.
func (b dispatchBench) affinities(c clients, round int) (pairs []pair, err error) {
	r, err := start(dispatching(b.o.dnsapp), b.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	for turn := range turns {
		var p pair
		for i := range 2 {
			if (i+turn+round)%2 == 0 {
				p.without, _, err = b.saturate(r, withoutFlows, c.flows)
			} else {
				p.with, p.rate, err = b.saturate(r, withFlows, c.flows)
			}
			if err != nil {
				return nil, err
			}
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// forwarding compares, at a fixed rate, flows that are served where they are read
// with the same flows after a reload, when they are forwarded.
func (b dispatchBench) forwarding() (p pair, err error) {
	r, err := start(dispatching(b.o.dnsapp), b.dir)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	c, err := control.Dial(filepath.Join(b.dir, "dnsapp", "control.sock"))
	if err != nil {
		return p, err
	}
	defer c.Close()
	protocol, err := load.NewDNS(b.queries)
	if err != nil {
		return p, err
	}
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{withFlows}, Flows: knownFlows, Rate: b.o.forwardRate, Protocol: protocol})
	if err != nil {
		return p, err
	}
	defer g.Close()
	<-time.After(warmup)
	var forwarded bool
	if p.without, _, forwarded, err = b.steady(r, g, c); err != nil {
		return p, err
	}
	if forwarded {
		return p, errors.New("datagrams were forwarded though nothing drains")
	}
	if _, err := c.Reload(context.Background(), control.ReloadRequest{Wait: control.WaitCommit}, func(control.Event) {}); err != nil {
		return p, err
	}
	<-time.After(warmup)
	if p.with, p.rate, forwarded, err = b.steady(r, g, c); err != nil {
		return p, err
	}
	if !forwarded {
		return p, errors.New("datagrams were not forwarded")
	}
	if final := g.Stop(time.Second); final.Exact() != nil {
		return p, fmt.Errorf("under forwarding: %w", final.Exact())
	}
	return p, nil
}

// steady measures the CPU time of the server for each answer to g, and whether
// it forwards all datagrams; that it forwards a part is an error.
func (b dispatchBench) steady(r *running, g *load.UDP, c *control.Client) (perQuery time.Duration, rate float64, forwarded bool, err error) {
	type reading struct {
		cpu    time.Duration
		report load.Report
		ledger control.Ledger
	}
	var at [2]reading
	for i := range at {
		if i > 0 {
			<-time.After(b.o.length)
		}
		pids, err := r.pids()
		if err != nil {
			return 0, 0, false, err
		}
		st, err := c.Status(context.Background())
		if err != nil {
			return 0, 0, false, err
		}
		at[i].ledger, at[i].report = st.Ledger, g.Report()
		if at[i].cpu, err = proc.CPU(pids...); err != nil {
			return 0, 0, false, err
		}
	}
	l := at[1].ledger.Since(at[0].ledger)
	n := at[1].report.Answered - at[0].report.Answered
	if n == 0 || l.Forwarded != 0 && l.Forwarded != l.Received {
		return 0, 0, false, fmt.Errorf("%d answers; ledger %+v", n, l)
	}
	elapsed := at[1].report.Elapsed - at[0].report.Elapsed
	return (at[1].cpu - at[0].cpu) / time.Duration(n), float64(n) / elapsed.Seconds(), l.Forwarded != 0, nil
}

// saturate asks at and returns the CPU time of the server for each answer.
func (b dispatchBench) saturate(r *running, at netip.AddrPort, flows int) (perQuery time.Duration, rate float64, err error) {
	var cpu [2]time.Duration
	var failed error
	bound := func(i int) func() {
		return func() {
			pids, err := r.pids()
			if err == nil {
				cpu[i], err = proc.CPU(pids...)
			}
			failed = errors.Join(failed, err)
		}
	}
	s, err := load.Saturation{
		Target: at, Sockets: socketsInFlight, Queries: b.queries, Flows: flows,
		Warmup: warmup, Length: b.o.length / turns, Begin: bound(0), End: bound(1),
	}.Run()
	switch {
	case err != nil:
		return 0, 0, err
	case failed != nil:
		return 0, 0, failed
	case s.Answered == 0 || s.Wrong != 0 || s.Lost*100 > s.Answered:
		return 0, 0, fmt.Errorf("at %v, %d flows a socket: of %d answers %d were wrong, and %d were lost", at, flows, s.Answered, s.Wrong, s.Lost)
	}
	return (cpu[1] - cpu[0]) / time.Duration(s.Answered), float64(s.Answered) / s.Elapsed.Seconds(), nil
}
