package e2e

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
)

// The wire goes back while a worker of the new generation lives: that keeps its
// flows, which are forwarded to it as those of any generation that drains. The
// flows of the dead worker, and new ones, are the older generation's.
func TestTakeBackKeepsFlows(t *testing.T) {
	const dead, alive = 0, 1
	s := start(t, settings{workers: 2, reload: "{udp_idle: 2s}"}.yaml(), zoneFiles())
	first := s.epoch()
	hold := identify(t, 1, 10) // keeps the first generation
	awaitAnswers(t, hold, 5)
	r := s.startReload()
	r.awaitCommit()

	type client struct {
		conn  net.Conn
		owner int // worker
	}
	var clients []client
	for range 40 {
		c, err := net.Dial("udp", who4.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		tag := whoAnswersOn(t, c)
		if tag.Epoch != first+1 {
			t.Fatalf("a new flow is served by %+v", tag)
		}
		clients = append(clients, client{c, tag.Worker})
	}
	owner := func() uint32 {
		for _, g := range s.status().Generations {
			if g.RxOwner {
				return g.Epoch
			}
		}
		return 0
	}
	for _, worker := range []int{alive, dead} {
		killed := map[int]bool{}
		s.await(20*time.Second, "its worker ends again and again", func() bool {
			for _, g := range s.status().Generations {
				if g.Epoch != first+1 || worker >= len(g.Workers) {
					continue
				}
				w := g.Workers[worker]
				if w.Ready && !w.Gone && !killed[w.PID] && len(killed) < 4 {
					kill(t, w.PID, syscall.SIGKILL)
					killed[w.PID] = true
				}
				return len(killed) == 4 && (worker == dead || w.Ready && !w.Gone && !killed[w.PID])
			}
			return false
		})
	}
	s.await(10*time.Second, "the older generation has the wire again", func() bool { return owner() == first })
	var of [2]int
	for _, c := range clients {
		of[c.owner]++
		tag := whoAnswersOn(t, c.conn)
		switch {
		case c.owner == alive && (tag.Epoch != first+1 || tag.Worker != alive):
			t.Errorf("a flow of the worker that lives is served by %+v", tag)
		case c.owner == dead && tag.Epoch != first:
			t.Errorf("a flow of the worker that died is served by %+v", tag)
		}
	}
	if of[dead] == 0 || of[alive] == 0 {
		t.Errorf("flows by worker: %v: the test did not see what it is there to see", of)
	}
	if tag := whoAnswers(t, "udp", who4.String()); tag.Epoch != first {
		t.Errorf("a new flow is served by %+v", tag)
	}
	report := hold.Stop(time.Second)
	if err := report.Exact(); err != nil || report.Astray(first) != 0 {
		t.Errorf("flows of the older generation: %v: %v", report, err)
	}
	<-r.done
	if r.report.Outcome != control.OutcomeReverted {
		t.Errorf("outcome %s: %s", r.report.Outcome, r.report.Reason)
	}
	s.await(20*time.Second, "the generation that lost the wire has ended", func() bool { return len(s.status().Generations) == 1 })
	s.ledger()
	s.reload()
}
