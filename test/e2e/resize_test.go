package e2e

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// Workers and lanes grow and shrink by reloads under load, over UDP and TCP,
// without a loss; so does the flow table. Flows stay with their generation, whose
// sockets are others than those of the next. Afterwards every address has the
// sockets of the last configuration and no more.
func TestResize(t *testing.T) {
	s := start(t, settings{reload: resizeReload("")}.yaml(), zoneFiles())
	reports := resizing(s, "", func(c settings, r control.ReloadReport) {
		t.Logf("%d workers, %d lanes: %v, gap %v, window %+v", max(c.workers, 1), max(c.lanes, 1), r.Elapsed.Duration(), r.Gap.Duration(), r.Window)
		if r.Window.Forwarded == 0 {
			t.Error("nothing was forwarded: the load did not test what it is for")
		}
		if want := max(c.workers, 1) * max(c.lanes, 1); boundUDP(t, dns4.Port()) != 2*want {
			t.Errorf("%d sockets are bound to port %d, want %d for each family", boundUDP(t, dns4.Port()), dns4.Port(), want)
		}
	})
	for name, r := range reports {
		t.Logf("%s: %v", name, r)
		if err := r.Exact(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l := s.ledger(); l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// The same on the plain way to reload is not exact: the test above can fail.
func TestResizeOfRestartFails(t *testing.T) {
	s := start(t, settings{reload: resizeReload(", mode: restart")}.yaml(), zoneFiles())
	exact := true
	for name, r := range resizing(s, ", mode: restart", func(settings, control.ReloadReport) {}) {
		t.Logf("%s: %v", name, r)
		exact = exact && r.Exact() == nil
	}
	if exact {
		t.Error("restarts with other numbers of workers and lanes lost nothing: the test does not see what it is there to see")
	}
}

// resizeReload is the reload section of these tests, with more keys.
func resizeReload(more string) string { return "{udp_idle: 1s, shutdown_timeout: 3s" + more + "}" }

// resizing grows and shrinks s under load, calls each after every reload, and
// returns what became of the load.
func resizing(s *server, more string, each func(settings, control.ReloadReport)) map[string]load.Report {
	s.t.Helper()
	x := startDNS(s.t)
	who := identify(s.t, 200, 2000)
	awaitAnswers(s.t, who, 2000)
	for _, c := range []settings{
		{lanes: 4, reload: resizeReload(", flow_table: 1024" + more)},
		{lanes: 2, reload: resizeReload(", flow_table: 131072" + more)},
		{workers: 3, reload: resizeReload(more)},
		{workers: 1, reload: resizeReload(more)},
	} {
		s.write("dnsapp.yaml", c.yaml())
		each(c, s.reload())
	}
	reports := x.stop()
	reports["identify"] = who.Stop(time.Second)
	return reports
}

// boundUDP counts the UDP sockets of both families that are bound to port.
func boundUDP(t *testing.T, port uint16) (n int) {
	t.Helper()
	want := ":" + strings.ToUpper(strconv.FormatUint(uint64(port)+0x10000, 16)[1:])
	for _, file := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], want) {
				n++
			}
		}
	}
	return n
}

// A worker that is stopped while traffic waits for it is replaced within
// heartbeat_timeout and a little, and the traffic has waited and is answered.
func TestStoppedWorkerReplaced(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{heartbeat_timeout: 500ms}"}.yaml(), zoneFiles())
	epoch, pids := s.epoch(), s.workers()
	p := startProbe(t)
	began := time.Now()
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.await(10*time.Second, "the worker is replaced", func() bool {
		g := s.status().Generations[0]
		return allReady(g) && g.Workers[0].PID != pids[0]
	})
	took := time.Since(began)
	awaitAnswers(t, p.who, 100)
	r := p.stop()
	t.Logf("replaced after %v; probe: %v", took, r)
	// The burst that it may have had in hand is all that can be gone.
	if r.Lost() > 64 || r.Duplicate+r.Stray+r.Malformed != 0 || r.Astray(epoch) != 0 {
		t.Errorf("probe: %v", r)
	}
	if now := s.workers(); slices.Contains(now, pids[0]) || !slices.Contains(now, pids[1]) {
		t.Errorf("workers %v, were %v, of which the first was stopped", now, pids)
	}
}

// Where a stopped worker is replaced by the plain way to reload, what has waited
// for it is lost: the test above can fail.
func TestStoppedWorkerReplacedByRestartFails(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{heartbeat_timeout: 10s, mode: restart}"}.yaml(), zoneFiles())
	epoch, pid := s.epoch(), s.workers()[0]
	p := startProbe(t)
	kill(t, pid, syscall.SIGSTOP)
	s.await(5*time.Second, "the worker is stopped", func() bool {
		st, err := proc.ReadStat(pid)
		return err == nil && st.State == 'T'
	})
	sent := p.who.Report().Sent
	s.await(5*time.Second, "traffic waits for it", func() bool { return p.who.Report().Sent > sent+500 })
	s.reload()
	awaitAnswers(t, p.who, 100)
	r := p.stop()
	t.Logf("probe: %v", r)
	if r.Lost() <= 64 && r.Astray(epoch) == 0 {
		t.Error("a restart lost nothing of what has waited: the test does not see what it is there to see")
	}
}
