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

// each is the scale of one of four generations: a quarter of all flows, and of
// what they send. sideBySide is how many answers the flows of each have while all
// four live.
func (c scale) each() (flows, rate int, sideBySide uint64) {
	rate = c.rate / directory.MaxSlots
	return c.old / directory.MaxSlots, rate, uint64(rate)
}

// overlapping has as many generations live at once as there can be, each with
// flows of its own under load, and ends them youngest flows last.
func overlapping(s *server, a *account) {
	s.t.Helper()
	count, rate, sideBySide := owning().each()
	first := s.epoch()
	var flows []*load.UDP
	var reloads []*reloading
	for n := range directory.MaxSlots {
		if n > 0 {
			r := s.startReload()
			r.awaitCommit()
			reloads = append(reloads, r)
		}
		g := identify(s.t, count, rate)
		awaitAnswers(s.t, g, uint64(count))
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
	// Few, so that each sends between the hand-over and the flip of the reload that
	// waits for the slot: it is then the owner's of that time for good.
	few := scale{old: 50, rate: 2000}
	many := few
	if *soak {
		many = owning()
	}
	for name, tt := range map[string]struct {
		reload  string
		further int // reloads behind the one that is looked at
		reason  string
		load    scale
	}{
		"deadline": {"{udp_idle: 10s, shutdown_timeout: 1s}", 0, "deadline", many},
		"overlap":  {"{udp_idle: 10s}", directory.MaxSlots - 1, "finished for a newer generation", few},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, settings{workers: 2, reload: tt.reload}.yaml(), zoneFiles())
			before := s.epoch()
			g := identify(t, tt.load.old, tt.load.rate)
			awaitAnswers(t, g, uint64(5*tt.load.old))
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
			if first.Reason != tt.reason || first.Handed != tt.load.old {
				t.Errorf("%d flows handed over (%s), want %d (%s)", first.Handed, first.Reason, tt.load.old, tt.reason)
			}
			awaitAnswers(t, g, uint64(5*tt.load.old))
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
		return s.killOwner(first, killed) == first
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

// killOwner kills the worker of the generation that reads the wire, once each and
// unless that is the first one, and returns which generation that is, 0 for none.
func (s *server) killOwner(first uint32, killed map[int]bool) uint32 {
	s.t.Helper()
	for _, gen := range s.status().Generations {
		if !gen.RxOwner {
			continue
		}
		if w := gen.Workers[0]; gen.Epoch != first && w.Ready && !w.Gone && !killed[w.PID] {
			killed[w.PID] = true
			kill(s.t, w.PID, syscall.SIGKILL)
		}
		return gen.Epoch
	}
	return 0
}

// With the plain way to reload nothing is left that could take the wire back.
func TestTakeBackOfRestartFails(t *testing.T) {
	s := start(t, settings{reload: "{udp_idle: 10s, mode: restart}"}.yaml(), zoneFiles())
	first := s.epoch()
	g := identify(t, 20, 500)
	awaitAnswers(t, g, 100)
	s.reload()
	killed := map[int]bool{}
	s.await(20*time.Second, "the new generation has died four times", func() bool {
		return s.killOwner(first, killed) != first && len(killed) == 4
	})
	awaitAnswers(t, g, 100)
	report := g.Stop(time.Second)
	t.Logf("%v", report)
	if report.Lost() == 0 && report.Astray(first) == 0 {
		t.Error("a restart whose workers die lost nothing and kept every flow: the test does not see what it is there to see")
	}
}
