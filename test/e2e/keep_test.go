package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/control"
)

const stateName = "state.json"

// stopAndStart stops the server, all of it, and starts it again.
func (s *server) stopAndStart() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.awaitExit(10 * time.Second); code != 0 {
		s.t.Fatalf("the stop: code %d", code)
	}
	s.serve()
	s.awaitReady()
}

// cutPower kills all of the server at once.
func (s *server) cutPower() {
	s.t.Helper()
	for _, pid := range append(s.workers(), s.cmd.Process.Pid) {
		kill(s.t, pid, syscall.SIGSTOP) // else one may see the other one go
	}
	for _, pid := range s.processes() {
		kill(s.t, pid, syscall.SIGKILL)
	}
	s.awaitExit(10 * time.Second)
	s.await(10*time.Second, "every process is gone", func() bool { return len(s.processes()) == 0 })
}

// keeping returns the configuration: two servers that are checked, of which s0 has
// this weight.
func keeping(stateFile string, weight int) string {
	c := proxiedBy("{}", ", health: {check: udp, send: ping, interval: 300ms, timeout: 100ms}",
		fmt.Sprintf(`{name: s0, address: "127.0.0.1:9000", weight: %d}`, weight), `{name: s1, address: "127.0.0.1:9001"}`)
	c.top += "\nstate_file: " + stateFile
	return c.yaml()
}

// What was ordered and counted before a stop is there after the next start, and what
// was ordered even if the power has failed; without a state file everything is new.
func TestStateFile(t *testing.T) {
	s := start(t, keeping(stateName, 1), zoneFiles())
	startEcho(t, 0)
	s.await(startTimeout, "one server is up and one is down", func() bool {
		m := s.servers()
		return m["s0"].Health == "up" && m["s1"].Health == "down"
	})
	s.ctl("server", "weight", "app", "s0", "7")
	s.ctl("server", "disable", "app", "s1")
	ordered := []string{"backends[app].servers[s0].weight: 1 -> 7", "backends[app].servers[s1].state: enabled -> disabled"}
	want := func(when string, orders []string) {
		t.Helper()
		if got := s.orders(); strings.Join(got, "\n") != strings.Join(orders, "\n") {
			t.Errorf("%s: orders %q, want %q", when, got, orders)
		}
	}
	want("before the stop", ordered)
	for range 50 {
		ask(t, "udp", dns4, "h1.example.com.", dns.TypeA)
		ask(t, "tcp", dns4, "none.example.com.", dns.TypeA)
	}
	s.reload()
	freshFlows(t, 20) // nothing but the end saves that
	s.await(10*time.Second, "the flows are counted", func() bool { return s.servers()["s0"].Begun == 20 })
	s.ledger()
	before := metrics(t)
	for _, name := range []string{
		`dnsapp_dns_queries_total{rcode="NOERROR",transport="udp",type="A"}`, `dnsapp_reloads_total{outcome="done"}`,
		`dnsapp_zone_queries_total{transport="udp",zone="example.com."}`,
	} {
		if before[name] == 0 {
			t.Errorf("%s is 0: nothing would show", name)
		}
	}

	s.stopAndStart()
	if got := s.servers()["s1"].Health; got != "down" {
		t.Errorf("after the start s1 is %s before anybody has looked", got)
	}
	want("after the start", ordered)
	s.ledger()
	after := metrics(t)
	compared := 0
	for name, v := range before {
		if !isCounter(name) {
			continue
		}
		compared++
		if got, there := after[name]; !there || got < v {
			t.Errorf("%s was %v and is %v", name, v, got)
		}
	}
	t.Logf("%d counters compared", compared)
	ask(t, "udp", dns4, "h1.example.com.", dns.TypeA)
	s.ledger()
	if name := `dnsapp_zone_queries_total{transport="udp",zone="example.com."}`; metrics(t)[name] != before[name]+1 {
		t.Errorf("%s is %v after one more than %v", name, metrics(t)[name], before[name])
	}
	if info, err := os.Stat(s.path(stateName)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the state file: %v, %v", info, err)
	}

	// An order is on the disk soon.
	saved := s.status().StateFile.SavedAt
	s.ctl("server", "drain", "app", "s1")
	s.await(10*time.Second, "the order is saved", func() bool { return s.status().StateFile.SavedAt.After(saved) })
	s.cutPower()
	// The file says something else of s0 now.
	s.write("dnsapp.yaml", keeping(stateName, 3))
	s.serve()
	s.awaitReady()
	want("after a power cut", []string{"backends[app].servers[s1].state: enabled -> draining"})

	s.write("dnsapp.yaml", keeping(`""`, 3))
	s.stopAndStart()
	want("without the key", nil)
	if l := s.status().Ledger; l.TCPAccepted != 0 {
		t.Errorf("without the key: %+v", l)
	}
}

// A state file that is of no use, and one that cannot be written, are told of once,
// and nothing else comes of it.
func TestStateFileOfNoUse(t *testing.T) {
	s := newServer(t, keeping(stateName, 1), zoneFiles())
	s.write(stateName, `{"version": 99}`)
	if err := os.Chmod(s.path(stateName), 0o600); err != nil {
		t.Fatal(err)
	}
	s.serve()
	s.awaitReady()
	told := func(text string) {
		t.Helper()
		if n := strings.Count(s.log(), text); n != 1 {
			t.Errorf("%q is told %d times", text, n)
		}
	}
	told("version 99, and this binary reads version 1")
	s.write("dnsapp.yaml", keeping("none/"+stateName, 1))
	s.reload()
	var f *control.StateFile
	s.await(10*time.Second, "the write has failed", func() bool { f = s.status().StateFile; return f != nil && f.Error != "" })
	for range 3 {
		s.ctl("server", "disable", "app", "s0")
	}
	s.stopAndStart()
	s.await(10*time.Second, "the write has failed again", func() bool { return s.status().StateFile.Error != "" })
	if n := strings.Count(s.log(), "the state is not saved"); n != 2 { // one in each life
		t.Errorf("told %d times", n)
	}
	if !strings.Contains(string(s.ctl("status")), "none/"+stateName+", not saved yet; writing the state file") {
		t.Errorf("status:\n%s", s.ctl("status"))
	}
}
