package e2e

import (
	"syscall"
	"testing"
	"time"
)

// What waits in a socket that the next generation lacks, because it has fewer
// workers, is answered though the worker that should have read it is dead when
// the wire changes hands: a sibling empties it before it is closed. (This lost
// whatever had come while the worker stood still.)
func TestLeftoversOfDeadWorker(t *testing.T) {
	for _, c := range []struct{ name, reload string }{
		{"drained", "{heartbeat_timeout: 500ms, udp_idle: 100ms}"},
		{"deadline", "{heartbeat_timeout: 500ms, shutdown_timeout: 0s}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := settings{workers: 3, reload: c.reload}
			s := start(t, set.yaml(), zoneFiles())
			pids := s.workers()
			p := startProbe(t)
			p.who.Stop(time.Second) // flows would keep the generation
			for _, pid := range pids[1:] {
				s.stop(pid)
			}
			sent := p.dns.Report().Sent
			s.await(5*time.Second, "traffic waits for them", func() bool { return p.dns.Report().Sent > sent+50 })
			set.workers = 1
			s.write("dnsapp.yaml", set.yaml())
			s.reload()
			awaitAnswers(t, p.dns, 100)
			sum := p.dns.Stop(time.Second)
			t.Logf("probe: %v", sum)
			// A stopped worker may have a burst in hand, and then it is gone with it.
			if sum.Lost() > 8 || sum.Duplicate+sum.Stray+sum.Malformed != 0 {
				t.Errorf("probe: %v", sum)
			}
			if syscall.Kill(pids[0], 0) == nil {
				t.Errorf("worker %d of the old generation is left", pids[0])
			}
		})
	}
}
