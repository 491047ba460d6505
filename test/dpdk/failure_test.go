package dpdk

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

// healthy checks that a load of a second is answered wholly.
func (s *server) healthy(when string) {
	s.t.Helper()
	protocol, err := load.NewDNS([]load.Query{{Name: "www.example.com", Type: 1}})
	if err != nil {
		s.t.Fatal(err)
	}
	g := generate(s.t, load.UDPConfig{Targets: []netip.AddrPort{dns4, dns6}, Flows: 32, Rate: 2000, Protocol: protocol})
	s.until(commandTimeout, "a second's load is answered", func() bool { r := g.Report(); return r.Offered > 2000 })
	if r := g.Stop(grace); r.Exact() != nil {
		s.t.Errorf("%s: %v\n%v", when, r.Exact(), r)
	}
	g.Close()
}

// whole reports whether every worker of the owner is ready, and none of them is of
// gone.
func (s *server) whole(gone ...int) bool {
	s.t.Helper()
	st, ok := s.tryStatus()
	at := slices.IndexFunc(st.Generations, func(g control.Generation) bool { return g.RxOwner })
	if !ok || at < 0 {
		return false
	}
	return !slices.ContainsFunc(st.Generations[at].Workers, func(w control.Worker) bool { return !w.Ready || w.Gone || slices.Contains(gone, w.PID) })
}

func (s *server) kill(pid int) {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
}

// A worker that is killed, of the owner of the wire or of a generation that drains, is
// replaced, or its flows are served by the owner; others are not touched, and what it
// had in hand goes back to the pool.
func TestWorkersKilled(t *testing.T) {
	s := start(t, 2, "")
	for round := range rounds(3, 50) {
		was := s.owner()
		victim := was.Workers[round%2].PID
		killed := time.Now()
		s.kill(victim)
		s.until(commandTimeout, "the worker is back", func() bool { return s.whole(victim) })
		t.Logf("round %d: back after %v", round, time.Since(killed).Round(time.Millisecond))
		s.healthy("after the death of a worker of the owner")
		flows := generate(t, load.UDPConfig{Targets: []netip.AddrPort{who4, who6}, Flows: 20, Rate: 500, Protocol: load.Identify{}})
		s.until(commandTimeout, "each flow has begun", func() bool { r := flows.Report(); return r.Answered > 200 })
		s.ctl("reload", "--wait", "commit")
		for _, w := range s.status().Generations {
			if w.Epoch == was.Epoch {
				s.kill(w.Workers[0].PID)
				s.kill(w.Workers[1].PID)
			}
		}
		s.until(commandTimeout, "the old generation is gone", func() bool { return len(s.status().Generations) == 1 })
		s.healthy("after the death of those that drained")
		if r := flows.Stop(grace); r.Lost() > 20*5 || r.Duplicate+r.Stray+r.Malformed > 0 {
			t.Errorf("flows whose generation was killed: %v", r)
		}
		flows.Close()
		s.until(commandTimeout, "what the dead had is given back", func() bool {
			st := s.pool()
			return len(st.Secondaries) == 2 && st.Pool.Astray == 0
		})
	}
}

// A worker that stands still is found out, though nobody sees from outside what waits in
// its queues, and is replaced.
func TestWorkerStopped(t *testing.T) {
	s := start(t, 2, "")
	victim := s.owner().Workers[1].PID
	if err := syscall.Kill(victim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	s.until(commandTimeout, "the worker is replaced", func() bool { return s.whole(victim) })
	t.Logf("back after %v", time.Since(stopped).Round(time.Millisecond))
	s.healthy("after its replacement")
	s.pool()
}

// A supervisor that is killed is not missed, and the next one has the workers and the
// primary.
func TestSupervisorKilled(t *testing.T) {
	s := start(t, 2, "")
	was := s.owner()
	protocol, err := load.NewDNS([]load.Query{{Name: "www.example.com", Type: 1}})
	if err != nil {
		t.Fatal(err)
	}
	g := generate(t, load.UDPConfig{Targets: []netip.AddrPort{dns4, dns6}, Flows: 32, Rate: 2000, Protocol: protocol})
	s.kill(s.cmd.Process.Pid)
	s.until(commandTimeout, "it goes on", func() bool { r := g.Report(); return r.Offered > 1000 })
	s.serve()
	s.until(startTimeout, "the next one is there", func() bool { return s.whole() })
	if now := s.owner(); now.Epoch != was.Epoch || now.Workers[0].PID != was.Workers[0].PID {
		t.Errorf("epoch %d with %v, not %d with %v", now.Epoch, now.Workers, was.Epoch, was.Workers)
	}
	s.ctl("reload")
	if r := g.Stop(grace); r.Exact() != nil {
		t.Errorf("%v\n%v", r.Exact(), r)
	}
	s.pool()
}

// The primary outlives a stop, and the next start uses it again.
func TestStopAndStart(t *testing.T) {
	s := start(t, 2, "")
	was := s.pool()
	s.ctl("stop")
	s.until(commandTimeout, "nobody is left", func() bool { return len(s.pool().Secondaries) == 0 })
	if now := s.pool(); now.PID != was.PID || now.Pool.Free+now.Pool.Rx != now.Pool.Size {
		t.Errorf("after the stop: pid %d, not %d, and %+v", now.PID, was.PID, now.Pool)
	}
	s.serve()
	s.until(startTimeout, "it serves again", func() bool { return s.whole() })
	s.healthy("after the start")
	if now := s.pool(); now.PID != was.PID {
		t.Errorf("the primary is %d, and was %d", now.PID, was.PID)
	}
}

// A primary that is killed is not missed by those who serve. A reload is refused, and
// says why; when a worker ends, all are started again on a new primary.
func TestPrimaryKilled(t *testing.T) {
	s := start(t, 2, "")
	st, err := s.client.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.kill(st.PID)
	s.until(commandTimeout, "its death is told", func() bool {
		log, err := os.ReadFile(s.dir + "/log")
		return err == nil && strings.Contains(string(log), "the primary has died")
	})
	s.healthy("after the death of the primary")
	if _, errs, code := s.tryCtl("reload"); code == 0 || !strings.Contains(string(errs), "the primary has died") {
		t.Errorf("a reload: code %d, %s", code, errs)
	}
	s.healthy("after the refusal")
	var old []int
	for _, w := range s.owner().Workers {
		old = append(old, w.PID)
	}
	killed := time.Now()
	s.kill(old[0])
	s.until(commandTimeout, "all are back", func() bool { return s.whole(old...) })
	t.Logf("back after %v", time.Since(killed).Round(time.Millisecond))
	s.plug() // with the processes the tap went
	s.reachable()
	s.healthy("on the new primary")
	s.ctl("reload")
	s.pool()
}
