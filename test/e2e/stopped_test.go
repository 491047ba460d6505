package e2e

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/proc"
)

// stop stops a process by SIGSTOP, and waits until it stands.
func (s *server) stop(pid int) {
	s.t.Helper()
	kill(s.t, pid, syscall.SIGSTOP)
	s.await(5*time.Second, "the worker is stopped", func() bool {
		st, err := proc.ReadStat(pid)
		return err == nil && st.State == 'T'
	})
}

// A worker that stands still is replaced when nothing waits for it but
// connections: those it has are closed then, so that their clients can go on
// elsewhere, and those in the queue are served.
func TestStoppedWorkerWithConnections(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{heartbeat_timeout: 500ms}"}.yaml(), zoneFiles())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.DialTimeout("tcp", who4.String(), answerTimeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	has := dial()
	of := whoAnswersOn(t, has)
	began := time.Now()
	s.stop(of.PID)
	if _, err := has.Write([]byte("who\n")); err != nil {
		t.Fatal(err)
	}
	if err := has.SetReadDeadline(began.Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := has.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection of the stopped worker: %d octets, %v", n, err)
	}
	t.Logf("the connection was closed after %v", time.Since(began))
	s.await(10*time.Second, "both workers serve", func() bool {
		g := s.status().Generations[0]
		return allReady(g) && g.Workers[0].PID != of.PID && g.Workers[1].PID != of.PID
	})
	if l := s.status().Ledger; l.TCPAccepted-l.TCPClosed != 0 {
		t.Errorf("connections of the dead are open: %+v", l)
	}

	for _, pid := range s.workers() { // none is left that could accept
		s.stop(pid)
	}
	waits := dial()
	if tag := whoAnswersOn(t, waits); tag.Epoch != of.Epoch {
		t.Errorf("a connection that waited is served by %+v", tag)
	}
}

// A worker that has connections and nothing to do is left alone: the signs of life
// that it is asked for are all that it does.
func TestIdleConnectionsAreLeftAlone(t *testing.T) {
	s := start(t, settings{reload: "{heartbeat_timeout: 100ms}"}.yaml(), zoneFiles())
	c, err := net.DialTimeout("tcp", who4.String(), answerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := whoAnswersOn(t, c)
	// Silence is what is tested: the deadline is the time it lasts.
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d octets, %v", n, err)
	}
	if after := whoAnswersOn(t, c); after != before {
		t.Errorf("served by %+v, and before by %+v", after, before)
	}
	if w := s.status().Generations[0].Workers[0]; w.Respawns != 0 {
		t.Errorf("worker %+v", w)
	}
}
