package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// A zone of a million records, and how it is asked for while it is reloaded.
const (
	million       = 1_000_000
	millionAsked  = 100_000 // names, spread over the zone
	millionRate   = 20_000  // queries/s
	millionSettle = time.Second
	serialTimeout = 30 * time.Second
	pssEvery      = 50 * time.Millisecond
)

// scaled is one measurement of a server with the large zone.
type scaled struct {
	load    time.Duration // from its start to its first answer
	cpu     time.Duration // per query
	pss     float64       // MiB
	visible time.Duration // from the order to reload to the first answer of the new version
	peak    float64       // MiB, meanwhile
	lost    uint64
}

// benchMillion measures what a zone of a million records costs dnsapp and others.
func benchMillion(o options, dir string) (string, error) {
	when, before := time.Now(), loadAverage()
	queries, err := millionZones(dir)
	if err != nil {
		return "", err
	}
	peers := []peer{knot(), nsd(), dnsapp(o.dnsapp)}
	results := make([][]scaled, len(peers))
	for i := range peers {
		peers[i].unpinned = true
		if _, err := exec.LookPath(peers[i].program); err != nil {
			return "", fmt.Errorf("%w (bench/deps.sh installs it)", err)
		}
	}
	for round := range o.rounds {
		for i := range peers {
			at := (i + round) % len(peers)
			fmt.Fprintf(os.Stderr, "round %d of %d: %s, a million records\n", round+1, o.rounds, peers[at].name)
			s, err := measureMillion(peers[at], dir, o, queries)
			if err != nil {
				return "", fmt.Errorf("measuring %s: %w", peers[at].name, err)
			}
			results[at] = append(results[at], s)
		}
	}
	return millionTable(o, peers, results, when, before), nil
}

// millionTable returns the results as Markdown, ratios to those of the first.
func millionTable(o options, peers []peer, results [][]scaled, when time.Time, before float64) string {
	var b strings.Builder
	heading(&b, "A zone of a million records", when, before)
	fmt.Fprintf(&b, `Servers have one thread of service. They load, and reload, on all processors; for CPU per query the server has one and the generator another,
and it is asked as much as it answers. The reload is under %d queries/s for the zone: "visible" is from the order (SIGHUP, dnsappctl zone
reload) to the first answer of the new version. PSS is that of all processes, its peak that of the reload. Medians of %d interleaved rounds
(lowest to highest); ratios are to Knot's, that of the peak is to the server's own PSS before.

`, millionRate, o.rounds)
	for _, p := range peers {
		fmt.Fprintf(&b, "* %s: %s\n", p.name, p.version())
	}
	b.WriteString("\n| server | load s | ratio | PSS MiB | ratio | CPU us per query | ratio | reload visible s | ratio | peak MiB | ratio | lost |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i, p := range peers {
		fmt.Fprintf(&b, "| %s |", p.name)
		for _, f := range []func(scaled) float64{
			func(s scaled) float64 { return s.load.Seconds() },
			func(s scaled) float64 { return s.pss },
			func(s scaled) float64 { return float64(s.cpu) / 1e3 },
			func(s scaled) float64 { return s.visible.Seconds() },
		} {
			base, _, _ := spread(each(results[0], f))
			mid, low, high := spread(each(results[i], f))
			fmt.Fprintf(&b, " %.2f (%.2f to %.2f) | %.2f |", mid, low, high, mid/base)
		}
		peak, _, _ := spread(each(results[i], func(s scaled) float64 { return s.peak }))
		ratio, _, _ := spread(each(results[i], func(s scaled) float64 { return s.peak / s.pss }))
		lost := uint64(0)
		for _, s := range results[i] {
			lost += s.lost
		}
		fmt.Fprintf(&b, " %.0f | %.2f | %d |\n", peak, ratio, lost)
	}
	return b.String()
}

func each(list []scaled, f func(scaled) float64) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i] = f(list[i])
	}
	return out
}

// versionFile returns the file of a version of the zone.
func versionFile(dir string, serial uint32) string {
	return filepath.Join(dir, fmt.Sprintf("million-%d.zone", serial))
}

// millionZones writes two versions of the zone, serials 1 and 2, and returns
// queries for names all over it.
func millionZones(dir string) ([]load.Query, error) {
	const head = "$ORIGIN example.com.\n$TTL 3600\n@ SOA ns1 admin %d 3600 600 86400 300\n@ NS ns1\n@ NS ns2\nns1 A 192.0.2.1\nns2 A 192.0.2.2\n"
	const hosts = million - 5
	for serial := uint32(1); serial <= 2; serial++ {
		f, err := os.Create(versionFile(dir, serial))
		if err != nil {
			return nil, err
		}
		w := bufio.NewWriter(f)
		fmt.Fprintf(w, head, serial)
		for i := range hosts {
			fmt.Fprintf(w, "host%d A 198.51.%d.%d\n", i, i>>8&255, i&255)
		}
		if err := errors.Join(w.Flush(), f.Close()); err != nil {
			return nil, err
		}
		// Servers tell versions by the time of the file, some in whole seconds.
		at := time.Now().Add(time.Duration(serial)*time.Minute - time.Hour)
		if err := os.Chtimes(f.Name(), at, at); err != nil {
			return nil, err
		}
	}
	queries := make([]load.Query, millionAsked)
	for i := range queries {
		n := i * 79_190 % hosts
		queries[i] = load.Query{Name: fmt.Sprintf("host%d.example.com", n), Type: dns.TypeA, Rcode: load.NoError}
		if i%10 == 9 {
			queries[i] = load.Query{Name: fmt.Sprintf("none%d.example.com", n), Type: dns.TypeA, Rcode: load.NXDomain}
		}
	}
	return queries, nil
}

