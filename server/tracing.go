package server

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/trace"
	"github.com/dnsapp/dnsapp/server/trace/pcap"
	"github.com/dnsapp/dnsapp/server/worker"
)

// traceInterval is how often the rings are looked at: those of maxRing octets take
// far more meanwhile than one lane serves.
const traceInterval = 5 * time.Millisecond

// tracing is the trace that runs. There is one at a time: the memory that it takes
// is bounded.
type tracing struct {
	req control.TraceRequest

	mu    sync.Mutex
	fresh []*traced // that the writer does not know yet. Guarded by mu

	once   sync.Once
	ended  chan struct{} // closed by end
	reason string        // valid once ended is closed
}

// traced is what one process traces.
type traced struct {
	epoch  uint32
	worker int
	starts int // of this worker, this one included
	source *trace.Source
	gone   atomic.Bool // the process has ended: what is in the rings is all there will be

	// The writer's own.
	iface   int
	written uint64
	began   time.Time
}

// end ends the trace, for the first reason that is given. A nil tracing has ended.
func (t *tracing) end(reason string) {
	if t != nil {
		t.once.Do(func() {
			t.reason = reason
			close(t.ended)
		})
	}
}

// endTraced notes that the process has ended.
func (p *process) endTraced() {
	if p.traced != nil {
		p.traced.gone.Store(true)
		p.traced = nil
	}
}

// trace makes worker i of g have a part in the trace, and says what it is to be
// told; nil where it cannot. The descriptor stays this process's, until the writer has
// ended with it. Within the loop.
func (s *Supervisor) trace(g *generation, i int) *worker.TraceRef {
	t, p := s.tracing, g.workers[i]
	p.endTraced()
	r, err := trace.Create(g.cfg.Lanes, trace.RingBytes(g.lanes()))
	if err != nil {
		s.log.Error("tracing a worker", "epoch", g.Epoch, "worker", i, "error", err)
		return nil
	}
	fd := r.Fd()
	src, err := trace.NewSource(r)
	if err != nil {
		s.log.Error("bug: tracing a worker", "epoch", g.Epoch, "worker", i, "error", err)
		return nil
	}
	p.traced = &traced{epoch: g.Epoch, worker: i, starts: p.respawns + 1, source: src}
	t.mu.Lock()
	t.fresh = append(t.fresh, p.traced)
	t.mu.Unlock()
	return &worker.TraceRef{FD: fd, Filter: t.req.Filter, Snap: t.req.Snap}
}

// traceFromStart is what the manifest of worker i of g says of the trace. add takes
// a descriptor along.
func (s *Supervisor) traceFromStart(g *generation, i int, add func(int) int) *worker.TraceRef {
	if s.tracing == nil {
		return nil
	}
	ref := s.trace(g, i)
	if ref != nil {
		ref.FD = add(ref.FD)
	}
	return ref
}

// traceAgain tells a worker that lives to trace, if there is a trace.
func (s *Supervisor) traceAgain(g *generation, p *process) {
	if s.tracing == nil || p.link == nil {
		return
	}
	ref := s.trace(g, p.index)
	if ref == nil {
		return
	}
	if err := p.link.Send(worker.Message{Op: worker.OpTrace, Filter: ref.Filter, Snap: ref.Snap}, ref.FD); err != nil {
		s.log.Error("tracing a worker", "epoch", g.Epoch, "worker", p.index, "error", err)
	}
}

// beginTrace makes t the trace that runs. Within the loop.
func (s *Supervisor) beginTrace(t *tracing) error {
	switch {
	case s.standby != nil:
		return s.standby.refusal("a trace")
	case s.tracing != nil:
		return control.Refuse("a trace runs already: end it first, or wait for its end")
	}
	s.tracing = t
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		for _, p := range g.workers {
			s.traceAgain(g, p)
		}
	}
	return nil
}

// stopTrace has the workers copy nothing more. Within the loop.
func (s *Supervisor) stopTrace(t *tracing) {
	if s.tracing != t {
		return
	}
	s.tracing = nil
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		for _, p := range g.workers {
			p.traced = nil
			if p.link == nil {
				continue
			}
			if err := p.link.Send(worker.Message{Op: worker.OpTrace}); err != nil {
				s.log.Error("ending the trace of a worker", "epoch", g.Epoch, "worker", p.index, "error", err)
			}
		}
	}
}

// EndTrace implements control.Backend.
func (s *Supervisor) EndTrace(ctx context.Context) error {
	var running *tracing
	if err := s.ask(ctx, func() { running = s.tracing }); err != nil {
		return err
	}
	if running == nil {
		return control.Refuse("nothing is traced")
	}
	running.end("ended on request")
	return nil
}

// Trace implements control.Backend.
func (s *Supervisor) Trace(ctx context.Context, req control.TraceRequest, out io.Writer) (*control.TraceReport, error) {
	if req.Snap == 0 {
		req.Snap = control.MaxSnap
	}
	t := &tracing{req: req, ended: make(chan struct{})}
	var refused error
	if err := s.ask(ctx, func() { refused = s.beginTrace(t) }); err != nil {
		s.post(func() { s.stopTrace(t) }) // it may have begun
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	w := newTraceWriter(t, out, pcap.Options{
		Snap: req.Snap, Filter: req.Filter, About: "dnsapp " + s.options.Version.Version,
	})
	err := w.run(ctx, s.exited)
	// What the workers had copied when they are told to end is in the file.
	stopped := make(chan struct{})
	s.post(func() { s.stopTrace(t); close(stopped) })
	select {
	case <-stopped:
	case <-s.done:
	}
	report, last := w.finish(err == nil)
	if err == nil {
		err = last
	}
	s.log.Info("trace ended", "packets", report.Packets, "dropped", report.Dropped, "elapsed", report.Elapsed.Duration().Round(time.Millisecond), "reason", report.Reason)
	return report, err
}
