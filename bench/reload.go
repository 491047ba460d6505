package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

// reloaded returns dnsapp as it is reloaded: two workers, DNS, and identify for
// flows that are forwarded; every drain lasts as long as it may.
func reloaded(program string) peer {
	return peer{
		name:     "dnsapp",
		program:  program,
		unpinned: true,
		config: func(dir string) string {
			return fmt.Sprintf(`control: %[1]s/dnsapp/control.sock
state_dir: %[1]s/dnsapp
admin: off
workers: 2
expose_generation: true
reload: {udp_idle: 100ms, shutdown_timeout: 300ms}
zones:
  - {name: example.com, file: %[1]s/example.com.zone}
listeners:
  - {name: dns, address: ["%[2]v"], service: dns}
  - {name: who, address: ["%[3]v"], service: identify, affinity: flow}
`, dir, target, withFlows)
		},
		args:    func(config string) []string { return []string{"serve", "-c", config} },
		version: func() string { return firstLine(program, "version") },
	}
}

// forwardedFlows never pause for as long as udp_idle.
const forwardedFlows = 200

// groupOf is how many windows make one sample of latency: at 30,000 queries/s
// it has about 100,000 answers, enough for its 99.9th percentile.
const groupOf = 10

// stepNames are the steps up to the commit.
var stepNames = []control.Step{control.StepPrepare, control.StepWindow, control.StepHandover}

// overTCP is how many queries come over UDP for each one over TCP.
const overTCP = 75

// reloadBench is the state of the part, at one rate.
type reloadBench struct {
	dir, ctl string
	rate     int // queries/s over UDP
	steady   []*load.UDP

	gaps, answers, totals []float64 // ms, of each reload
	steps                 map[control.Step][]float64
	forwarded             uint64
	inside, outside       []load.Histogram // of each group
}

// benchReload measures what clients see of reloads under load, at each rate.
func benchReload(o options, dir string) (string, error) {
	zone, queries := workload(o.names)
	if err := os.WriteFile(filepath.Join(dir, "example.com.zone"), []byte(zone), 0o644); err != nil {
		return "", err
	}
	when, busyness := time.Now(), loadAverage()
	p := reloaded(o.dnsapp)
	var t strings.Builder
	heading(&t, "Reloads", when, busyness)
	fmt.Fprintf(&t, "%d reloads at each rate; %d workers, DNS over UDP and IPv4 loopback, a sixth of it as %d flows of identify, which are forwarded while\n", o.reloads, 2, forwardedFlows)
	fmt.Fprintf(&t, "their generation drains; beside it DNS over TCP, half on connections of their own; %d names; server and generator share all\nprocessors. dnsapp: %s.\n", o.names, p.version())
	for _, rate := range o.rates {
		text, err := benchReloadAt(rate, o, p, dir, queries)
		if err != nil {
			return "", fmt.Errorf("at %d queries/s: %w", rate, err)
		}
		t.WriteString(text)
	}
	return t.String(), nil
}

