package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

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

// sample measures the server under one kind of traffic.
func (r *running) sample(kind traffic, length time.Duration) (sample, error) {
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
	if kind.rate == 0 {
		s, err := load.Saturation{
			Target: target, Sockets: cmp.Or(kind.sockets, socketsInFlight), Flows: kind.flows, Queries: kind.queries, Warmup: warmup, Length: length,
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
	protocol, err := load.NewDNS(kind.queries)
	if err != nil {
		return sample{}, err
	}
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{target}, Flows: 64, Rate: kind.rate, Protocol: protocol})
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
