package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/test/load"
)

// Rates of the tests here, packets/s: of each generation's flows.
const (
	overlapFlows = 300
	overlapRate  = 3000
	sideBySide   = 3000 // answers of each generation's flows while all live
)

// overlapping has as many generations live at once as there can be, each with
// flows of its own under load, and ends them youngest flows last.
func overlapping(s *server, a *account) {
	s.t.Helper()
	first := s.epoch()
	var flows []*load.UDP
	var reloads []*reloading
	for n := range directory.MaxSlots {
		if n > 0 {
			r := s.startReload()
			r.awaitCommit()
			reloads = append(reloads, r)
		}
		g := identify(s.t, overlapFlows, overlapRate)
		awaitAnswers(s.t, g, overlapFlows)
		flows = append(flows, g)
	}
	for _, g := range flows {
		awaitAnswers(s.t, g, sideBySide)
	}
	for n, g := range flows {
		report := g.Stop(time.Second)
		s.t.Logf("flows of epoch %d: %v", first+uint32(n), report)
		a.add(report, first+uint32(n))
	}
	for _, r := range reloads {
		r.wait()
	}
}

// Four generations live at once, each with its own flows: none goes astray, and
// nothing is lost.
func TestFourGenerations(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 2s}"}.yaml(), zoneFiles())
	var a account
	overlapping(s, &a)
	for _, err := range a.faults {
		t.Error(err)
	}
	if a.astray != 0 {
		t.Errorf("%d of %d answers came from the wrong generation", a.astray, a.sent)
	}
	if l := s.ledger(); l.Received != a.sent || sum(l.Dropped) != 0 || sum(l.RingDropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("%d packets were sent; ledger %+v", a.sent, l)
	}
}

// The same load on the plain way to reload shows what the test above looks for.
func TestFourGenerationsOfRestartFail(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 2s, mode: restart}"}.yaml(), zoneFiles())
	var a account
	overlapping(s, &a)
	if a.lost == 0 && a.astray == 0 {
		t.Error("a restart lost nothing and kept every flow: the test does not see what it is there to see")
	}
}

// Flows that never stop are handed over at the deadline, once and without a
// loss; so they are when a newer generation needs the slot.
func TestEndlessFlows(t *testing.T) {
	const flows = 50
	for name, tt := range map[string]struct {
		reload  string
		further int // reloads behind the one that is looked at
		reason  string
	}{
		"deadline": {"{udp_idle: 10s, shutdown_timeout: 1s}", 0, "deadline"},
		"overlap":  {"{udp_idle: 10s}", directory.MaxSlots - 1, "finished for a newer generation"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, settings{workers: 2, reload: tt.reload}.yaml(), zoneFiles())
			before := s.epoch()
			g := identify(t, flows, 2000)
			awaitAnswers(t, g, 5*flows)
			reloads := []*reloading{s.startReload()}
			reloads[0].awaitCommit()
			var others []*load.UDP
			for range tt.further {
				other := identify(t, 10, 100)
				awaitAnswers(t, other, 20)
				r := s.startReload()
				r.awaitCommit()
				others, reloads = append(others, other), append(reloads, r)
			}
			first := reloads[0].wait()
			if first.Reason != tt.reason || first.Handed != flows {
				t.Errorf("%d flows handed over (%s), want %d (%s)", first.Handed, first.Reason, flows, tt.reason)
			}
			awaitAnswers(t, g, 5*flows)
			report := g.Stop(time.Second)
			t.Logf("%v", report)
			if err := report.Exact(); err != nil {
				t.Error(err)
			}
			// The owner at that time keeps them: a generation that came later forwards them.
			owner := before + uint32(max(tt.further, 1))
			if epochs := report.Epochs(); len(epochs) != 2 || epochs[before] == 0 || epochs[owner] == 0 {
				t.Errorf("answers by epoch: %v, want those of %d and %d", epochs, before, owner)
			}
			for _, other := range others {
				rest := other.Stop(time.Second)
				if err := rest.Exact(); err != nil {
					t.Error(err)
				}
			}
			if tt.further > 0 {
				return // the rest drains for udp_idle
			}
			for _, r := range reloads {
				r.wait()
			}
		})
	}
}

// Reloads as fast as they commit, with drains cut short: everything is answered,
// and nothing is left of the generations.
func TestReloadStorm(t *testing.T) {
	const reloads = 50
	s := start(t, settings{workers: 2, reload: "{udp_idle: 100ms, shutdown_timeout: 300ms}"}.yaml(), zoneFiles())
	p := startProbe(t)
	flows := identify(t, 500, 5000)
	awaitAnswers(t, flows, 1000)
	before := s.epoch()
	for range reloads {
		s.ctl("reload", "--wait", "commit")
	}
	if got := s.epoch(); got != before+reloads {
		t.Errorf("epoch %d after %d reloads, was %d", got, reloads, before)
	}
	for _, r := range []load.Report{p.stop(), flows.Stop(time.Second)} {
		t.Logf("%v", r)
		if err := r.Exact(); err != nil {
			t.Error(err)
		}
	}
	s.await(5*time.Second, "one generation is left", func() bool { return len(s.status().Generations) == 1 })
	s.ledger()
	if got := s.processes(); len(got) != 3 {
		t.Errorf("processes %v: not the supervisor and two workers", got)
	}
}

// The workers of a new generation die again and again while the old one drains:
// the old one takes the wire back, and serves old and new flows.
func TestTakeBack(t *testing.T) {
	s := start(t, settings{reload: "{udp_idle: 10s}"}.yaml(), zoneFiles())
	first := s.epoch()
	g := identify(t, 20, 500)
	awaitAnswers(t, g, 100)
	r := s.startReload()
	r.awaitCommit()
	killed := map[int]bool{}
	s.await(20*time.Second, "the old generation has the wire again", func() bool {
		for _, gen := range s.status().Generations {
			if gen.RxOwner && gen.Epoch == first {
				return true
			}
			if w := gen.Workers[0]; gen.RxOwner && w.Ready && !w.Gone && !killed[w.PID] {
				killed[w.PID] = true
				kill(t, w.PID, syscall.SIGKILL)
			}
		}
		return false
	})
	select {
	case <-r.done:
	case <-time.After(commandTimeout):
		t.Fatal("the reload has no report")
	}
	if r.report.Outcome != control.OutcomeReverted || !strings.Contains(r.report.Reason, fmt.Sprintf("epoch %d end again and again", first+1)) {
		t.Errorf("outcome %s: %s", r.report.Outcome, r.report.Reason)
	}
	fresh := identify(t, 20, 500)
	awaitAnswers(t, fresh, 200)
	after := fresh.Stop(time.Second)
	if err := after.Exact(); err != nil {
		t.Error(err)
	}
	if n := after.Astray(first); n != 0 {
		t.Errorf("%d answers are not of epoch %d: %v", n, first, after.Epochs())
	}
	report := g.Stop(time.Second)
	// A burst that a worker had in hand dies with it, and nothing else.
	if lost := report.Lost(); lost > uint64(len(killed))*64 || report.Astray(first) != 0 {
		t.Errorf("%d lost over %d kills: %v", lost, len(killed), report)
	}
	s.await(20*time.Second, "nothing is left of the new generation", func() bool { return len(s.status().Generations) == 1 })

	// And it reloads as ever.
	s.reload()
}
