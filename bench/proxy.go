package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// behindTarget is where the server behind the proxies listens, on the
// generator's processor.
var behindTarget = netip.AddrPortFrom(target.Addr(), target.Port()+100)

// behind returns the server behind the proxies: one that costs little. It goes
// before the generator, which spins on the same processor.
func behind(program string) peer {
	p := dnsapp(program)
	p.name, p.behind = "behind", true
	args := p.args
	p.program, p.args = "nice", func(config string) []string {
		return append([]string{"-n", "-15", program}, args(config)...)
	}
	config := p.config
	p.config = func(dir string) string {
		return strings.NewReplacer(target.String(), behindTarget.String(), dir+"/dnsapp", dir+"/behind").Replace(config(dir))
	}
	return p
}

// longFlows is how many flows the measurement of long ones has.
const longFlows = 8

// proxyCase is one kind of load on the proxies.
type proxyCase struct {
	name      string
	responses int // after which a flow ends; 0: it goes on
	sockets   int // valid iff rate is 0, as flows
	flows     int // of a socket; 0: one
	rate      int // round trips/s; 0: as many as there are
}

var proxyCases = []proxyCase{
	{fmt.Sprintf("%d long flows", longFlows), 0, longFlows, 0, 0},
	{"64 long flows, 5,000/s", 0, 0, 0, 5000},
	{"each round trip a flow of its own", 1, socketsInFlight, load.MaxFlows, 0},
}

// dnsappProxy returns dnsapp as a proxy whose flows end after so many responses.
func dnsappProxy(program string, responses int) peer {
	p := dnsapp(program)
	p.name = "dnsapp"
	p.config = func(dir string) string {
		return fmt.Sprintf(`control: %[1]s/dnsapp/control.sock
state_dir: %[1]s/dnsapp
admin: off
lanes: 1
backends:
  - {name: behind, servers: [{name: one, address: "%[3]v"}], health: {max_fails: 0}}
listeners:
  - name: proxy
    address: ["%[2]v"]
    service: udp-proxy
    backend: behind
    udp_proxy: {responses: %[4]d, flows: 15000, client_flows: 15000}
`, dir, target, behindTarget, responses)
	}
	return p
}

// nginx returns nginx's stream module in the same place.
func nginx(responses int) peer {
	return peer{
		name:    "nginx",
		program: "nginx",
		config: func(dir string) string {
			expect := ""
			if responses > 0 {
				expect = fmt.Sprintf("proxy_responses %d;", responses)
			}
			return fmt.Sprintf(`load_module modules/ngx_stream_module.so;
daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 20000;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log crit;
events { worker_connections 19000; }
stream {
    upstream behind { server %[3]v; }
    server {
        listen %[2]v udp rcvbuf=16m sndbuf=4m;
        proxy_pass behind;
        proxy_timeout 10s;
        %[4]s
    }
}
`, dir, target, behindTarget, expect)
		},
		args:    func(config string) []string { return []string{"-c", config} },
		version: func() string { return firstLine("nginx", "-v") },
	}
}

// benchProxy measures round trips through both proxies, one at a time.
func benchProxy(o options, dir string) (text string, err error) {
	zone, queries := workload(o.names)
	if err := os.WriteFile(filepath.Join(dir, "example.com.zone"), []byte(zone), 0o644); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "behind"), 0o755); err != nil {
		return "", err
	}
	when, before := time.Now(), loadAverage()
	server, err := start(behind(o.dnsapp), dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	got, memory := map[string][]sample{}, map[string][]float64{}
	for round := range o.rounds {
		for _, c := range proxyCases {
			peers := []peer{nginx(c.responses), dnsappProxy(o.dnsapp, c.responses)}
			for i := range peers {
				p := peers[(i+round)%len(peers)]
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round+1, o.rounds, p.name, c.name)
				s, err := c.measure(p, dir, o.length, queries)
				if err != nil {
					return "", fmt.Errorf("measuring %s, %s: %w", p.name, c.name, err)
				}
				got[p.name+c.name] = append(got[p.name+c.name], s)
			}
		}
		for _, p := range []peer{nginx(0), dnsappProxy(o.dnsapp, 0)} {
			perFlow, err := measureMemory(p, dir, queries)
			if err != nil {
				return "", fmt.Errorf("measuring the memory of %s: %w", p.name, err)
			}
			memory[p.name] = append(memory[p.name], perFlow)
		}
	}
	var b strings.Builder
	heading(&b, "The UDP proxy", when, before)
	fmt.Fprintf(&b, "CPU of the proxy for a round trip over loopback: proxy on processor %d, generator and the server behind it on %d;\n", serverCPU, generatorCPU)
	fmt.Fprintf(&b, "medians of %d interleaved rounds of %v (lowest to highest in parentheses).\n\n", o.rounds, o.length)
	fmt.Fprintf(&b, "* nginx: %s\n* dnsapp: %s\n", nginx(0).version(), dnsappProxy(o.dnsapp, 0).version())
	for _, c := range proxyCases {
		fmt.Fprintf(&b, "\n## %s\n\n| proxy | round trips/s | CPU us | of nginx's | lost |\n|---|---|---|---|---|\n", c.name)
		pick := func(name string, f func(sample) float64) []float64 {
			var list []float64
			for _, s := range got[name+c.name] {
				list = append(list, f(s))
			}
			return list
		}
		base, _, _ := spread(pick("nginx", perQuery))
		for _, name := range []string{"nginx", "dnsapp"} {
			cost, low, high := spread(pick(name, perQuery))
			rate, _, _ := spread(pick(name, func(s sample) float64 { return s.rate }))
			lost := 0.0
			for _, n := range pick(name, func(s sample) float64 { return float64(s.lost) }) {
				lost += n
			}
			fmt.Fprintf(&b, "| %s | %.0f | %.2f (%.2f to %.2f) | %.2f | %.0f |\n", name, rate, cost, low, high, cost/base, lost)
		}
	}
	b.WriteString(memoryTable(memory))
	return b.String(), nil
}

// measure runs p under one load.
func (c proxyCase) measure(p peer, dir string, length time.Duration, queries []load.Query) (s sample, err error) {
	r, err := start(p, dir)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	return r.sample(traffic{rate: c.rate, sockets: c.sockets, flows: c.flows, queries: queries}, length)
}
