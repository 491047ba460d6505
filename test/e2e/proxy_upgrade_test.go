package e2e

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

// longFlows are flows through the proxy that go on until stop.
type longFlows struct {
	*load.UDP
	pins *pinned
}

func startLongFlows(t *testing.T) longFlows {
	t.Helper()
	pins := newPinned(200)
	f := longFlows{startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{long4, long6}, Flows: len(pins.pins), Rate: 2000, Protocol: pins}), pins}
	awaitAnswers(t, f.UDP, 600)
	return f
}

// stop ends the flows, and fails the test if one of them has lost anything, its
// server or its port.
func (f longFlows) stop(t *testing.T, name string) {
	t.Helper()
	r := f.UDP.Stop(time.Second)
	t.Logf("%s: %v", name, r)
	if err := r.Exact(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if n := f.pins.moved.Load(); n != 0 {
		t.Errorf("%s: %d answers came by way of another server or port", name, n)
	}
}

// awaitDraining waits until this version has the instance, with a generation that
// drains.
func (s *server) awaitDraining(version string) {
	s.t.Helper()
	s.await(startTimeout, version+" has the instance, and a generation drains", func() bool {
		st, ok := s.tryStatus()
		return ok && st.Version == version && st.Step.Committed() && len(st.Generations) > 1 &&
			slices.ContainsFunc(st.Generations, func(g control.Generation) bool { return g.RxOwner && allReady(g) })
	})
}

// Flows of a proxy keep their server and their port for life: over upgrades and
// their way back, and over the deaths of supervisors, whoever adopts the workers.
// Nothing is lost, of flows of one datagram, too. The way back needs -soak: a
// supervisor stands by only when the flows before have ended.
func TestProxyUpgrade(t *testing.T) {
	config := proxied("{udp_idle: 1s}", 0, 1)
	config.workers, config.lanes = 2, 1
	s := start(t, config.yaml(), zoneFiles())
	next, old := s.next(), s.status().Version
	startEchoes(t)
	pins := newPinned(40000)
	short := startFlows(t, load.UDPConfig{Targets: []netip.AddrPort{short4}, Flows: len(pins.pins), Rate: 500, Once: true, Protocol: pins})
	before := metrics(t)
	goesOn := func(what string, f longFlows) {
		t.Helper()
		awaitAnswers(t, f.UDP, 600)
		awaitAnswers(t, short, 50)
		before = fallen(t, what, before)
	}

	f := startLongFlows(t)
	s.ctl("upgrade", "--binary", next, "--wait", "commit")
	s.awaitDraining(nextVersion)
	goesOn("upgrade", f)
	kill(t, s.status().PID, syscall.SIGKILL) // the old one adopts
	s.awaitDraining(old)
	goesOn("new supervisor killed", f)
	s.killSupervisor()
	awaitAnswers(t, f.UDP, 200)
	s.serve() // and adopts
	s.awaitDraining(old)
	goesOn("supervisor killed", f)
	f.stop(t, "flows over an upgrade and two deaths")
	if *soak {
		s.awaitVersion(old, false)
		f = startLongFlows(t)
		s.ctl("upgrade", "--binary", next, "--wait", "commit")
		s.awaitDraining(nextVersion)
		goesOn("upgrade", f)
		f.stop(t, "flows over an upgrade")
		s.awaitVersion(nextVersion, true)
		f = startLongFlows(t)
		s.ctl("upgrade", "--rollback", "--wait", "commit")
		s.awaitDraining(old)
		goesOn("rollback", f)
		f.stop(t, "flows over the way back")
	}

	r := short.Stop(time.Second)
	t.Logf("flows of one datagram: %v", r)
	if err := r.Exact(); err != nil {
		t.Errorf("flows of one datagram: %v", err)
	}
	s.awaitVersion(old, false)
	if l := s.ledger(); sum(l.Dropped)+sum(l.RingDropped)+l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
}
