package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// row is what one server came to.
type row struct {
	Server  string `json:"server"`
	Missing string `json:"missing,omitempty"` // why it was not measured

	Reloads int   `json:"reloads"`
	Flows   count `json:"flows"`
	DNS     count `json:"dns"`
	Lived   int   `json:"flows_lived"` // flows, each through a reload at least
	Moved   int   `json:"flows_moved"` // of them, answered by another process (from another port) than before

	FirstAnswer []time.Duration `json:"first_answer_ns"`  // of each reload: from the order to the first answer of the new configuration
	Silence     time.Duration   `json:"silence_ns"`       // longest time without any answer
	Void        string          `json:"void,omitempty"`   // answers that the generator itself lost: the counts of this row say nothing
	Behind      string          `json:"behind,omitempty"` // requests that it failed to send, and which count nowhere
}

// count is what became of one kind of request.
type count struct {
	Sent      uint64 `json:"sent"`
	Answered  uint64 `json:"answered"`
	Lost      uint64 `json:"lost"`
	Duplicate uint64 `json:"duplicate"`
	Wrong     uint64 `json:"wrong"`
}

func countOf(r *load.Report) count {
	return count{Sent: r.Sent, Answered: r.Answered, Lost: r.Lost(), Duplicate: r.Duplicate + r.Stray, Wrong: r.Malformed}
}

// settle is how long before the first reload the load runs, and grace how long
// the last answers may take.
const (
	settle = 500 * time.Millisecond
	grace  = time.Second
)

// watcher is identify that notices when another process answers a flow.
type watcher struct {
	load.Identify
	who   map[int]int // by flow
	moved map[int]bool
}

// Check implements load.Protocol. A group calls it from one goroutine.
func (w *watcher) Check(answer []byte, flow int, seq uint32) (load.Tag, error) {
	tag, err := w.Identify.Check(answer, flow, seq)
	if err != nil {
		return tag, err
	}
	if before, known := w.who[flow]; known && before != tag.PID {
		w.moved[flow] = true
	}
	w.who[flow] = tag.PID
	return load.Tag{}, nil // one for each port of a proxy would be many
}

// crowds are flows that come and go, a crowd at a time.
type crowds struct {
	wait   sync.WaitGroup
	mu     sync.Mutex // guards the rest
	report load.Report
	lived  int
	moved  int
	errs   []error
}

// begin starts a crowd that ends by itself.
func (c *crowds) begin(at netip.AddrPort, o *options) {
	c.wait.Go(func() {
		w := &watcher{who: map[int]int{}, moved: map[int]bool{}}
		g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{at}, Flows: o.flows, Rate: o.flows * o.flowRate, Protocol: w})
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.errs = append(c.errs, err)
			return
		}
		defer g.Close()
		<-time.After(o.life())
		r := g.Stop(grace)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.report.Add(r)
		c.lived += o.flows
		c.moved += len(w.moved)
	})
}

// measure loads a server and reloads it meanwhile.
func measure(s *running, o *options) (row, error) {
	r := row{Reloads: o.reloads}
	queries, err := load.NewDNS([]load.Query{
		{Name: "www.example.com", Type: 1, Rcode: load.NoError}, {Name: "none.example.com", Type: 1, Rcode: load.NXDomain},
	})
	if err != nil {
		return r, err
	}
	asking, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{dnsAt}, Flows: 64, Rate: o.dnsRate, Protocol: queries})
	if err != nil {
		return r, err
	}
	defer asking.Close()

	var flows crowds
	enough := make(chan struct{})
	var crowding sync.WaitGroup
	if s.flows.IsValid() {
		crowding.Go(func() {
			tick := time.NewTicker(o.every / 2)
			defer tick.Stop()
			for {
				flows.begin(s.flows, o)
				select {
				case <-tick.C:
				case <-enough:
					return
				}
			}
		})
	}
	last := sync.OnceFunc(func() {
		close(enough)
		crowding.Wait()
	})
	errs := reloads(s, o, &r, last)
	last() // where a failure was before
	flows.wait.Wait()
	dns := asking.Stop(grace)

	r.Flows, r.DNS = countOf(&flows.report), countOf(&dns)
	r.Lived, r.Moved = flows.lived, flows.moved
	r.Silence = max(flows.report.Silence, dns.Silence)
	all := dns
	all.Add(flows.report)
	if all.KernelDrops > 0 {
		r.Void = fmt.Sprintf("the generator's own socket buffers dropped %d answers", all.KernelDrops)
	}
	if all.Behind() {
		r.Behind = fmt.Sprintf("%d of %d requests were not sent", all.Skipped, all.Offered)
	}
	return r, errors.Join(append(errs, flows.errs...)...)
}

// reloads reloads s every now and then, calls last before the last time, and
// returns when all flows that live then have ended.
func reloads(s *running, o *options, r *row, last func()) (errs []error) {
	var applying sync.WaitGroup
	var mu sync.Mutex // guards errs
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	<-time.After(settle)
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for n := 1; n <= o.reloads; n++ {
		if n > 1 {
			<-tick.C
		}
		if n == o.reloads {
			last()
		}
		if err := s.change(n); err != nil {
			failed(err)
			break
		}
		began := time.Now()
		applying.Go(func() { // it may return when old processes are gone
			if err := s.apply(); err != nil {
				failed(fmt.Errorf("reload %d: %w", n, err))
			}
		})
		took, err := awaitVersion(s, n, began)
		if err != nil {
			failed(err)
			break
		}
		r.FirstAnswer = append(r.FirstAnswer, took)
	}
	<-time.After(o.life())
	applying.Wait()
	slices.Sort(r.FirstAnswer)
	return errs
}

// awaitVersion asks until version n answers, and returns the time since began.
func awaitVersion(s *running, n int, began time.Time) (time.Duration, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; time.Since(began) < startTimeout; <-tick.C {
		if v, err := s.version(); err == nil && v == n {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("version %d does not answer %v after the reload", n, startTimeout)
}