// benchReloadAt measures at one rate.
func benchReloadAt(rate int, o options, p peer, dir string, queries []load.Query) (string, error) {
	b := &reloadBench{dir: dir, ctl: filepath.Join(filepath.Dir(o.dnsapp), "dnsappctl"), rate: rate, steps: map[control.Step][]float64{}}
	r, err := start(p, dir)
	if err != nil {
		return "", err
	}
	final, tcp, err := b.measure(o, queries)
	if err = errors.Join(err, r.stop()); err != nil {
		return "", err
	}
	var t strings.Builder
	fmt.Fprintf(&t, "\n## %d queries/s over UDP, %d over TCP\n\n", rate, rate/overTCP)
	fmt.Fprintf(&t, "%d requests were sent over UDP, %d skipped by the generator, **%d lost**, %d answered twice, %d wrong, %d forwarded.\n", final.Sent, final.Skipped,
		final.Lost(), final.Duplicate, final.Malformed+final.Stray, b.forwarded)
	fmt.Fprintf(&t, "%d over TCP, **%d lost**, %d connections refused, %d cut off.\n\n", tcp.Sent, tcp.Lost(), tcp.Refused, tcp.CutOff)
	t.WriteString("| ms | median | 99% | highest |\n|---|---|---|---|\n")
	b.row(&t, "gap: last lane parked to first receive call of the new generation", b.gaps)
	b.row(&t, "start of `dnsappctl reload` to the first answer of the new generation", b.answers)
	for _, s := range stepNames {
		b.row(&t, string(s), b.steps[s])
	}
	b.row(&t, "whole reload, drain of 300 ms included", b.totals)
	fmt.Fprintf(&t, "\nLatency, medians of %d groups of %d windows, and of the times of equal length between them:\n\n| ms | median | 99%% | 99.9%% |\n|---|---|---|---|\n", len(b.inside), groupOf)
	for _, c := range []struct {
		name string
		list []load.Histogram
	}{{"inside windows", b.inside}, {"outside", b.outside}} {
		fmt.Fprintf(&t, "| %s |", c.name)
		for _, q := range []float64{0.5, 0.99, 0.999} {
			var values []float64
			for i := range c.list {
				values = append(values, ms(c.list[i].Quantile(q)))
			}
			m, _, _ := spread(values)
			fmt.Fprintf(&t, " %.3f |", m)
		}
		t.WriteString("\n")
	}
	return t.String(), nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// row writes median, 99th percentile and maximum of a list.
func (b *reloadBench) row(t *strings.Builder, name string, list []float64) {
	median, _, highest := spread(list)
	sorted := slices.Sorted(slices.Values(list))
	fmt.Fprintf(t, "| %s | %.3f | %.3f | %.3f |\n", name, median, sorted[(len(sorted)*99-1)/100], highest)
}

// measure reloads under load, and returns what became of what was sent over UDP and
// over TCP.
func (b *reloadBench) measure(o options, queries []load.Query) (final, tcp load.Report, err error) {
	protocol, err := load.NewDNS(queries)
	if err != nil {
		return final, tcp, err
	}
	for _, c := range []load.UDPConfig{
		{Targets: []netip.AddrPort{target}, Flows: 64, Rate: b.rate * 5 / 6, Protocol: protocol},
		{Targets: []netip.AddrPort{withFlows}, Flows: forwardedFlows, Rate: b.rate / 6, Protocol: load.Identify{}},
	} {
		g, err := load.StartUDP(c)
		if err != nil {
			return final, tcp, err
		}
		defer g.Close()
		b.steady = append(b.steady, g)
	}
	kept := slices.Clone(queries) // clients that keep a connection say so, and hear when to leave it
	for i := range kept {
		kept[i].EDNS, kept[i].Keepalive = 1232, true
	}
	overStreams, err := load.NewDNS(kept)
	if err != nil {
		return final, tcp, err
	}
	var streams []*load.TCP
	for perConn, protocol := range []load.Protocol{overStreams, protocol} {
		g, err := load.StartTCP(load.TCPConfig{
			Targets: []netip.AddrPort{target}, Clients: 8, Rate: max(b.rate/overTCP/2, 1), PerConn: perConn, Protocol: protocol,
		})
		if err != nil {
			return final, tcp, err
		}
		defer g.Stop(0)
		streams = append(streams, g)
	}
	<-time.After(warmup)
	var inside, outside load.Histogram
	for n := range o.reloads {
		before := b.latency()
		began := time.Now()
		if err := b.reload(); err != nil {
			return final, tcp, err
		}
		took := time.Since(began)
		between := b.latency()
		<-time.After(took) // the time outside that is compared with it
		after := b.latency()
		in, out := between.Since(&before), after.Since(&between)
		inside.Merge(&in)
		outside.Merge(&out)
		if n%groupOf == groupOf-1 || n == o.reloads-1 {
			b.inside, b.outside = append(b.inside, inside), append(b.outside, outside)
			inside, outside = load.Histogram{}, load.Histogram{}
		}
	}
	for _, g := range b.steady {
		final.Add(g.Stop(time.Second))
	}
	for _, g := range streams {
		tcp.Add(g.Stop(time.Second))
	}
	return final, tcp, nil
}

func (b *reloadBench) latency() (h load.Histogram) {
	for _, g := range b.steady {
		r := g.Report()
		h.Merge(&r.Latency)
	}
	return h
}

// reload runs `dnsappctl reload` to its end, and takes down what it reports and
// how long it was until the new generation answered.
func (b *reloadBench) reload() error {
	asker, err := net.Dial("udp", target.String())
	if err != nil {
		return err
	}
	defer asker.Close()
	old, err := generation(asker)
	if err != nil {
		return err
	}
	cmd := exec.Command(b.ctl, "--control", filepath.Join(b.dir, "dnsapp", "control.sock"), "reload", "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	answered := make(chan time.Duration, 1)
	failed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for range tick.C {
			epoch, err := generation(asker)
			switch {
			case err != nil:
				failed <- err
				return
			case epoch != old:
				answered <- time.Since(began)
				return
			case time.Since(began) > startTimeout:
				failed <- fmt.Errorf("no answer of a new generation after %v", startTimeout)
				return
			}
		}
	}()
	report, err := lastReport(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return err
	}
	if report == nil || !report.OK {
		return fmt.Errorf("the reload has failed: %+v", report)
	}
	b.gaps = append(b.gaps, ms(report.Gap.Duration()))
	b.totals = append(b.totals, ms(report.Elapsed.Duration()))
	b.forwarded += report.Window.Forwarded
	for _, s := range report.Steps {
		b.steps[s.Step] = append(b.steps[s.Step], ms(s.Elapsed.Duration()))
	}
	select {
	case d := <-answered:
		b.answers = append(b.answers, ms(d))
		return nil
	case err := <-failed:
		return err
	}
}

// lastReport reads the stream of a reload to its end.
func lastReport(r io.Reader) (report *control.ReloadReport, err error) {
	lines := json.NewDecoder(r)
	for {
		var l control.Line
		if err := lines.Decode(&l); errors.Is(err, io.EOF) {
			return report, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the report: %w", err)
		}
		if l.Report != nil {
			report = l.Report
		}
	}
}

// askEvery is the resolution of the time to the first answer.
const askEvery = 500 * time.Microsecond

// generation asks which generation answers.
func generation(c net.Conn) (epoch uint32, err error) {
	query := new(dns.Msg).SetQuestion("generation.dnsapp.", dns.TypeTXT)
	query.Question[0].Qclass = dns.ClassCHAOS
	client := dns.Client{Timeout: 5 * time.Second}
	answer, _, err := client.ExchangeWithConn(query, &dns.Conn{Conn: c})
	if err != nil {
		return 0, fmt.Errorf("asking for the generation: %w", err)
	}
	if len(answer.Answer) == 1 {
		if txt, ok := answer.Answer[0].(*dns.TXT); ok && len(txt.Txt) == 1 {
			tag, err := load.ParseTag([]byte(txt.Txt[0]))
			return tag.Epoch, err
		}
	}
	return 0, fmt.Errorf("asking for the generation: unexpected answer\n%v", answer)
}
