package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// stormReload cuts drains short, so that generations follow each other fast.
const stormReload = "udp_idle: 100ms, shutdown_timeout: 300ms"

// storm is how many reloads there are, and the load under them.
type storm struct {
	warmup  int           // reloads before anything is looked at
	reloads int           // looked at
	every   time.Duration // from the begin of one to that of the next; 0: as fast as they commit
	until   uint32        // more follow, as fast as they commit, up to this epoch

	udp, tcp int // requests/s, half of them DNS and half identify
}

// gale is DNS and identify, over UDP and TCP.
type gale struct {
	udp map[string]*load.UDP
	tcp map[string]*load.TCP
}

func (c storm) blow(t *testing.T) *gale {
	t.Helper()
	protocol := func(keepalive bool) load.Protocol {
		p, err := load.NewDNS(queries(keepalive))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	dns, who := []netip.AddrPort{dns4, dns6}, []netip.AddrPort{who4, who6}
	g := &gale{udp: map[string]*load.UDP{}, tcp: map[string]*load.TCP{}}
	for name, c := range map[string]load.UDPConfig{
		"DNS over UDP":      {Targets: dns, Flows: 64, Rate: c.udp / 2, Protocol: protocol(false)},
		"identify over UDP": {Targets: who, Flows: 1000, Rate: c.udp / 2, Protocol: load.Identify{}},
	} {
		c.Sources = []netip.Prefix{clients6}
		var err error
		if g.udp[name], err = load.StartUDP(c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.udp[name].Close)
	}
	for name, c := range map[string]load.TCPConfig{
		"DNS over TCP, kept connections":   {Targets: dns, Clients: 8, Rate: c.tcp / 2, Protocol: protocol(true)},
		"DNS over TCP, one query each":     {Targets: dns, Clients: 8, Rate: c.tcp / 4, PerConn: 1, Protocol: protocol(false)},
		"identify over TCP, one line each": {Targets: who, Clients: 8, Rate: c.tcp / 4, PerConn: 1, Protocol: load.Identify{}},
	} {
		x, err := load.StartTCP(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.Stop(0) })
		g.tcp[name] = x
	}
	for _, x := range g.udp {
		awaitAnswers(t, x, 1000)
	}
	return g
}

// calm ends the load and returns what became of it.
func (g *gale) calm() map[string]load.Report {
	reports := map[string]load.Report{}
	for name, x := range g.udp {
		reports[name] = x.Stop(2 * time.Second)
	}
	for name, x := range g.tcp {
		reports[name] = x.Stop(2 * time.Second)
	}
	return reports
}

// run reloads s as c says and returns the reports, as of each commit.
func (c storm) run(s *server) (reports []control.ReloadReport) {
	s.t.Helper()
	began := time.Now()
	for n := range c.reloads {
		if c.every > 0 {
			<-time.After(time.Until(began.Add(time.Duration(n) * c.every)))
		}
		reports = append(reports, s.reload("--wait", "commit"))
	}
	commit := sorted(reports, func(r control.ReloadReport) control.Millis { return r.Commit })
	gap := sorted(reports, func(r control.ReloadReport) control.Millis { return r.Gap })
	s.t.Logf("%d reloads in %v; until the commit %v, 99%% %v; gap %v, 99%% %v", c.reloads, time.Since(began).Round(time.Millisecond),
		quantile(commit, 0.5), quantile(commit, 0.99), quantile(gap, 0.5), quantile(gap, 0.99))
	return reports
}

// sorted returns one duration of each report, the shortest first.
func sorted(reports []control.ReloadReport, of func(control.ReloadReport) control.Millis) (list []time.Duration) {
	for _, r := range reports {
		list = append(list, of(r).Duration())
	}
	slices.Sort(list)
	return list
}

// quantile returns the duration that the fraction q of a sorted list does not
// exceed.
func quantile(list []time.Duration, q float64) time.Duration {
	return list[int(q*float64(len(list)-1))]
}

// Limits of a reload under load, with -soak.
const (
	commitLimit    = 100 * time.Millisecond // from the request to the commit, median
	gapLimit       = 500 * time.Microsecond // median
	gapLimitOfMost = 5 * time.Millisecond   // of 99%
)

// checkTimes holds the reloads of a storm against the limits.
func checkTimes(t *testing.T, reports []control.ReloadReport) {
	t.Helper()
	commit := sorted(reports, func(r control.ReloadReport) control.Millis { return r.Commit })
	gap := sorted(reports, func(r control.ReloadReport) control.Millis { return r.Gap })
	for _, c := range []struct {
		what      string
		is, limit time.Duration
	}{
		{"median time until the commit", quantile(commit, 0.5), commitLimit},
		{"median gap", quantile(gap, 0.5), gapLimit},
		{"gap of 99%", quantile(gap, 0.99), gapLimitOfMost},
	} {
		if c.is > c.limit {
			t.Errorf("%s: %v, at most %v were to be", c.what, c.is, c.limit)
		}
	}
}

// capacity returns how many requests/s the server and the generator can do
// together here, DNS and identify over UDP.
func capacity(t *testing.T) int {
	t.Helper()
	const more = 400_000 // than any machine of today does with them
	g := storm{udp: more, tcp: 40}.blow(t)
	before := time.Now()
	var answered uint64
	for _, x := range g.udp {
		answered -= x.Report().Answered
	}
	<-time.After(3 * time.Second)
	took := time.Since(before)
	for _, x := range g.udp {
		answered += x.Report().Answered
	}
	g.calm()
	return int(float64(answered) / took.Seconds())
}

