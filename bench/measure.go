package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// workload returns a zone with this many names, and queries for all of them in a
// scattered order, a tenth of them changed to names that do not exist.
func workload(names int) (zone string, queries []load.Query) {
	var b strings.Builder
	b.WriteString("$ORIGIN example.com.\n$TTL 3600\n@ SOA ns1 admin 1 3600 600 86400 300\n@ NS ns1\n@ NS ns2\nns1 A 192.0.2.1\nns2 A 192.0.2.2\n")
	queries = make([]load.Query, names)
	for i := range names {
		fmt.Fprintf(&b, "host%d A 198.51.100.%d\n", i, i%256)
		at := i * 7919 % names // a bijection unless names is a multiple of this prime
		queries[at] = load.Query{Name: fmt.Sprintf("host%d.example.com", i), Type: 1, Rcode: load.NoError}
		if i%10 == 9 {
			queries[at] = load.Query{Name: fmt.Sprintf("none%d.example.com", i), Type: 1, Rcode: load.NXDomain}
		}
	}
	return b.String(), queries
}

// sample is one measurement.
type sample struct {
	rate     float64       // answers/s
	perQuery time.Duration // CPU
	p50, p99 time.Duration // at a fixed rate
	lost     uint64
}

// socketsInFlight batches of 64 are on their way at any time: enough that a
// server finds full batches, few enough that they fit the kernel's default
// receive buffer (some 256 datagrams), which Knot leaves as it is.
const socketsInFlight = 3

const warmup = 500 * time.Millisecond

// measure runs one server through all rates.
func measure(p peer, dir string, o options, queries []load.Query, t *table) (err error) {
	r, err := start(p, dir)
	if err != nil {
		return err
	}
	defer func() {
		if e := r.stop(); err == nil {
			err = e
		}
	}()
	for _, rate := range o.rates {
		s, err := r.sample(rate, o.length, queries)
		if err != nil {
			return err
		}
		t.add(p.name, rate, s)
	}
	pids, err := r.pids()
	if err != nil {
		return err
	}
	var memory int64
	for _, pid := range pids {
		n, err := proc.PSS(pid)
		if err != nil {
			return err
		}
		memory += n
	}
	t.memory[p.name] = append(t.memory[p.name], float64(memory)/(1<<20))
	return nil
}

// sample measures at one rate; 0 is as many as the server answers.
func (r *running) sample(rate int, length time.Duration, queries []load.Query) (sample, error) {
	pids, err := r.pids()
	if err != nil {
		return sample{}, err
	}
	var begin, end time.Duration
	var failed error
	account := func(d *time.Duration) func() {
		return func() {
			if *d, err = proc.CPU(pids...); err != nil {
				failed = err
			}
		}
	}
	if rate == 0 {
		s, err := load.Saturation{
			Target: target, Sockets: socketsInFlight, Queries: queries, Warmup: warmup, Length: length,
			Begin: account(&begin), End: account(&end),
		}.Run()
		switch {
		case err != nil:
			return sample{}, err
		case failed != nil:
			return sample{}, failed
		case s.Wrong != 0 || s.Answered == 0:
			return sample{}, fmt.Errorf("%d of %d answers were wrong", s.Wrong, s.Answered)
		}
		return sample{
			rate:     float64(s.Answered) / s.Elapsed.Seconds(),
			perQuery: (end - begin) / time.Duration(s.Answered),
			lost:     s.Lost,
		}, nil
	}
	protocol, err := load.NewDNS(queries)
	if err != nil {
		return sample{}, err
	}
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{target}, Flows: 64, Rate: rate, Protocol: protocol})
	if err != nil {
		return sample{}, err
	}
	defer g.Close()
	<-time.After(warmup)
	account(&begin)()
	before := g.Report()
	<-time.After(length)
	account(&end)()
	after := g.Report()
	if failed != nil {
		return sample{}, failed
	}
	final := g.Stop(time.Second)
	if final.Malformed+final.Stray != 0 {
		return sample{}, fmt.Errorf("wrong answers: %w", final.Exact())
	}
	n := after.Answered - before.Answered
	if n == 0 {
		return sample{}, fmt.Errorf("no answers: %v", final)
	}
	return sample{
		rate:     float64(n) / (after.Elapsed - before.Elapsed).Seconds(),
		perQuery: (end - begin) / time.Duration(n),
		p50:      final.Latency.Quantile(0.5),
		p99:      final.Latency.Quantile(0.99),
		lost:     final.Lost(),
	}, nil
}
