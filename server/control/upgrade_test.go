package control

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// An upgrade is passed on as it was asked for, and what makes no sense is refused.
func TestUpgrade(t *testing.T) {
	var got UpgradeRequest
	b := &fakeBackend{upgrade: func(_ context.Context, req UpgradeRequest, emit func(Event)) (*ReloadReport, error) {
		got = req
		emit(Event{Text: "pid 7 takes over"})
		if req.Action == UpgradeRollback {
			return nil, Refuse("no supervisor stands by")
		}
		return &ReloadReport{OK: true, ToEpoch: 3}, nil
	}}
	c := client(t, serve(t, b))
	for _, tt := range []struct{ sent, want UpgradeRequest }{
		{UpgradeRequest{}, UpgradeRequest{Action: UpgradeStart, Wait: WaitDone}},
		{
			UpgradeRequest{Binary: "/opt/dnsapp", Wait: WaitCommit, Timeout: Millis(time.Minute)},
			UpgradeRequest{Action: UpgradeStart, Binary: "/opt/dnsapp", Wait: WaitCommit, Timeout: Millis(time.Minute)},
		},
		{UpgradeRequest{Action: UpgradeDrainOld}, UpgradeRequest{Action: UpgradeDrainOld, Wait: WaitDone}},
	} {
		var news string
		r, err := c.Upgrade(testContext(t), tt.sent, func(e Event) { news = e.Text })
		if err != nil || r.ToEpoch != 3 || got != tt.want || news != "pid 7 takes over" {
			t.Errorf("%+v: the backend got %+v, the client %+v, %q, %v", tt.sent, got, r, news, err)
		}
	}
	_, err := c.Upgrade(testContext(t), UpgradeRequest{Action: UpgradeRollback}, func(Event) {})
	wantError(t, err, CodeRefused, "no supervisor stands by")
	for want, req := range map[string]UpgradeRequest{
		"binary has no meaning": {Action: UpgradeRollback, Binary: "/opt/dnsapp"},
		`action is "undo"`:      {Action: "undo"},
		`wait is "soon"`:        {Wait: "soon"},
	} {
		_, err := c.Upgrade(testContext(t), req, func(Event) {})
		wantError(t, err, CodeUsage, want)
	}
}

// A socket and its lock pass to another server without a moment in which nobody has
// them: whoever connects is answered, by the old one or by the new one, and a third
// gets neither.
func TestTakeOver(t *testing.T) {
	path := socketPath(t)
	old := NewServer(&fakeBackend{}, slog.New(slog.DiscardHandler))
	if err := old.Listen(path); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- old.Serve() }()
	connected := client(t, path)
	if _, err := connected.Status(testContext(t)); err != nil {
		t.Fatal(err)
	}
	lock, err := old.Lock()
	if err != nil {
		t.Fatal(err)
	}
	old.Leave()
	b := &fakeBackend{abort: func(context.Context) (*Aborted, error) { return &Aborted{Epoch: 4}, nil }}
	next := NewServer(b, slog.New(slog.DiscardHandler))
	if err := next.TakeOver(path, lock); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- next.Serve() }()
	if a, err := client(t, path).Abort(testContext(t)); err != nil || a.Epoch != 4 {
		t.Errorf("the new server: %+v, %v", a, err)
	}
	if _, err := connected.Status(testContext(t)); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if err := old.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	if _, err := client(t, path).Abort(testContext(t)); err != nil {
		t.Errorf("after the end of the old server: %v", err)
	}
	if _, err := listen(path); err == nil {
		t.Error("a third server got the directory")
	}
	if err := next.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	l, err := listen(path)
	if err != nil {
		t.Fatalf("after the end of both: %v", err)
	}
	if err := l.release(); err != nil {
		t.Error(err)
	}
}
