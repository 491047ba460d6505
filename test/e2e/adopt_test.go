package e2e

import (
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
)

// killSupervisor kills the supervisor that the test has started.
func (s *server) killSupervisor() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	s.awaitExit(5 * time.Second)
}

// fallen reports counters that are less than before, and returns them as they are.
func fallen(t *testing.T, when string, before map[string]float64) map[string]float64 {
	t.Helper()
	after := metrics(t)
	for name, was := range before {
		if now, ok := after[name]; strings.HasPrefix(name, "dnsapp_") && isCounter(name) && (!ok || now < was) {
			t.Errorf("%s: %s was %v, and is %v", when, name, was, now)
		}
	}
	return after
}

// A supervisor that is killed at any step of a reload is missed by nobody: the
// workers serve on, and the next supervisor adopts them, ends what was under way,
// and reloads. No answer is lost meanwhile, and no counter falls.
func TestAdoption(t *testing.T) {
	s := newServer(t, settings{workers: 2, reload: "{udp_idle: 200ms, shutdown_timeout: 300ms}"}.yaml(), zoneFiles())
	h := newHolder(s)
	s.serve()
	s.awaitReady()
	p := startProbe(t)
	before := metrics(t)
	for _, when := range slices.Sorted(maps.Keys(places)) {
		place := places[when]
		caught := h.catch(place)
		r := s.startReload()
		at := awaitHeld(t, caught, place)
		if at.pid != s.cmd.Process.Pid {
			t.Fatalf("%s: process %d waits, the supervisor is %d", when, at.pid, s.cmd.Process.Pid)
		}
		s.killSupervisor()
		at.release()
		<-r.done
		awaitAnswers(t, p.dns, 20)
		awaitAnswers(t, p.who, 20)
		s.serve()
		s.awaitReady()
		before = fallen(t, "killed at "+string(when), before)
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	if got := s.processes(); len(got) != 3 {
		t.Errorf("processes %v: not the supervisor and two workers", got)
	}
	if l := s.ledger(); sum(l.Dropped) != 0 || sum(l.RingDropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// With --fresh the workers of an earlier supervisor are ended, and with them all
// they had.
func TestFresh(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	old := s.workers()
	s.killSupervisor()
	s.serve("--fresh")
	s.awaitReady()
	for _, pid := range old {
		if slices.Contains(s.processes(), pid) {
			t.Errorf("worker %d is still there", pid)
		}
	}
	if e := s.epoch(); e != 1 {
		t.Errorf("epoch %d", e)
	}
}

// What was adopted serves on when the configuration of the next supervisor cannot
// be loaded, until one can.
func TestAdoptionWithBrokenZone(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	epoch := s.epoch()
	s.killSupervisor()
	s.write("example.com.zone", "broken\n")
	s.serve()
	s.awaitReady()
	if got := s.epoch(); got != epoch {
		t.Errorf("epoch %d serves, not %d", got, epoch)
	}
	if got := soaSerial(t, dns4); got != 1 {
		t.Errorf("serial %d", got)
	}
	s.write("example.com.zone", zone(2))
	if r := s.reload(); r.FromEpoch != epoch || r.Outcome != control.OutcomeDone {
		t.Errorf("report %+v", r)
	}
	if got := soaSerial(t, dns4); got != 2 {
		t.Errorf("serial %d", got)
	}
}

// A worker that stands still when the next supervisor comes is ended; the others
// are kept.
func TestAdoptionOfStoppedWorker(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	pids := s.workers()
	s.killSupervisor()
	kill(t, pids[0], syscall.SIGSTOP) // not before: the kernel continues what a dead parent leaves stopped
	s.serve()
	s.awaitReady()
	if slices.Contains(s.processes(), pids[0]) {
		t.Errorf("worker %d is still there", pids[0])
	}
}

// A stop that its supervisor has not survived is finished by the next one, which
// starts anew.
func TestAdoptionOfStop(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	c, err := net.Dial("tcp", who4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	epoch, pids := s.epoch(), s.workers()
	trickle := make(chan struct{})
	go func() { // a connection in use, which holds the stop up
		defer close(trickle)
		for b := make([]byte, 512); ; {
			if _, err := c.Write([]byte("who\n")); err != nil {
				return
			}
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	s.signal(syscall.SIGQUIT)
	s.await(5*time.Second, "the stop waits", func() bool { return strings.Contains(s.log(), "waits_for") })
	s.killSupervisor()
	s.serve()
	s.awaitReady()
	<-trickle
	if got := s.epoch(); got <= epoch {
		t.Errorf("epoch %d after %d", got, epoch)
	}
	for _, pid := range pids {
		if slices.Contains(s.processes(), pid) {
			t.Errorf("worker %d is still there", pid)
		}
	}
}

// A drain that its supervisor has not survived ends when it was to end, and not a
// whole shutdown_timeout after the next supervisor has come.
func TestAdoptionOfDrain(t *testing.T) {
	s := start(t, settings{reload: "{udp_idle: 1m, shutdown_timeout: 1m}"}.yaml(), zoneFiles())
	flows := identify(t, 20, 200)
	awaitAnswers(t, flows, 20)
	s.reload("--wait", "commit")
	left := func() time.Duration {
		t.Helper()
		for _, g := range s.status().Generations {
			if d := g.Drain; d != nil {
				return d.DeadlineLeft.Duration()
			}
		}
		t.Fatal("no generation drains")
		return 0
	}
	began, first := time.Now(), left()
	for range 2 {
		s.killSupervisor()
		s.serve()
		s.await(startTimeout, "the next supervisor serves", func() bool { st, ok := s.tryStatus(); return ok && st.Step.Committed() })
		<-time.After(time.Second)
		gone := time.Since(began)
		if got := left(); got > first-gone+100*time.Millisecond || got < first-gone-time.Second {
			t.Errorf("%v are left of the drain after %v; there were %v", got, gone, first)
		}
	}
	r := flows.Stop(time.Second)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
}
