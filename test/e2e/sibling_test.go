package e2e

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// A worker is dead and its next process is late: a sibling reads its sockets, from
// a tenth of a second on, until it is there. So nothing waits for longer, whatever
// it is that holds the process up; flows that the sibling has served stay with it.
func TestSiblingReadsMeanwhile(t *testing.T) {
	const late, sibling = 0, 1
	s := newServer(t, settings{workers: 2}.yaml(), zoneFiles())
	h := newHolder(s)
	s.serve()
	s.awaitReady()
	epoch := s.epoch()

	var clients []net.Conn
	var its []net.Conn
	for range 40 {
		c, err := net.Dial("udp", who4.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if whoAnswersOn(t, c).Worker == late {
			its = append(its, c)
		}
		clients = append(clients, c)
	}
	if len(its) == 0 || len(its) == len(clients) {
		t.Fatalf("%d of %d flows are worker %d's", len(its), len(clients), late)
	}
	p := startProbe(t)
	caught := h.catch("attach")
	kill(t, s.workers()[late], syscall.SIGKILL)
	held := awaitHeld(t, caught, "attach")
	for _, c := range its {
		if tag := whoAnswersOn(t, c); tag.Worker != sibling || tag.Epoch != epoch {
			t.Errorf("while the worker is away its flow is served by %+v", tag)
		}
	}
	awaitAnswers(t, p.who, 200)
	awaitAnswers(t, p.dns, 200)
	if w := s.status().Generations[0].Workers[late]; w.Ready {
		t.Errorf("the worker is there already: %+v", w)
	}
	held.release()
	s.await(10*time.Second, "the worker is back", func() bool { return allReady(s.status().Generations[0]) })
	s.await(10*time.Second, "it gets new flows", func() bool {
		return whoAnswers(t, "udp", who4.String()).Worker == late
	})
	for _, c := range its {
		if tag := whoAnswersOn(t, c); tag.Worker != sibling {
			t.Errorf("a flow that the sibling has taken over is served by %+v", tag)
		}
	}
	awaitAnswers(t, p.who, 200)
	r := p.stop()
	t.Logf("probe: %v", r)
	// The burst that the dead worker had in hand is all that can be gone.
	if r.Lost() > 64 || r.Duplicate+r.Stray+r.Malformed != 0 || r.Astray(epoch) != 0 {
		t.Errorf("probe: %v", r)
	}
	if l := s.status().Ledger; l.InHand < 0 || l.InHand > 64 || l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// The sibling dies, too: the next one takes over both, and a worker that is alone
// waits for its next process.
func TestSiblingOfASibling(t *testing.T) {
	s := newServer(t, settings{workers: 3}.yaml(), zoneFiles())
	h := newHolder(s)
	s.serve()
	s.awaitReady()
	pids := s.workers()
	p := startProbe(t)
	var all []*held
	for _, pid := range pids[:2] {
		caught := h.catch("attach")
		kill(t, pid, syscall.SIGKILL)
		all = append(all, awaitHeld(t, caught, "attach"))
		awaitAnswers(t, p.who, 300)
		awaitAnswers(t, p.dns, 300)
	}
	for range 60 { // by whatever socket they come
		if tag := whoAnswers(t, "udp", who4.String()); tag.Worker != 2 {
			t.Errorf("while two workers are away a new flow is served by %+v", tag)
		}
	}
	for _, at := range all {
		at.release()
	}
	s.await(10*time.Second, "all are back", func() bool { return allReady(s.status().Generations[0]) })
	awaitAnswers(t, p.who, 300)
	r := p.stop()
	t.Logf("probe: %v", r)
	if r.Lost() > 128 || r.Duplicate+r.Stray+r.Malformed != 0 || r.Astray(s.epoch()) != 0 {
		t.Errorf("probe: %v", r)
	}
}
