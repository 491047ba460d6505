package e2e

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// kill sends a worker a signal.
func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// A killed worker comes back in place, in the same generation, under traffic that
// sees next to nothing of it.
func TestWorkerRespawned(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	epoch, pids := s.epoch(), s.workers()
	p := startProbe(t)
	for i, pid := range pids {
		kill(t, pid, syscall.SIGKILL)
		s.await(10*time.Second, "the worker is back", func() bool {
			now := s.status().Generations[0]
			return allReady(now) && now.Workers[i].PID != pid
		})
		awaitAnswers(t, p.dns, 100)
		awaitAnswers(t, p.who, 100)
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	// A burst that a worker had in hand dies with it, and nothing else.
	if r.Lost() > uint64(len(pids))*64 || r.Duplicate+r.Stray+r.Malformed != 0 {
		t.Errorf("probe: %v", r)
	}
	if r.Astray(epoch) != 0 {
		t.Errorf("answers came from another generation than %d: %v", epoch, r.Epochs())
	}
	if r.Silence > time.Second {
		t.Errorf("nothing was answered for %v", r.Silence)
	}
	for i, w := range s.status().Generations[0].Workers {
		if w.Respawns != 1 || slices.Contains(pids, w.PID) {
			t.Errorf("worker %d: %+v, had pid %d", i, w, pids[i])
		}
	}
	// What the dead had in hand is all that the ledger misses, and it says so.
	if l := s.status().Ledger; l.InHand < 0 || l.InHand > int64(len(pids))*64 || l.Received != l.Served+l.Sibling+l.Forwarded+sum(l.Dropped)+uint64(l.InHand) {
		t.Errorf("ledger %+v", l)
	}
	if got := s.processes(); len(got) != 3 {
		t.Errorf("processes %v: not the supervisor and two workers", got)
	}
}

// Workers outlive their supervisor: they serve on when it is killed.
func TestWorkersOutliveSupervisor(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	epoch, pids := s.epoch(), s.workers()
	p := startProbe(t)
	s.signal(syscall.SIGKILL)
	s.awaitExit(5 * time.Second)
	awaitAnswers(t, p.dns, 500)
	awaitAnswers(t, p.who, 500)
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	if r.Astray(epoch) != 0 {
		t.Errorf("answers by epoch: %v, want %d alone", r.Epochs(), epoch)
	}
	if got := s.processes(); !slices.Equal(got, pids) {
		t.Errorf("processes %v, want the workers %v", got, pids)
	}
	s.removeOrphans()
}

// What waits in the sockets of a dead worker is answered: the sockets are the
// supervisor's, and never closed.
func TestQueueSurvivesWorker(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	pid := s.workers()[0]
	c, err := net.Dial("udp", who4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	whoAnswersOn(t, c)

	const queued = 200
	kill(t, pid, syscall.SIGSTOP)
	s.await(5*time.Second, "the worker is stopped", func() bool {
		st, err := proc.ReadStat(pid)
		return err == nil && st.State == 'T'
	})
	for range queued {
		if _, err := c.Write([]byte("who\n")); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, pid, syscall.SIGKILL)
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	for n := range queued {
		size, err := c.Read(buf)
		if err != nil {
			t.Fatalf("%d of %d datagrams that waited were answered: %v", n, queued, err)
		}
		tag, err := load.ParseTag(buf[:size])
		if err != nil {
			t.Fatal(err)
		}
		if tag.PID == pid {
			t.Fatalf("answer %d is of the dead worker", n)
		}
	}
	var timeout net.Error
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(buf); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("one answer too many: %q, %v", buf[:n], err)
	}
}