// footprint is what a server holds when one generation is left, which was started
// beside one other: a worker has descriptors of all that lived when it began.
type footprint struct {
	descriptors, regions int // of the supervisor
	workers              int // descriptors of all workers
	goroutines           int // of the supervisor
	rss                  int // of the supervisor, KiB
}

func (s *server) footprint() (f footprint) {
	s.t.Helper()
	s.awaitSteady()
	s.reload()
	s.await(10*time.Second, "the old workers are gone", func() bool { return len(s.processes()) == 3 })
	for _, pid := range s.processes() {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			s.t.Fatal(err)
		}
		if pid != s.cmd.Process.Pid {
			f.workers += len(fds)
			continue
		}
		f.descriptors = len(fds)
		for _, fd := range fds {
			if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(target, "/memfd:") {
				f.regions++
			}
		}
		status, err := proc.Status(pid)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := fmt.Sscanf(status["VmRSS"], "%d kB", &f.rss); err != nil {
			s.t.Fatalf("VmRSS %q: %v", status["VmRSS"], err)
		}
	}
	f.goroutines = int(metrics(s.t)["go_goroutines"])
	return f
}

// Slack of footprints: connections of those who look come and go, and the
// collector decides when memory is given back.
const (
	slackCount = 4
	slackRSS   = 4 << 10 // KiB
)

// grownOver returns what f has more of than before.
func (f footprint) grownOver(before footprint) (grown []string) {
	for _, c := range []struct {
		name      string
		is, limit int
	}{
		{"descriptors", f.descriptors, before.descriptors + slackCount},
		{"regions", f.regions, before.regions},
		{"descriptors of workers", f.workers, before.workers + slackCount},
		{"goroutines", f.goroutines, before.goroutines + slackCount},
		{"KiB of RSS", f.rss, before.rss + slackRSS},
	} {
		if c.name == "KiB of RSS" && !*soak {
			continue // it takes some hundred reloads to level off
		}
		if c.is > c.limit {
			grown = append(grown, fmt.Sprintf("%d %s, at most %d were to be", c.is, c.name, c.limit))
		}
	}
	return grown
}

// Reload after reload, with drains cut short, under a load of all that is served:
// every request is answered, epochs only grow, and nothing is left of the
// generations. With -soak the load is 60% of what the machine can do, and is
// made once without reloads, to compare with.
func TestReloadStorm(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{" + stormReload + "}"}.yaml(), zoneFiles())
	c := storm{warmup: 10, reloads: 40, udp: 8000, tcp: 400}
	if *soak {
		most := capacity(t)
		c = storm{warmup: 300, reloads: 100, every: 600 * time.Millisecond, until: 1010, udp: most * 6 / 10, tcp: 1000}
		t.Logf("capacity %d requests/s over UDP; load %d, and %d over TCP", most, c.udp, c.tcp)
		g := c.blow(t)
		<-time.After(time.Duration(c.reloads) * c.every)
		logReports(t, "without reloads", g.calm())
	}
	epochs := []uint32{s.epoch()}
	note := func(reports []control.ReloadReport) {
		for _, r := range reports {
			epochs = append(epochs, r.ToEpoch)
		}
	}
	note(storm{reloads: c.warmup}.run(s))
	before, ledger := s.footprint(), s.ledger()
	epochs = append(epochs, s.epoch())

	g := c.blow(t)
	under := c.run(s)
	note(under)
	if *soak {
		checkTimes(t, under)
	}
	reports := g.calm()
	logReports(t, "with reloads", reports)
	var udp, tcp uint64
	for name, r := range reports {
		if err := r.Exact(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r.Skipped > r.Offered/2 {
			t.Errorf("%s: the generator made less than half of the load of this test", name)
		}
		if strings.HasSuffix(name, "UDP") {
			udp += r.Sent
		} else {
			tcp += r.Sent
		}
	}
	after := s.footprint()
	epochs = append(epochs, s.epoch())
	l := s.ledger().Since(ledger)
	if l.Received != udp || sum(l.Dropped) != 0 || sum(l.RingDropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("%d requests were sent over UDP; ledger %+v", udp, l)
	}
	if l.TCPQueries != tcp || l.TCPAnswers != tcp {
		t.Errorf("%d requests were sent over TCP; ledger %+v", tcp, l)
	}
	t.Logf("before %+v, after %+v", before, after)
	for _, g := range after.grownOver(before) {
		t.Error(g)
	}

	if now := epochs[len(epochs)-1]; now < c.until {
		note(storm{reloads: int(c.until - now)}.run(s))
		after := s.footprint()
		t.Logf("at epoch %d: %+v", s.epoch(), after)
		for _, g := range after.grownOver(before) {
			t.Error(g)
		}
	}
	for i, e := range epochs {
		if e != epochs[0]+uint32(i) {
			t.Fatalf("epoch %d after %d reloads: %v", e, i, epochs)
		}
	}
}

func logReports(t *testing.T, when string, reports map[string]load.Report) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		t.Logf("%s: %s: %v", when, name, reports[name])
	}
}

// The same storm of plain restarts is not exact: the test above can fail.
func TestRestartStormFails(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{" + stormReload + ", mode: restart}"}.yaml(), zoneFiles())
	c := storm{reloads: 5, udp: 8000, tcp: 400}
	g := c.blow(t)
	c.run(s)
	reports := g.calm()
	logReports(t, "restarts", reports)
	for _, r := range reports {
		if r.Exact() != nil {
			return
		}
	}
	t.Error("five restarts lost nothing: the test does not see what it is there to see")
}
