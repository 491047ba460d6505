package control

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/exit"
)

func TestWatch(t *testing.T) {
	worker := 1
	want := []Event{
		{Seq: 7, Kind: KindWorker, Epoch: 2, Worker: &worker, Time: day, Step: StepWindow, Text: "is ready", Reload: 3},
		{Seq: 8, Kind: KindLanes, Time: day, Step: StepHandover, Entered: true, Text: "every lane has stopped reading"},
	}
	c := client(t, serve(t, &fakeBackend{watch: func(_ context.Context, last int, emit func(Event)) error {
		if last != 5 {
			return fmt.Errorf("last is %d", last)
		}
		for _, e := range want {
			emit(e)
		}
		return nil
	}}))
	var got []Event
	if err := c.Watch(testContext(t), 5, func(e Event) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events differ (-want +got):\n%s", d)
	}
}

// Every past event reaches a reader that reads, though they come all at once.
func TestWatchPast(t *testing.T) {
	c := client(t, serve(t, &fakeBackend{watch: func(_ context.Context, last int, emit func(Event)) error {
		for i := range last {
			emit(Event{Seq: uint64(i + 1)})
		}
		return nil
	}}))
	n := 0
	err := c.Watch(testContext(t), MaxLast, func(e Event) {
		if n++; e.Seq != uint64(n) {
			t.Errorf("event %d has the number %d", n, e.Seq)
		}
	})
	if err != nil || n != MaxLast {
		t.Errorf("%d events, %v", n, err)
	}
}

func TestAbort(t *testing.T) {
	b := &fakeBackend{abort: func(context.Context) (*Aborted, error) { return &Aborted{Epoch: 4}, nil }}
	c := client(t, serve(t, b))
	if a, err := c.Abort(testContext(t)); err != nil || a.Epoch != 4 {
		t.Errorf("abort: %+v, %v", a, err)
	}
	b.abort = func(context.Context) (*Aborted, error) {
		return nil, Refuse("no reload is in progress that could be given up")
	}
	_, err := c.Abort(testContext(t))
	wantError(t, err, CodeRefused, "no reload is in progress that could be given up")
	if exit.Of(err) != exit.Refused {
		t.Errorf("exit code is %d", exit.Of(err))
	}
}

func TestDrain(t *testing.T) {
	b := &fakeBackend{drain: func(_ context.Context, epoch uint32, now bool, emit func(Event)) error {
		emit(Event{Epoch: epoch, Text: fmt.Sprint(now)})
		if epoch == 9 {
			return Refuse("there is no epoch 9")
		}
		return nil
	}}
	c := client(t, serve(t, b))
	for _, req := range []DrainRequest{{Epoch: 2}, {Epoch: 3, Now: true}} {
		var got Event
		if err := c.Drain(testContext(t), req, func(e Event) { got = e }); err != nil {
			t.Error(err)
		}
		if got.Epoch != req.Epoch || got.Text != fmt.Sprint(req.Now) {
			t.Errorf("the backend got %+v for %+v", got, req)
		}
	}
	err := c.Drain(testContext(t), DrainRequest{Epoch: 9}, func(Event) {})
	wantError(t, err, CodeRefused, "there is no epoch 9")
	wantError(t, c.Drain(testContext(t), DrainRequest{}, func(Event) {}), CodeUsage, "epoch is missing")

	b.drain = func(ctx context.Context, _ uint32, _ bool, _ func(Event)) error {
		<-ctx.Done()
		return ctx.Err()
	}
	err = c.Drain(testContext(t), DrainRequest{Epoch: 2, Timeout: 1e6}, func(Event) {})
	wantError(t, err, CodeDraining, "the drain is not finished after 1ms and goes on")
	ctx, hangUp := context.WithCancel(testContext(t))
	hangUp()
	if err := c.Drain(ctx, DrainRequest{Epoch: 2}, func(Event) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the hang-up: %v", err)
	}
}
