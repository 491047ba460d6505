package server

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/trace/pcap"
)

// traceWriter reads what workers have traced and writes it to a file, beside the
// loop.
type traceWriter struct {
	t     *tracing
	file  *pcap.Writer
	began time.Time
	clock int64 // what is added to a mono time to make it a Unix time, in ns

	sources []*traced
	report  control.TraceReport
}

func newTraceWriter(t *tracing, out io.Writer, o pcap.Options) *traceWriter {
	now := time.Now()
	return &traceWriter{
		t: t, file: pcap.New(out, o), began: now, clock: now.UnixNano() - mono.Now(),
		report: control.TraceReport{Workers: []control.TraceWorker{}},
	}
}

// run writes until the trace is to end. Its error is that of writing.
func (w *traceWriter) run(ctx context.Context, exited <-chan struct{}) error {
	var over <-chan time.Time
	if w.t.req.For > 0 {
		timer := time.NewTimer(w.t.req.For.Duration())
		defer timer.Stop()
		over = timer.C
	}
	tick := time.NewTicker(traceInterval)
	defer tick.Stop()
	for {
		if err := w.look(); err != nil {
			w.t.end("it could not be written")
			return err
		}
		if w.full() {
			w.t.end("as many packets as were asked for")
		}
		select {
		case <-w.t.ended:
			return nil
		default:
		}
		select {
		case <-tick.C:
		case <-over:
			w.t.end("its time is over")
		case <-w.t.ended:
		case <-exited:
			w.t.end("dnsapp has stopped")
		case <-ctx.Done():
			w.t.end("the client has gone")
			return ctx.Err()
		}
	}
}

func (w *traceWriter) full() bool {
	return w.t.req.Count > 0 && w.report.Packets >= w.t.req.Count
}

// look writes what there is now, oldest first, and lets it be seen.
func (w *traceWriter) look() error {
	if err := w.meet(); err != nil {
		return err
	}
	var gone []*traced
	for _, s := range w.sources {
		if s.gone.Load() {
			gone = append(gone, s)
		}
		s.source.Look()
	}
	var err error
	for err == nil && !w.full() {
		s := w.oldest()
		if s == nil {
			break
		}
		err = w.write(s)
	}
	for _, s := range w.sources {
		s.source.Release()
	}
	for _, s := range gone {
		if err == nil && s.source.Peek() == nil {
			err = w.close(s)
		}
	}
	if err != nil {
		return err
	}
	return w.file.Flush()
}

// meet begins an interface for each process that is new.
func (w *traceWriter) meet() error {
	w.t.mu.Lock()
	fresh := w.t.fresh
	w.t.fresh = nil
	w.t.mu.Unlock()
	for _, s := range fresh {
		var err error
		s.began = time.Now()
		s.iface, err = w.file.Interface(fmt.Sprintf("epoch %d worker %d", s.epoch, s.worker), fmt.Sprintf("start %d of this worker", s.starts))
		w.sources = append(w.sources, s)
		if err != nil {
			return err
		}
	}
	return nil
}

// oldest returns whose record is to be written next, nil if there is none.
func (w *traceWriter) oldest() (found *traced) {
	at := int64(0)
	for _, s := range w.sources {
		if r := s.source.Peek(); r != nil && (found == nil || r.Time < at) {
			found, at = s, r.Time
		}
	}
	return found
}

func (w *traceWriter) write(s *traced) error {
	r := s.source.Peek()
	n, err := w.file.Packet(s.iface, r, time.Unix(0, r.Time+w.clock))
	if err != nil {
		return err
	}
	s.source.Take()
	s.written++
	w.report.Packets++
	w.report.Bytes += uint64(n)
	return nil
}

// close ends a process's part: what it had is written, and what is missing is said.
func (w *traceWriter) close(s *traced) error {
	w.sources = slices.DeleteFunc(w.sources, func(o *traced) bool { return o == s })
	copied, dropped := s.source.Counts()
	w.report.Dropped += dropped
	w.report.Workers = append(w.report.Workers, control.TraceWorker{Epoch: s.epoch, Worker: s.worker, Packets: s.written, Dropped: dropped})
	err := w.file.Stats(s.iface, s.began, time.Now(), copied+dropped, dropped)
	if unmapped := s.source.Close(); err == nil {
		err = unmapped
	}
	return err
}

// finish writes what is left, if it can be written at all, and ends the file. Nothing
// comes any more.
func (w *traceWriter) finish(writable bool) (*control.TraceReport, error) {
	var err error
	if writable {
		err = w.look()
	} else {
		_ = w.meet() // so that all are closed
	}
	for len(w.sources) > 0 {
		if closed := w.close(w.sources[0]); err == nil && writable {
			err = closed
		}
	}
	if flushed := w.file.Flush(); err == nil && writable {
		err = flushed
	}
	w.report.Elapsed = control.Millis(time.Since(w.began))
	w.report.Reason = w.t.reason
	return &w.report, err
}
