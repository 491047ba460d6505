package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// scrape returns the samples of /metrics by their name and labels.
func scrape() (map[string]float64, error) {
	c := http.Client{Timeout: answerTimeout}
	resp, err := c.Get("http://" + admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %s", resp.Status)
	}
	m := map[string]float64{}
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		line := in.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if m[line[:i]], err = strconv.ParseFloat(line[i+1:], 64); err != nil {
			return nil, fmt.Errorf("/metrics: %q: %w", line, err)
		}
	}
	return m, in.Err()
}

// metrics is scrape for a server that must answer.
func metrics(t *testing.T) map[string]float64 {
	t.Helper()
	m, err := scrape()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// isCounter reports whether a sample may never fall.
func isCounter(sample string) bool {
	name, _, _ := strings.Cut(sample, "{")
	return strings.HasPrefix(name, "dnsapp_") &&
		(strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum"))
}

// scraper scrapes all the time, and notes counters that fall or vanish.
type scraper struct {
	done chan struct{}
	wait sync.WaitGroup

	// Valid once stop has returned.
	scrapes int
	errs    []string
}

func startScraper() *scraper {
	c := &scraper{done: make(chan struct{})}
	c.wait.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		highest := map[string]float64{} // of counters
		for {
			now, err := scrape()
			if err != nil {
				c.errs = append(c.errs, err.Error())
			}
			for name, was := range highest {
				if v, ok := now[name]; err == nil && (!ok || v < was) {
					c.errs = append(c.errs, fmt.Sprintf("%s fell from %v to %v (there: %v)", name, was, v, ok))
				}
			}
			for name, v := range now {
				if isCounter(name) {
					highest[name] = v
				}
			}
			c.scrapes++
			select {
			case <-tick.C:
			case <-c.done:
				return
			}
		}
	})
	return c
}

// stop ends the scraping and fails the test for what it has seen.
func (c *scraper) stop(t *testing.T) {
	t.Helper()
	close(c.done)
	c.wait.Wait()
	t.Logf("%d scrapes", c.scrapes)
	for _, e := range c.errs {
		t.Error(e)
	}
}

// No counter falls, whatever happens to workers and generations, and what happens
// is counted: reloads that succeed and that are refused, a worker that is killed,
// one that stands still.
func TestCountersNeverFall(t *testing.T) {
	config := settings{workers: 2, reload: "{udp_idle: 1s, heartbeat_timeout: 300ms}"}
	s := start(t, config.yaml(), zoneFiles())
	first := metrics(t)
	all := startScraper()
	p := startProbe(t)
	s.reload("--wait", "commit")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		pid := s.workers()[0]
		kill(t, pid, sig)
		s.await(20*time.Second, "the worker is another one", func() bool {
			g := s.status().Generations[0]
			return allReady(g) && g.Workers[0].PID != pid
		})
		awaitAnswers(t, p.who, 100)
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	s.awaitSteady()
	s.write("dnsapp.yaml", config.yaml()+"nonsense: 1\n")
	if _, _, code := s.tryCtl("reload"); code != 3 {
		t.Errorf("a reload with nonsense: code %d", code)
	}
	config.lanes = 2
	s.write("dnsapp.yaml", config.yaml())
	s.reload()
	all.stop(t)
	last := metrics(t)
	for name, want := range map[string]float64{
		`dnsapp_reloads_total{outcome="done"}`:                 2,
		`dnsapp_reloads_total{outcome="refused"}`:              1,
		`dnsapp_reloads_refused_total{reason="configuration"}`: 1,
		`dnsapp_reloads_refused_total{reason="zone"}`:          0,
		`dnsapp_worker_restarts_total`:                         2,
		`dnsapp_workers_fenced_total`:                          1,
		`dnsapp_generation_epoch`:                              3,
		`dnsapp_generations{state="active"}`:                   1,
		`dnsapp_flow_table_slots{state="active"}`:              65536,
	} {
		if last[name] != want {
			t.Errorf("%s is %v, want %v", name, last[name], want)
		}
	}
	if got := last["dnsapp_datagrams_received_total"]; got < float64(r.Answered) {
		t.Errorf("received %v, and %d were answered", got, r.Answered)
	}
	if first["dnsapp_config_hash"] == last["dnsapp_config_hash"] {
		t.Error("the hash of the configuration has not changed")
	}
	for worker := range 2 {
		labels := fmt.Sprintf(`{slot="0",worker="%d"}`, worker) // the third generation has the slot of the first
		if last["dnsapp_worker_resident_memory_bytes"+labels] < 1<<20 || last["dnsapp_worker_open_fds"+labels] < 8 || last["dnsapp_worker_max_fds"+labels] < 64 {
			t.Errorf("worker %d takes nothing of the machine", worker)
		}
	}
}
