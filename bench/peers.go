package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dnsapp/dnsapp/test/load"
)

// traffic is what all peers are asked.
type traffic struct {
	name    string
	title   string
	rate    int // queries/s; 0: as many as the server answers
	flows   int // load.Saturation.Flows
	sockets int // batches that are on their way; 0: socketsInFlight
	dnsperf bool
	queries []load.Query
}

// traffics lists the kinds of traffic. The first is what the others vary: like
// the resolvers of the world, hardly two queries in a row come from one client.
func traffics(names int, queries []load.Query) []traffic {
	ask := func(rcode int, format string) []load.Query {
		list := make([]load.Query, names)
		for i := range list {
			list[i] = load.Query{Name: fmt.Sprintf(format, i*7919%names), Type: 1, Rcode: rcode}
		}
		return list
	}
	edns := slices.Clone(queries)
	for i := range edns {
		edns[i].EDNS = 1232
	}
	const most = "as many as it answers"
	return []traffic{
		{name: "most", title: most + ", each from another client", flows: load.MaxFlows, queries: queries},
		{name: "edns", title: most + ", each from another client, with EDNS", flows: load.MaxFlows, queries: edns},
		{name: "ports", title: fmt.Sprintf("%s, all from %d ports (a balancer, a forwarder)", most, socketsInFlight), queries: queries},
		{name: "ports-edns", title: fmt.Sprintf("%s, all from %d ports, with EDNS", most, socketsInFlight), queries: edns},
		{name: "dnsperf", title: most + ", asked by dnsperf from 8 ports", dnsperf: true, queries: queries},
		{name: "20000", title: "20000 queries/s from 64 ports", rate: 20_000, queries: queries},
		{name: "5000", title: "5000 queries/s from 64 ports", rate: 5_000, queries: queries},
		{name: "positive", title: most + ": names that exist", flows: load.MaxFlows, queries: ask(load.NoError, "host%d.example.com")},
		{name: "nxdomain", title: most + ": names that do not exist", flows: load.MaxFlows, queries: ask(load.NXDomain, "none%d.example.com")},
		{name: "referral", title: most + ": referrals", flows: load.MaxFlows, queries: ask(load.NoError, "host%d.sub.example.com")},
		{name: "wildcard", title: most + ": wildcards", flows: load.MaxFlows, queries: ask(load.NoError, "host%d.wild.example.com")},
	}
}

// trafficNames returns the names of the kinds.
func trafficNames() []string {
	var names []string
	for _, k := range traffics(1, nil) {
		names = append(names, k.name)
	}
	return names
}

// chosenTraffic returns the kinds in a list of names, all of them for none.
func chosenTraffic(list string, all []traffic) ([]traffic, error) {
	if list == "" {
		return all, nil
	}
	var chosen []traffic
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(all, func(k traffic) bool { return k.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no traffic %q, but %s", name, strings.Join(trafficNames(), ", "))
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// workload returns a zone with this many names, and queries for all of them in a
// scattered order, a tenth of them changed to names that do not exist.
func workload(names int) (zone string, queries []load.Query) {
	var b strings.Builder
	b.WriteString("$ORIGIN example.com.\n$TTL 3600\n@ SOA ns1 admin 1 3600 600 86400 300\n@ NS ns1\n@ NS ns2\nns1 A 192.0.2.1\nns2 A 192.0.2.2\n" +
		"sub NS ns1.sub\nns1.sub A 192.0.2.3\n*.wild A 192.0.2.4\n")
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

// benchPeers measures what a query costs dnsapp and others.
func benchPeers(o options, dir string) (string, error) {
	zone, queries := workload(o.names)
	kinds, err := chosenTraffic(o.traffic, traffics(o.names, queries))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "example.com.zone"), []byte(zone), 0o644); err != nil {
		return "", err
	}
	if _, err := exec.LookPath("dnsperf"); err != nil {
		fmt.Fprintln(os.Stderr, "bench: without dnsperf (bench/deps.sh dnsperf installs it)")
		kinds = slices.DeleteFunc(kinds, func(k traffic) bool { return k.dnsperf })
	}
	t := newTable(o, kinds)
	peers := []peer{knot(), nsd(), dnsapp(o.dnsapp)}
	for _, p := range peers {
		if _, err := exec.LookPath(p.program); err != nil {
			return "", fmt.Errorf("%w (bench/deps.sh knot nsd installs it)", err)
		}
		t.versions[p.name] = p.version()
	}
	for round := range o.rounds {
		for i := range peers {
			p := peers[(i+round)%len(peers)]
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, p.name)
			if err := measure(p, dir, o, kinds, t); err != nil {
				return "", fmt.Errorf("measuring %s: %w", p.name, err)
			}
		}
	}
	return t.String(), nil
}

// measure runs one server through all kinds of traffic.
func measure(p peer, dir string, o options, kinds []traffic, t *table) (err error) {
	r, err := start(p, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	for _, k := range kinds {
		sampled := r.sample
		if k.dnsperf {
			sampled = r.dnsperf
		}
		s, err := sampled(k, o.length)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		t.add(p.name, k.name, s)
	}
	memory, err := r.pss()
	if err != nil {
		return err
	}
	t.memory[p.name] = append(t.memory[p.name], memory)
	return nil
}