// serveVersion makes a version of the zone the one that servers find.
func serveVersion(dir string, serial uint32) error {
	link := filepath.Join(dir, "next.zone")
	if err := os.Link(versionFile(dir, serial), link); err != nil {
		return err
	}
	return os.Rename(link, filepath.Join(dir, "example.com.zone"))
}

// measureMillion runs one server through everything.
func measureMillion(p peer, dir string, o options, queries []load.Query) (s scaled, err error) {
	if err := serveVersion(dir, 1); err != nil {
		return s, err
	}
	begin := time.Now()
	r, err := launch(p, dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := awaitSerial(1); err != nil {
		text, _ := os.ReadFile(r.log)
		return s, fmt.Errorf("%w\n%s", err, text)
	}
	s.load = time.Since(begin)

	if err := errors.Join(r.pin(strconv.Itoa(serverCPU)), pin(true)); err != nil {
		return s, err
	}
	full, err := r.sample(traffic{flows: load.MaxFlows, queries: queries}, o.length)
	if err = errors.Join(err, pin(false), r.pin(allCPUs())); err != nil {
		return s, err
	}
	s.cpu = full.perQuery
	if s.pss, err = r.pss(); err != nil {
		return s, err
	}
	return s, r.reloadMillion(p, dir, queries, &s)
}

// reloadMillion replaces the zone by its second version under load.
func (r *running) reloadMillion(p peer, dir string, queries []load.Query, s *scaled) error {
	protocol, err := load.NewDNS(queries)
	if err != nil {
		return err
	}
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{target}, Flows: 64, Rate: millionRate, Protocol: protocol})
	if err != nil {
		return err
	}
	defer g.Close()
	<-time.After(millionSettle)
	if err := serveVersion(dir, 2); err != nil {
		return err
	}
	stop, peak := make(chan struct{}), make(chan float64)
	go func() { peak <- r.peakPSS(stop) }()
	begin := time.Now()
	done, err := r.orderReload(p, dir)
	if err == nil {
		err = awaitSerial(2)
		s.visible = time.Since(begin)
		err = errors.Join(err, done())
		<-time.After(millionSettle) // until what was replaced is given back
	}
	close(stop)
	s.peak = <-peak
	report := g.Stop(millionSettle)
	if err == nil && report.Malformed+report.Stray != 0 {
		err = fmt.Errorf("wrong answers: %w", report.Exact())
	}
	s.lost = report.Lost()
	return err
}

// orderReload tells the server to look at its zones. done waits until the order
// is carried out, where the server says so.
func (r *running) orderReload(p peer, dir string) (done func() error, err error) {
	if p.name != "dnsapp" {
		return func() error { return nil }, r.cmd.Process.Signal(syscall.SIGHUP)
	}
	c := exec.Command(p.program+"ctl", "--control", filepath.Join(dir, "dnsapp", "control.sock"), "zone", "reload")
	return c.Wait, c.Start()
}

// awaitSerial asks until the zone has a serial.
func awaitSerial(serial uint32) error {
	c := dns.Client{Timeout: 20 * time.Millisecond}
	query := new(dns.Msg).SetQuestion("example.com.", dns.TypeSOA)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(serialTimeout); time.Now().Before(deadline); <-tick.C {
		answer, _, err := c.Exchange(query, target.String())
		if err != nil || len(answer.Answer) != 1 {
			continue
		}
		if soa, ok := answer.Answer[0].(*dns.SOA); ok && soa.Serial == serial {
			return nil
		}
	}
	return fmt.Errorf("serial %d is not served after %v", serial, serialTimeout)
}

// pss returns the memory of all processes in MiB.
func (r *running) pss() (float64, error) {
	pids, err := r.pids()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pid := range pids {
		if n, err := proc.PSS(pid); err == nil { // else it has ended meanwhile
			sum += n
		}
	}
	return float64(sum) / (1 << 20), nil
}

// peakPSS returns the most that pss says until stop.
func (r *running) peakPSS(stop <-chan struct{}) (high float64) {
	tick := time.NewTicker(pssEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return high
		case <-tick.C:
			if n, err := r.pss(); err == nil {
				high = max(high, n)
			}
		}
	}
}

// pin lets every thread of the server run on these processors only.
func (r *running) pin(cpus string) error {
	pids, err := r.pids()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if out, err := exec.Command("taskset", "-acp", cpus, strconv.Itoa(pid)).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}
