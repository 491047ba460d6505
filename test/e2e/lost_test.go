package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A worker is out of descriptors when the window of the next generation opens, so
// that it learns of it in vain. It says so, and is told again until it knows; what is
// forwarded to it waits, and nothing is lost.
func TestLostMessage(t *testing.T) {
	// Its limit can only be changed by somebody who runs as the worker's user.
	s := start(t, settings{reload: "{udp_idle: 1s}", top: "user: root"}.yaml(), zoneFiles())
	pid, first := s.workers()[0], s.epoch()
	g := identify(t, 50, 500)
	awaitAnswers(t, g, 200)
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	// Only one descriptor below that limit is free.
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 5, Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	r := s.startReload()
	r.awaitCommit()
	s.await(10*time.Second, "the worker has said that it lost a message, twice", func() bool {
		return strings.Count(s.log(), "a worker has lost a message") >= 2
	})
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	answered := func() uint64 {
		report := g.Report()
		return report.Epochs()[first]
	}
	before := answered()
	s.await(20*time.Second, "the worker serves its flows again", func() bool { return answered() > before+200 })
	report := g.Stop(3 * time.Second)
	t.Logf("%v", report)
	if err := report.Exact(); err != nil {
		t.Error(err)
	}
	if report.Astray(first) != 0 {
		t.Errorf("answers by epoch: %v, want those of %d alone", report.Epochs(), first)
	}
	r.wait()
	s.ledger()
}
