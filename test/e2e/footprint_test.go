package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/proc"
)

// idleWindow is how long an idle server is watched.
const idleWindow = 2 * time.Second

// A server that nobody asks costs nothing: under 1% of a processor, over all its
// processes.
func TestIdleCPU(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	// A little traffic first: what it wakes must fall asleep again.
	g := identify(t, 50, 5000)
	awaitAnswers(t, g, 1000)
	report := g.Stop(time.Second)
	if err := report.Exact(); err != nil {
		t.Error(err)
	}
	pids := s.processes()
	before, err := proc.CPU(pids...)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(idleWindow) // what is measured is that nothing happens
	after, err := proc.CPU(pids...)
	if err != nil {
		t.Fatal(err)
	}
	used := after - before
	t.Logf("%v in %v, %d processes", used, idleWindow, len(pids))
	if used > idleWindow/100 {
		t.Errorf("%v of CPU in %v of idleness", used, idleWindow)
	}
}

// quickstartMemory is the most that all processes of the quickstart may take.
const quickstartMemory = 40 << 20

// The quickstart configuration, as it is, serves within 40 MiB in all processes,
// each page that several share counted once.
func TestQuickstartMemory(t *testing.T) {
	s := newServer(t, "", nil)
	if err := os.CopyFS(s.path("configs"), os.DirFS(filepath.Join(suite.root, "configs"))); err != nil {
		t.Fatal(err)
	}
	s.config = s.path("configs/quickstart.yaml")
	s.serve()
	s.await(startTimeout, "the quickstart serves", func() bool { return answers("127.0.0.1:5353") && answers("[::1]:5353") })
	var sum int64
	pids := s.processes()
	for _, pid := range pids {
		n, err := proc.PSS(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("process %d: %.1f MiB", pid, float64(n)/(1<<20))
		sum += n
	}
	if len(pids) < 2 || sum > quickstartMemory {
		t.Errorf("%d processes take %.1f MiB, the limit is %d MiB", len(pids), float64(sum)/(1<<20), quickstartMemory>>20)
	}
}
