package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dnsapp/dnsapp/server/trace"
)

// TraceRequest is the body of POST /v1/trace. An empty object means everything,
// until the client hangs up or POST /v1/trace/end.
type TraceRequest struct {
	Filter string `json:"filter,omitempty"` // see trace.Parse
	Snap   int    `json:"snap,omitempty"`   // octets of each payload or frame; 0: all
	Count  uint64 `json:"count,omitempty"`  // end after so many packets; 0: no limit
	For    Millis `json:"for_ms,omitempty"` // end after this long; 0: no limit
}

// MaxSnap is the most octets of a payload or frame that are traced.
const MaxSnap = 65535

func (r *TraceRequest) check() error {
	var err error
	switch {
	case r.Snap < 0 || r.Snap > MaxSnap:
		err = fmt.Errorf("snap is %d, and must be from 1 to %d, or 0 for all", r.Snap, MaxSnap)
	case r.For < 0:
		err = fmt.Errorf("for_ms is negative; 0 means no limit")
	default:
		_, err = trace.Parse(r.Filter)
	}
	if err != nil {
		return &Error{Code: CodeUsage, Message: err.Error()}
	}
	return nil
}

// TraceReport says what a trace has taken.
type TraceReport struct {
	Packets uint64        `json:"packets"` // written
	Bytes   uint64        `json:"bytes"`   // of packets that were written
	Dropped uint64        `json:"dropped"` // wanted, and lost, because they came faster than they were written
	Elapsed Millis        `json:"elapsed_ms"`
	Reason  string        `json:"reason"` // why it ended
	Workers []TraceWorker `json:"workers"`
}

// TraceWorker is one worker's part of a trace.
type TraceWorker struct {
	Epoch   uint32 `json:"epoch"`
	Worker  int    `json:"worker"`
	Packets uint64 `json:"packets"`
	Dropped uint64 `json:"dropped"`
}

// traceTrailer is the HTTP trailer that has a traceEnd.
const traceTrailer = "Dnsapp-Trace"

// traceEnd is how a trace ended.
type traceEnd struct {
	Report *TraceReport `json:"report"`
	Error  *Error       `json:"error,omitempty"`
}

// traceWriter is a pcapng file on its way to a client. The answer begins with the
// first octet, so that what is refused before has its own status.
type traceWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

func (t *traceWriter) Write(b []byte) (int, error) {
	if !t.begun {
		t.begun = true
		t.w.Header().Set("Content-Type", "application/x-pcapng")
		t.w.Header().Set("Trailer", traceTrailer)
		t.w.WriteHeader(http.StatusOK)
	}
	if err := t.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	n, err := t.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, t.rc.Flush()
}

func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	var req TraceRequest
	err := s.decode(w, r, &req)
	if err == nil {
		err = req.check()
	}
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.note(r, "trace")
	out := &traceWriter{w: w, rc: http.NewResponseController(w)}
	report, err := s.backend.Trace(r.Context(), req, out)
	if !out.begun {
		if err == nil {
			err = &Error{Code: CodeFailed, Message: "the trace ended before it began"}
		}
		s.failWith(w, err)
		return
	}
	end := traceEnd{Report: report}
	if err != nil {
		end.Error = asError(err)
	}
	b, err := json.Marshal(end)
	if err != nil { // it has nothing that could not be encoded
		s.log.Error("encoding the end of a trace", "error", err)
		return
	}
	w.Header().Set(traceTrailer, string(b))
}

func (s *Server) endTrace(w http.ResponseWriter, r *http.Request) {
	if err := s.decode(w, r, &struct{}{}); err != nil {
		s.failWith(w, err)
		return
	}
	s.note(r, "end of the trace")
	if err := s.backend.EndTrace(r.Context()); err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, struct{}{})
}

// traceEndTime is how long a trace may take to end once it was asked to.
const traceEndTime = 5 * time.Second

// Trace has the supervisor trace what req says, and copies the pcapng file to out.
// When ctx ends the trace is ended, and its report is returned as ever. A report may
// accompany an error.
func (c *Client) Trace(ctx context.Context, req TraceRequest, out io.Writer) (*TraceReport, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	asking, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	late := time.AfterFunc(AckTimeout, func() { cancel(cmp.Or(ctx.Err(), context.DeadlineExceeded)) })
	hasten := context.AfterFunc(ctx, func() { late.Reset(lastMoment) })
	resp, err := c.do(asking, http.MethodPost, "/v1/trace", body)
	hasten()
	late.Stop()
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(traceEndTime, func() { cancel(context.DeadlineExceeded) })
		if err := c.EndTrace(asking); err != nil {
			cancel(err)
		}
	})()
	if _, err := io.Copy(out, resp.Body); err != nil {
		if cause := context.Cause(asking); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("receiving the trace: %w", err)
	}
	var end traceEnd
	if err := json.NewDecoder(bytes.NewReader([]byte(resp.Trailer.Get(traceTrailer)))).Decode(&end); err != nil {
		return nil, c.broken(asking, io.ErrUnexpectedEOF)
	}
	if end.Error != nil {
		return end.Report, end.Error
	}
	return end.Report, nil
}

// EndTrace ends the trace that runs.
func (c *Client) EndTrace(ctx context.Context) error {
	_, err := asking[struct{}](ctx, c, http.MethodPost, "/v1/trace/end", []byte("{}"))
	return err
}
