package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// reloadZones reloads zones, which must succeed, and returns the report.
func (s *server) reloadZones(names ...string) control.ZoneReport {
	s.t.Helper()
	out, errs, code := s.tryReloadZones(names...)
	if code != 0 || !out.OK {
		s.t.Fatalf("zone reload %v: code %d, report %+v\n%s", names, code, out, errs)
	}
	return out
}

// tryReloadZones is reloadZones that may fail.
func (s *server) tryReloadZones(args ...string) (r control.ZoneReport, stderr string, code int) {
	s.t.Helper()
	out, errs, code := s.tryCtl(append([]string{"zone", "reload", "-o", "json"}, args...)...)
	for line := range strings.Lines(string(out)) {
		var l control.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Fatalf("%v in %s", err, line)
		}
		if l.Done && l.Zones != nil {
			r = *l.Zones
		}
	}
	return r, string(errs), code
}

// zoneList returns what dnsappctl zone list knows.
func (s *server) zoneList() []control.ZoneStatus {
	s.t.Helper()
	var list []control.ZoneStatus
	if err := json.Unmarshal(s.ctl("zone", "list", "-o", "json"), &list); err != nil {
		s.t.Fatal(err)
	}
	return list
}

// zone returns what dnsappctl zone show knows.
func (s *server) zone(name string) (d control.ZoneDetail) {
	s.t.Helper()
	if err := json.Unmarshal(s.ctl("zone", "show", name, "-o", "json"), &d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// compilations returns how often compilers were started so far.
func (s *server) compilations() int {
	s.t.Helper()
	return strings.Count(s.log(), `msg="zones compiled"`)
}

// zoneMappings returns how many regions of zones a process has mapped.
func zoneMappings(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/memfd:dnsapp:zone")
}

// descriptors returns how many descriptors a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// connection is a DNS client that keeps its TCP connection.
type connection struct {
	t *testing.T
	c *dns.Conn
}

func connect(t *testing.T, target netip.AddrPort) *connection {
	t.Helper()
	c, err := net.DialTimeout("tcp", target.String(), answerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &connection{t, &dns.Conn{Conn: c}}
}

// serial asks for the serial of a zone.
func (c *connection) serial(name string) uint32 {
	c.t.Helper()
	if err := c.c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		c.t.Fatal(err)
	}
	if err := c.c.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeSOA)); err != nil {
		c.t.Fatal(err)
	}
	m, err := c.c.ReadMsg()
	if err != nil {
		c.t.Fatal(err)
	}
	if len(m.Answer) == 1 {
		if soa, ok := m.Answer[0].(*dns.SOA); ok {
			return soa.Serial
		}
	}
	c.t.Fatalf("no SOA record:\n%v", m)
	return 0
}

