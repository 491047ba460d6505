package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

const (
	ownershipIdle   = 2 * time.Second // reload.udp_idle of the tests
	ownershipRounds = 3
)

// scale is how much load the tests of ownership make.
type scale struct {
	old, fresh int // flows from before a reload and from after it
	rate       int // packets/s, old and new flows together
}

// freshRate is the rate of the new flows alone.
func (c scale) freshRate() int { return c.rate / 5 }

// overlap is how many packets new flows have had when old and new ones have been
// served side by side for 1.5 s.
func (c scale) overlap() uint64 { return uint64(c.freshRate() * 3 / 2) }

// owning is that scale: what a busy machine can do beside other things, or all of
// it with -soak.
func owning() scale {
	if *soak {
		return scale{old: 5000, fresh: 1250, rate: 50_000}
	}
	return scale{old: 2000, fresh: 500, rate: 20_000}
}

// identify starts identify flows of both families.
func identify(t *testing.T, flows, rate int) *load.UDP {
	t.Helper()
	g, err := load.StartUDP(load.UDPConfig{
		Targets: []netip.AddrPort{who4, who6}, Flows: flows, Rate: rate,
		Sources: []netip.Prefix{clients6}, Protocol: load.Identify{},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Open until the end of the test: the port of a closed socket could come
	// back, and a new flow on it would rightly be an old one.
	t.Cleanup(g.Close)
	return g
}

// account is what an ownership run came to.
type account struct {
	sent, lost, astray uint64
	faults             []error
}

func (a *account) add(r load.Report, epoch uint32) {
	a.sent += r.Sent
	a.lost += r.Lost()
	a.astray += r.Astray(epoch)
	if err := r.Exact(); err != nil {
		a.faults = append(a.faults, err)
	}
}

// ownership loads the server with old and new flows over three reloads, each
// begun after the last one's end. The new flows of a round are among the old ones
// of the next: a generation must know its flows from their first packet.
func ownership(s *server, a *account, each func(r control.ReloadReport, afterLast time.Duration)) {
	s.t.Helper()
	c := owning()
	oldRate := c.rate - c.freshRate()
	old := []*load.UDP{identify(s.t, c.old, oldRate)}
	awaitAnswers(s.t, old[0], uint64(c.old))
	for round := range ownershipRounds {
		before := s.epoch()
		r := s.startReload()
		r.awaitCommit()
		after := s.epoch()
		fresh := identify(s.t, c.fresh, c.freshRate())
		awaitAnswers(s.t, fresh, c.overlap())
		var last time.Time
		for _, g := range old {
			report := g.Stop(time.Second)
			last = time.Now()
			s.t.Logf("round %d, old flows: %v", round+1, report)
			a.add(report, before)
		}
		report := r.wait()
		each(report, r.ended.Sub(last))

		// The next round's old flows: these new ones, and others beside them.
		old = []*load.UDP{fresh}
		if round < ownershipRounds-1 {
			more := identify(s.t, c.old-c.fresh, oldRate-c.freshRate())
			awaitAnswers(s.t, more, uint64(c.old-c.fresh))
			old = append(old, more)
			continue
		}
		final := fresh.Stop(time.Second)
		s.t.Logf("the last round's new flows: %v", final)
		a.add(final, after)
	}
}

// Flows stay with the generation that began them, to the last packet, and new
// ones belong to the new generation, over three reloads at 20k packets/s (50k with
// -soak); a reload ends within udp_idle + 1 s of the last packet of an old flow.
func TestOwnership(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 2s}"}.yaml(), zoneFiles())
	first := s.epoch()
	var a account
	rounds := uint32(0)
	ownership(s, &a, func(r control.ReloadReport, afterLast time.Duration) {
		rounds++
		t.Logf("round %d: reload ended %v after the last old packet; gap %v, handed %d, window %+v", rounds, afterLast, r.Gap.Duration(), r.Handed, r.Window)
		if limit := ownershipIdle + time.Second; afterLast > limit {
			t.Errorf("round %d: the reload ended %v after the last old packet, later than %v", rounds, afterLast, limit)
		}
		if r.FromEpoch != first+rounds-1 || r.ToEpoch != first+rounds {
			t.Errorf("round %d: from epoch %d to %d, want %d to %d", rounds, r.FromEpoch, r.ToEpoch, first+rounds-1, first+rounds)
		}
		if r.Window.Forwarded == 0 {
			t.Errorf("round %d: nothing was forwarded: the load did not test what it is for", rounds)
		}
		if r.Handed != 0 {
			t.Errorf("round %d: %d flows were handed over, though all had ended", rounds, r.Handed)
		}
	})
	for _, err := range a.faults {
		t.Error(err)
	}
	if a.astray != 0 {
		t.Errorf("%d answers came from the wrong generation", a.astray)
	}
	if l := s.ledger(); l.Received != a.sent || sum(l.Dropped) != 0 || sum(l.RingDropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("%d packets were sent; ledger %+v", a.sent, l)
	}
}

// The same over a listener whose answers carry the id of their query: here a
// doubled answer cannot hide a lost one.
func TestOwnershipByID(t *testing.T) {
	at := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5301"), netip.MustParseAddrPort("[::1]:5301")}
	more := fmt.Sprintf("  - {name: kept, address: [\"%v\", \"%v\"], transport: [udp], service: dns, affinity: flow}\n", at[0], at[1])
	s := start(t, settings{workers: 2, reload: "{udp_idle: 1s}", more: more}.yaml(), zoneFiles())
	generation := func(flows, rate int) *load.UDP {
		p, err := load.NewDNS([]load.Query{generationQuery})
		if err != nil {
			t.Fatal(err)
		}
		g, err := load.StartUDP(load.UDPConfig{Targets: at, Flows: flows, Rate: rate, Sources: []netip.Prefix{clients6}, Protocol: p})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		return g
	}
	before := s.epoch()
	old := generation(400, 8000)
	awaitAnswers(t, old, 800)
	r := s.startReload()
	r.awaitCommit()
	fresh := generation(100, 2000)
	awaitAnswers(t, fresh, 2000)
	var a account
	a.add(old.Stop(time.Second), before)
	report := r.wait()
	a.add(fresh.Stop(time.Second), before+1)
	t.Logf("sent %d, lost %d, astray %d, forwarded %d", a.sent, a.lost, a.astray, report.Window.Forwarded)
	for _, err := range a.faults {
		t.Error(err)
	}
	if a.astray != 0 || report.Window.Forwarded == 0 {
		t.Errorf("%d answers of the wrong generation; window %+v", a.astray, report.Window)
	}
}

// The same load on the plain way to reload loses packets or sends them to the
// wrong generation: the test above can fail.
func TestOwnershipOfRestartFails(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 2s, mode: restart}"}.yaml(), zoneFiles())
	var a account
	ownership(s, &a, func(control.ReloadReport, time.Duration) {})
	t.Logf("sent %d, lost %d, astray %d", a.sent, a.lost, a.astray)
	if a.lost == 0 && a.astray == 0 {
		t.Error("a restart lost nothing and kept every flow: the test does not see what it is there to see")
	}
}
