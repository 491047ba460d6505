package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A client has the file as it is written, and how it ended behind it.
func TestTrace(t *testing.T) {
	seen := make(chan struct{})
	want := &TraceReport{Packets: 2, Bytes: 120, Elapsed: Millis(time.Second), Reason: "as many packets as were asked for", Workers: []TraceWorker{{Epoch: 3, Packets: 2}}}
	c := client(t, serve(t, &fakeBackend{
		trace: func(ctx context.Context, req TraceRequest, out io.Writer) (*TraceReport, error) {
			if d := cmp.Diff(TraceRequest{Filter: "port 53", Snap: 64, Count: 2, For: Millis(time.Minute)}, req); d != "" {
				return nil, fmt.Errorf("the request differs: %s", d)
			}
			if _, err := out.Write([]byte("first ")); err != nil {
				return nil, err
			}
			select {
			case <-seen:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			_, err := out.Write([]byte("second"))
			return want, err
		},
	}))
	var file bytes.Buffer
	got, err := c.Trace(testContext(t), TraceRequest{Filter: "port 53", Snap: 64, Count: 2, For: Millis(time.Minute)}, writerFunc(func(b []byte) (int, error) {
		if string(b) == "first " {
			close(seen)
		}
		return file.Write(b)
	}))
	if err != nil || file.String() != "first second" {
		t.Fatalf("%q, %v", file.String(), err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the report differs (-want +got):\n%s", d)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// What goes wrong before the file begins has the status of its error, what goes wrong
// later comes behind the file.
func TestTraceErrors(t *testing.T) {
	refuse := true
	c := client(t, serve(t, &fakeBackend{
		trace: func(_ context.Context, _ TraceRequest, out io.Writer) (*TraceReport, error) {
			if refuse {
				return nil, Refuse("a trace runs already")
			}
			if _, err := out.Write([]byte("x")); err != nil {
				return nil, err
			}
			return &TraceReport{Packets: 1}, errors.New("the disk is full")
		},
		endTrace: func(context.Context) error { return Refuse("nothing is traced") },
	}))
	_, err := c.Trace(testContext(t), TraceRequest{}, io.Discard)
	wantError(t, err, CodeRefused, "a trace runs already")
	refuse = false
	r, err := c.Trace(testContext(t), TraceRequest{}, io.Discard)
	wantError(t, err, CodeFailed, "the disk is full")
	if r == nil || r.Packets != 1 {
		t.Errorf("report %+v", r)
	}
	wantError(t, c.EndTrace(testContext(t)), CodeRefused, "nothing is traced")
	for _, req := range []TraceRequest{{Filter: "prot 53"}, {Snap: -1}, {Snap: MaxSnap + 1}, {For: -Millis(time.Second)}} {
		if _, err := c.Trace(testContext(t), req, io.Discard); err == nil || err.(*Error).Code != CodeUsage {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// A client that stops is asked no more than to say so: it still gets the end of the
// file. One that takes nothing any more ends the trace.
func TestTraceEnds(t *testing.T) {
	ended := make(chan struct{})
	c := client(t, serve(t, &fakeBackend{
		trace: func(ctx context.Context, _ TraceRequest, out io.Writer) (*TraceReport, error) {
			if _, err := out.Write([]byte("x")); err != nil {
				return nil, err
			}
			select {
			case <-ended:
				_, err := out.Write([]byte("y"))
				return &TraceReport{Reason: "ended on request"}, err
			case <-ctx.Done():
				close(ended)
				return nil, ctx.Err()
			}
		},
		endTrace: func(context.Context) error { close(ended); return nil },
	}))
	var file bytes.Buffer
	ctx, interrupt := context.WithCancel(testContext(t))
	r, err := c.Trace(ctx, TraceRequest{}, writerFunc(func(b []byte) (int, error) {
		interrupt()
		return file.Write(b)
	}))
	if err != nil || r.Reason != "ended on request" || file.String() != "xy" {
		t.Errorf("%+v, %q, %v", r, file.String(), err)
	}
	ended = make(chan struct{})
	full := errors.New("full")
	if _, err := c.Trace(testContext(t), TraceRequest{}, writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	select {
	case <-ended:
	case <-testContext(t).Done():
		t.Error("the trace goes on")
	}
}
