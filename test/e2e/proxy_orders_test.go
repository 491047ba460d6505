package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

// servers returns what `dnsappctl backend list` knows of the servers of app, by
// name.
func (s *server) servers() map[string]control.ServerStatus {
	s.t.Helper()
	var list []control.BackendStatus
	if err := json.Unmarshal(s.ctl("backend", "list", "-o", "json"), &list); err != nil {
		s.t.Fatal(err)
	}
	if len(list) != 1 || list[0].Name != "app" {
		s.t.Fatalf("backends %+v", list)
	}
	m := map[string]control.ServerStatus{}
	for _, one := range list[0].Servers {
		m[one.Name] = one
	}
	return m
}

// orders returns what `dnsappctl diff` says was ordered beside the file.
func (s *server) orders() (all []string) {
	s.t.Helper()
	var d control.Diff
	if err := json.Unmarshal(s.ctl("diff", "-o", "json"), &d); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range d.Orders {
		all = append(all, c.String())
	}
	return all
}

// freshFlows begins flows, one datagram each, and returns how many each server got.
func freshFlows(t *testing.T, n int) map[byte]int {
	t.Helper()
	pins := newPinned(n)
	g := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{short4}, Flows: n, Rate: 2000, Once: true, Protocol: pins})
	if !awaiting(answerTimeout, func() bool { return g.Report().Answered >= uint64(n) }) {
		t.Errorf("not all of %d new flows were answered: %v", n, g.Report())
	}
	if r := g.Stop(time.Second); r.Exact() != nil {
		t.Error(r.Exact())
	}
	return pins.at(0, n)
}

// What an operator orders holds at once and over reloads, until the file says
// something else of that server. A drained server keeps its flows.
func TestProxyOrders(t *testing.T) {
	s := start(t, proxied("{udp_idle: 2s}", 0, 1).yaml(), zoneFiles())
	startEcho(t, 0)
	startEcho(t, 1)
	pins := newPinned(20)
	g := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{long4}, Flows: len(pins.pins), Rate: 400, Protocol: pins})
	awaitAnswers(t, g, 100)
	want := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// Each lane gives its own turns.
	both := func(what string, got map[byte]int) {
		t.Helper()
		if d := got[0] - got[1]; d < -4 || d > 4 {
			t.Errorf("%s: %v", what, got)
		}
	}
	old := pins.at(0, len(pins.pins))
	both("old flows", old)

	s.ctl("server", "drain", "app", "s0")
	s.ctl("server", "weight", "app", "s1", "7")
	want("new flows after drain", freshFlows(t, 50), map[byte]int{1: 50})
	want("old flows at the drained server", s.servers()["s0"].Flows, old[0])
	drained := []string{"backends[app].servers[s0].state: enabled -> draining", "backends[app].servers[s1].weight: 1 -> 7"}
	want("diff", s.orders(), drained)

	s.startReload().awaitCommit()
	want("new flows after a reload", freshFlows(t, 50), map[byte]int{1: 50})
	want("diff after a reload", s.orders(), drained)

	// The file says something else of s0 now, and nothing new of s1.
	s.write("dnsapp.yaml", proxiedBy("{udp_idle: 2s}", "", `{name: s0, address: "127.0.0.1:9000", weight: 7}`, `{name: s1, address: "127.0.0.1:9001"}`).yaml())
	s.startReload().awaitCommit()
	both("new flows after the file has changed", freshFlows(t, 50))
	want("diff after the file has changed", s.orders(), []string{"backends[app].servers[s1].weight: 1 -> 7"})

	if r := g.Stop(time.Second); r.Exact() != nil {
		t.Error(r.Exact())
	}
	want("old flows that moved", pins.moved.Load(), uint64(0))
	out, errs, code := s.tryCtl("server", "drain", "app", "s9")
	if code == 0 || !strings.Contains(string(errs), `has no server "s9"`) {
		t.Errorf("an unknown server: code %d, %s%s", code, out, errs)
	}
}

// A server that dies gets no new flow from one check interval on, and gets them
// again when it is back. What is known of it stays over a reload.
func TestProxyServerDies(t *testing.T) {
	const interval = 400 * time.Millisecond
	keys := fmt.Sprintf(", health: {check: udp, send: ping, interval: %v, timeout: 100ms, max_fails: 0}", interval)
	s := start(t, proxiedBy("{}", keys, `{name: s0, address: "127.0.0.1:9000"}`, `{name: s1, address: "127.0.0.1:9001"}`).yaml(), zoneFiles())
	dies := startEcho(t, 0)
	startEcho(t, 1)
	healthy := func(name, health string) func() bool {
		return func() bool { return s.servers()[name].Health == health }
	}
	s.await(startTimeout, "both are up", func() bool { return healthy("s0", "up")() && healthy("s1", "up")() })
	if got := freshFlows(t, 50); got[0] == 0 || got[1] == 0 {
		t.Errorf("new flows went to %v", got)
	}
	dies.stop()
	died := time.Now()
	s.await(startTimeout, "the dead one is down", healthy("s0", "down"))
	// The machine may be busy; the rule itself is tested in server/backend/health.
	if took := time.Since(died); took > interval+2*time.Second {
		t.Errorf("it took %v to see that a server was dead", took)
	}
	if got := freshFlows(t, 50); got[1] != 50 {
		t.Errorf("new flows went to %v", got)
	}
	s.reload()
	if got := s.servers()["s0"]; got.Health != "down" || got.Begun == 0 {
		t.Errorf("after a reload: %+v", got)
	}
	if got := freshFlows(t, 50); got[1] != 50 {
		t.Errorf("new flows after a reload went to %v", got)
	}
	startEcho(t, 0)
	s.await(startTimeout, "it is up again", healthy("s0", "up"))
	if got := freshFlows(t, 50); got[0] == 0 {
		t.Errorf("new flows went to %v", got)
	}
}
