package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// The listener that these tests change.
var extra = netip.MustParseAddrPort("127.0.0.1:5312")

// changing returns the configuration with the extra listener on addr.
func changing(mode, addr, affinity string) string {
	return settings{
		workers: 2, reload: "{udp_idle: 500ms, mode: " + mode + "}",
		more: fmt.Sprintf("  - {name: extra, address: [%q], service: identify, affinity: %s}\n", addr, affinity),
	}.yaml()
}

// extraLoad is flows, connections in use, and one connection a request, to the extra
// listener.
type extraLoad struct {
	udp             *load.UDP
	lasting, single *load.TCP
}

// extraFlows starts flows to the extra listener.
func extraFlows(t *testing.T) *load.UDP {
	t.Helper()
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{extra}, Flows: 100, Rate: 2000, Protocol: load.Identify{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	awaitAnswers(t, g, 500)
	return g
}

func startExtra(t *testing.T) *extraLoad {
	t.Helper()
	x := &extraLoad{udp: extraFlows(t)}
	targets := []netip.AddrPort{extra}
	var err error
	if x.lasting, err = load.StartTCP(load.TCPConfig{Targets: targets, Clients: 4, Rate: 400, Protocol: load.Identify{}}); err != nil {
		t.Fatal(err)
	}
	if x.single, err = load.StartTCP(load.TCPConfig{Targets: targets, Clients: 4, Rate: 400, PerConn: 1, Protocol: load.Identify{}}); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *extraLoad) stop() map[string]load.Report {
	return map[string]load.Report{
		"UDP": x.udp.Stop(time.Second), "connections": x.lasting.Stop(time.Second), "a connection a request": x.single.Stop(time.Second),
	}
}

// narrowAndWiden moves the extra listener from the wildcard to one address and back,
// under load to that address, some times. It reports whether nothing was lost, nor
// refused.
func narrowAndWiden(t *testing.T, mode string) (exact bool) {
	t.Helper()
	const narrow, wide = "127.0.0.1:5312", "0.0.0.0:5312"
	s := start(t, changing(mode, wide, "flow"), zoneFiles())
	x := startExtra(t)
	for _, addr := range []string{narrow, wide, narrow, wide} {
		s.write("dnsapp.yaml", changing(mode, addr, "flow"))
		s.reload("--wait", "commit")
		awaitAnswers(t, x.udp, 500)
		if mode == "graceful" {
			if tag := whoAnswers(t, "tcp", extra.String()); tag.Epoch != s.epoch() {
				t.Errorf("at %s a new connection is served by %+v", addr, tag)
			}
			if other := "127.0.0.9:5312"; addr == wide {
				if tag := whoAnswers(t, "udp", other); tag.Epoch != s.epoch() {
					t.Errorf("at %s another address is served by %+v", addr, tag)
				}
			}
		}
	}
	exact = true
	for name, r := range x.stop() {
		t.Logf("%s: %v", name, r)
		if err := r.Exact(); err != nil {
			exact = false
			t.Logf("%s: %v", name, err)
		}
	}
	return exact
}

// A listener goes from the wildcard to one address, and back, by reloads: nothing
// that is sent to that address is lost, and no connection is refused or reset.
func TestNarrowAndWiden(t *testing.T) {
	if !narrowAndWiden(t, "graceful") {
		t.Error("not everything was answered")
	}
}

// The same load on the plain way to reload shows what the test above looks for.
func TestNarrowAndWidenOfRestartFails(t *testing.T) {
	if narrowAndWiden(t, "restart") {
		t.Error("a restart lost nothing: the test does not see what it is there to see")
	}
}

// affinity changes by a reload. Without it the new generation serves every datagram
// from the commit on; with it, it does so the first time, for the old one has
// recorded no flows, and from then on they stay where they are.
func TestAffinityChanges(t *testing.T) {
	s := start(t, changing("graceful", extra.String(), "flow"), zoneFiles())
	c, owner := extraFlows(t), s.epoch()
	for n, step := range []struct {
		affinity string
		stays    bool // the flows, with the generation that has them
	}{{"flow", true}, {"none", false}, {"none", false}, {"flow", false}, {"flow", true}} {
		s.write("dnsapp.yaml", changing("graceful", extra.String(), step.affinity))
		s.reload("--wait", "commit")
		if !step.stays {
			owner = s.epoch()
		}
		before := c.Report()
		awaitAnswers(t, c, 500)
		after := c.Report()
		answered, by := after.Answered-before.Answered, after.Epochs()[owner]-before.Epochs()[owner]
		// What was in flight at the commit counts as the former's.
		if answered-by > 100 {
			t.Errorf("step %d, affinity %s: epoch %d answered %d of %d: %v", n, step.affinity, owner, by, answered, after.Epochs())
		}
		if step.stays { // else the flows would keep all generations
			s.ctl("drain", fmt.Sprint(owner), "--now")
			owner = s.epoch()
		}
		s.awaitSteady()
	}
	r := c.Stop(time.Second)
	t.Logf("%v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.ledger()
}