// Thirty zone reloads under 30,000 queries/s, over UDP and TCP, lose nothing and
// close no connection; each is served everywhere when the command returns; and
// what was replaced is given back.
func TestZoneReloadUnderLoad(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	epoch, pids := s.epoch(), s.workers()
	x := startDNS(t)
	s.await(10*time.Second, "the load runs", func() bool { return x.udp.Report().Answered > 5000 && x.short.Report().Answered > 50 })
	kept := connect(t, dns4)
	const reloads = 30
	for serial := uint32(2); serial < 2+reloads; serial++ {
		s.write("example.com.zone", zone(int(serial)))
		r := s.reloadZones()
		if r.Changed != 1 || r.Checked != 1 || r.Workers != 2 || len(r.Zones) != 1 || r.Zones[0].Serial != serial {
			t.Errorf("report %+v", r)
		}
		for _, target := range []netip.AddrPort{dns4, dns6} {
			if got := soaSerial(t, target); got != serial {
				t.Errorf("%v serves serial %d after the reload of %d", target, got, serial)
			}
		}
		if got := kept.serial("example.com."); got != serial {
			t.Errorf("a connection from before gets serial %d after the reload of %d", got, serial)
		}
	}
	var asked control.ZoneQueries
	for name, r := range x.stop() {
		t.Logf("%s: %v", name, r)
		if err := r.Exact(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "UDP" {
			asked.UDP += r.Sent
		} else {
			asked.TCP += r.Sent
		}
		if name == "TCP, kept connections" && r.ServerClose != 0 {
			t.Errorf("%d connections were closed", r.ServerClose)
		}
		if r.Skipped > r.Offered/2 {
			t.Errorf("%s: the generator made less than half of the load of this test: the machine is too busy for it", name)
		}
	}
	// Beside the load there were three questions for the serial after each reload.
	asked.UDP += 2 * reloads
	asked.TCP += reloads
	counted := s.zone("example.com").Queries
	if counted.UDP != asked.UDP || counted.TCP != asked.TCP || counted.NXDomain == 0 || counted.Truncated != 0 {
		t.Errorf("the zone counts %+v, asked were %+v", counted, asked)
	}
	for transport, want := range map[string]uint64{"udp": asked.UDP, "tcp": asked.TCP} {
		sample := fmt.Sprintf("dnsapp_zone_queries_total{transport=%q,zone=\"example.com.\"}", transport)
		if got := metrics(t)[sample]; got != float64(want) {
			t.Errorf("%s is %v, want %d", sample, got, want)
		}
	}
	if got := s.epoch(); got != epoch || !slices.Equal(s.workers(), pids) {
		t.Errorf("epoch %d and workers %v, were %d and %v: a zone reload needs no new generation", got, s.workers(), epoch, pids)
	}
	for _, pid := range append(pids, s.cmd.Process.Pid) {
		s.await(5*time.Second, fmt.Sprintf("process %d has one region mapped", pid), func() bool { return zoneMappings(t, pid) == 1 })
	}
	if l := s.ledger(); sum(l.Dropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// age sets the time of a file back: one that was written just now is read again,
// since it might change once more within a tick of the clock.
func age(t *testing.T, file string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// bigZone writes a zone of n records, which looks old.
func bigZone(t *testing.T, file string, serial, n int) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "$TTL 300\n@ SOA ns1 admin %d 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.1\n", serial)
	for i := range n - 3 {
		fmt.Fprintf(w, "h%d A 192.0.2.%d\n", i, (i+serial)%256)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	age(t, file, time.Hour-time.Duration(serial)*time.Minute)
}

// million is the number of records of the big zone.
const million = 1_000_000

// A zone of a million records is reloaded under 20,000 queries/s for it: nothing
// is lost, the memory stays bounded, and a reload of the configuration, which has
// nothing to compile, is done with its preparation at once.
func TestZoneReloadMillion(t *testing.T) {
	const extra = "zones:\n  - {name: big.example, file: big.zone}\n"
	s := newServer(t, strings.Replace(settings{workers: 2, top: "dns: {tcp_idle: 5m}"}.yaml(), "zones:\n", extra, 1), zoneFiles())
	bigZone(t, s.path("big.zone"), 1, million)
	age(t, s.path("example.com.zone"), time.Hour)
	s.serve()
	s.awaitReady()
	list := queries(false)
	for i := range 1000 {
		list = append(list, load.Query{Name: fmt.Sprintf("h%d.big.example", i*997%million), Type: dns.TypeA, EDNS: 1232})
	}
	p, err := load.NewDNS(list)
	if err != nil {
		t.Fatal(err)
	}
	g, err := load.StartUDP(load.UDPConfig{
		Targets: []netip.AddrPort{dns4, dns6}, Flows: 64, Rate: 20_000, Sources: []netip.Prefix{clients6}, Protocol: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	awaitAnswers(t, g, 5000)
	kept := connect(t, dns4)
	steady := pss(t, s)

	for serial := 2; serial <= 3; serial++ {
		bigZone(t, s.path("big.zone"), serial, million)
		stop := make(chan struct{})
		peak := make(chan int64)
		go func() { peak <- peakPSS(t, s, stop) }()
		r := s.reloadZones("BIG.example")
		close(stop)
		high := <-peak
		t.Logf("serial %d: compile %v, swap %v; memory %d MiB, at most %d MiB", serial, r.Compile.Duration(), r.Swap.Duration(), steady>>20, high>>20)
		if r.Checked != 1 || r.Changed != 1 {
			t.Errorf("report %+v", r)
		}
		if got := kept.serial("big.example."); got != uint32(serial) {
			t.Errorf("serial %d after the reload of %d", got, serial)
		}
		// Both versions, and what the compiler has not yet written of the new one.
		if high*10 > 24*steady {
			t.Errorf("%d MiB at the peak, %d MiB before", high>>20, steady>>20)
		}
	}
	compiled := s.compilations()
	r := s.reload("--wait", "commit")
	t.Logf("reload of the configuration: %+v", r.Steps)
	for _, step := range r.Steps {
		if step.Step == control.StepPrepare && step.Elapsed.Duration() > 500*time.Millisecond {
			t.Errorf("nothing has changed, and T0 took %v", step.Elapsed.Duration())
		}
	}
	if n := s.compilations(); n != compiled {
		t.Errorf("%d compilations for a reload with unchanged zones", n-compiled)
	}
	report := g.Stop(2 * time.Second)
	t.Logf("%v", report)
	if err := report.Exact(); err != nil {
		t.Error(err)
	}
}

// pss returns the memory of all processes of a server.
func pss(t *testing.T, s *server) (sum int64) {
	t.Helper()
	for _, pid := range s.processes() {
		if n, err := proc.PSS(pid); err == nil { // else it has ended meanwhile
			sum += n
		}
	}
	return sum
}

// peakPSS returns the most that pss says until stop.
func peakPSS(t *testing.T, s *server, stop <-chan struct{}) (peak int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return peak
		case <-tick.C:
			peak = max(peak, pss(t, s))
		}
	}
}

// A draining generation gets new versions like the one that has the wire, by a
// zone reload and by a reload.
func TestZoneReloadReachesDraining(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	old := connect(t, dns4)
	if got := old.serial("example.com."); got != 1 {
		t.Fatalf("serial %d", got)
	}
	s.write("example.com.zone", zone(2))
	r := s.startReload()
	r.awaitCommit()
	// It is told at the commit, and takes it at its next boundary.
	s.await(5*time.Second, "the draining generation has what the new one was made with", func() bool { return old.serial("example.com.") == 2 })
	for serial := 3; serial <= 5; serial++ {
		s.write("example.com.zone", zone(serial))
		if z := s.reloadZones(); z.Workers != 2 {
			t.Errorf("report %+v", z)
		}
		if got := old.serial("example.com."); got != uint32(serial) {
			t.Errorf("the draining generation serves serial %d after the reload of %d", got, serial)
		}
		if got := soaSerial(t, dns4); got != uint32(serial) {
			t.Errorf("the new generation serves serial %d after the reload of %d", got, serial)
		}
	}
	if n := len(s.status().Generations); n != 2 {
		t.Errorf("%d generations: the old one should still drain", n)
	}
	old.c.Close()
	r.wait()
}

// Zone reloads and reloads at the same time wait for each other: whichever comes
// first, when both are done every generation has the newest version.
func TestZoneReloadBesideReload(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	for serial := 2; serial <= 11; serial++ {
		old := connect(t, dns4)
		old.serial("example.com.")
		s.write("example.com.zone", zone(serial))
		r := s.startReload("--wait", "commit")
		z := s.reloadZones()
		if z.Failed != 0 {
			t.Errorf("report %+v", z)
		}
		if got := soaSerial(t, dns4); got != uint32(serial) {
			t.Errorf("serial %d after the zone reload of %d", got, serial)
		}
		r.wait()
		if got := soaSerial(t, dns6); got != uint32(serial) {
			t.Errorf("serial %d after the reload of %d", got, serial)
		}
		s.await(5*time.Second, "the old generation has it, too", func() bool { return old.serial("example.com.") == uint32(serial) })
		old.c.Close()
		s.awaitSteady()
	}
}

// A zone that cannot be loaded keeps its last good version, and is reported by
// name, line and reason: by the command, in the list, in the log and in a metric.
// A reload of the configuration is refused meanwhile.
func TestZoneReloadBroken(t *testing.T) {
	const extra = "zones:\n  - {name: example.org, file: other.zone}\n"
	files := zoneFiles()
	files["other.zone"] = zone(1)
	files["other.zone"] = strings.ReplaceAll(files["other.zone"], "example.com", "example.org")
	s := start(t, strings.Replace(settings{}.yaml(), "zones:\n", extra, 1), files)

	s.write("example.com.zone", "$TTL 300\n@ SOA ns1 admin 2 1 1 1 1\n@ NS ns1\nns1 A 192.0.2.999\n")
	s.write("other.zone", strings.ReplaceAll(zone(7), "example.com", "example.org"))
	r, errs, code := s.tryReloadZones()
	if code != 1 || r.OK || r.Failed != 1 || r.Changed != 1 {
		t.Errorf("code %d, report %+v", code, r)
	}
	if len(r.Problems) != 1 || r.Problems[0].Line != 4 || r.Problems[0].Key != "example.com." || r.Problems[0].File != s.path("example.com.zone") {
		t.Errorf("problems %+v", r.Problems)
	}
	reason := "example.com.zone:4: "
	if !strings.Contains(errs, reason) {
		t.Errorf("standard error does not say %q: %s", reason, errs)
	}
	if !strings.Contains(s.log(), "level=ERROR") || !strings.Contains(s.log(), "zone=example.com.") {
		t.Error("the log does not name the zone")
	}
	kept := connect(t, dns4)
	if a, b := kept.serial("example.com."), kept.serial("example.org."); a != 1 || b != 7 {
		t.Errorf("serials %d and %d, want 1 and 7", a, b)
	}
	for _, z := range s.zoneList() {
		if stale := z.Error != ""; stale != (z.Name == "example.com.") || stale && !strings.Contains(z.Error, reason) {
			t.Errorf("%+v", z)
		}
	}
	if n := metrics(t)["dnsapp_zones_stale"]; n != 1 {
		t.Errorf("%v zones are stale", n)
	}
	if _, errs, code := s.tryCtl("reload"); code != 3 || !strings.Contains(string(errs), reason) {
		t.Errorf("a reload: code %d\n%s", code, errs)
	}
	d := s.zone("Example.COM")
	if d.Serial != 1 || len(d.Problems) != 1 || len(d.Files) != 1 || d.Records != hosts+9 {
		t.Errorf("%+v", d)
	}
	if _, _, code := s.tryCtl("zone", "show", "nowhere.example"); code != 3 {
		t.Errorf("showing a zone that is not served: code %d", code)
	}
	if _, errs, code := s.tryReloadZones("example.org", "nowhere.example"); code != 3 || !strings.Contains(errs, "nowhere.example.") {
		t.Errorf("reloading a zone that is not served: code %d, %s", code, errs)
	}

	s.write("example.com.zone", zone(3))
	s.reloadZones("example.com")
	if got := kept.serial("example.com."); got != 3 {
		t.Errorf("serial %d after the repair", got)
	}
	if n := metrics(t)["dnsapp_zones_stale"]; n != 0 {
		t.Errorf("%v zones are stale", n)
	}
	s.reload()
}

// A worker that comes back has the versions of the others.
func TestZoneReloadAndRespawn(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	s.write("example.com.zone", zone(2))
	s.reloadZones()
	pids := s.workers()
	for _, pid := range pids {
		kill(t, pid, syscall.SIGKILL)
	}
	s.await(10*time.Second, "the workers are back", func() bool {
		g := s.status().Generations[0]
		return allReady(g) && !slices.Contains(pids, g.Workers[0].PID) && !slices.Contains(pids, g.Workers[1].PID)
	})
	for range 20 {
		if got := connect(t, dns4).serial("example.com."); got != 2 {
			t.Fatalf("serial %d after a respawn", got)
		}
	}
}

// A worker that does not run holds up the command, and nothing else; when it runs
// again it has one new catalog to take, however many there were.
func TestZoneReloadStoppedWorker(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{heartbeat_timeout: 1m}"}.yaml(), zoneFiles())
	pid := s.workers()[0]
	kill(t, pid, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	s.await(5*time.Second, "the worker has stopped", func() bool {
		st, err := proc.ReadStat(pid)
		return err == nil && st.State == 'T'
	})
	for serial := 2; serial <= 20; serial++ {
		s.write("example.com.zone", zone(serial))
		if r, errs, code := s.tryReloadZones("--timeout", "50ms"); code != 4 {
			t.Fatalf("serial %d: code %d, want 4: %s%+v", serial, code, errs, r)
		}
		s.status() // the supervisor answers
	}
	kill(t, pid, syscall.SIGCONT)
	s.reloadZones()
	for range 20 {
		if got := connect(t, dns4).serial("example.com."); got != 20 {
			t.Fatalf("serial %d", got)
		}
	}
	s.await(5*time.Second, "what was replaced is given back", func() bool { return zoneMappings(t, pid) == 1 })
	if strings.Contains(s.log(), "level=ERROR") {
		t.Error("the log has errors: the worker was sent more than one catalog at a time")
	}
}

// Small zones share regions: thousands of them cost a worker no descriptors, and
// a reload with unchanged zones compiles nothing.
func TestManyZones(t *testing.T) {
	const n = 3000
	var list strings.Builder
	list.WriteString("zones:\n")
	files := zoneFiles()
	for i := range n {
		fmt.Fprintf(&list, "  - {name: z%d.example, file: z%d.zone}\n", i, i)
		files[fmt.Sprintf("z%d.zone", i)] = fmt.Sprintf("@ 60 SOA ns admin 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.%d\n", i%256)
	}
	s := newServer(t, strings.Replace(settings{}.yaml(), "zones:\n", list.String(), 1), files)
	for name := range files {
		age(t, s.path(name), time.Hour)
	}
	s.serve()
	s.awaitReady()
	if got := s.zoneList(); len(got) != n+1 {
		t.Fatalf("%d zones", len(got))
	}
	compiled := s.compilations()
	s.reload()
	if r := s.reloadZones(); r.Checked != n+1 || r.Changed != 0 || r.Same != 0 {
		t.Errorf("report %+v", r)
	}
	if got := s.compilations(); got != compiled {
		t.Errorf("%d compilations though nothing has changed", got-compiled)
	}
	for i := range 3 * 8 { // one region each, were they not merged
		s.write(fmt.Sprintf("z%d.zone", i), fmt.Sprintf("@ 60 SOA ns admin %d 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n", i+2))
		s.reloadZones(fmt.Sprintf("z%d.example", i))
	}
	c := connect(t, dns4)
	for i := range 40 {
		want := uint32(1)
		if i < 3*8 {
			want = uint32(i + 2)
		}
		if got := c.serial(fmt.Sprintf("z%d.example.", i)); got != want {
			t.Errorf("z%d has serial %d, want %d", i, got, want)
		}
	}
	pid := s.workers()[0]
	if m, d := zoneMappings(t, pid), descriptors(t, pid); m > 16 || d > 100 {
		t.Errorf("the worker has %d regions mapped and %d descriptors", m, d)
	}
}
