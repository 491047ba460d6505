package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childMode makes the test binary another program: a supervisor, or a client
// of another user.
const childMode = "DNSAPP_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(child(mode, os.Args[len(os.Args)-1]))
	}
	goleak.VerifyTestMain(m)
}

// child runs as mode against the socket at path and returns the exit code.
func child(mode, path string) int {
	switch mode {
	case "status": // ask, and print how it went
		c, err := Dial(path)
		if err == nil {
			defer c.Close()
			_, err = c.Status(context.Background())
		}
		fmt.Println("answer:", err)
		return 0
	case "serve", "serve and vanish": // a supervisor that exits when it is stopped
		b := &fakeBackend{}
		stopped := make(chan struct{})
		b.stop = func(context.Context, StopKind, func(Event)) error {
			if mode == "serve and vanish" {
				os.Exit(0)
			}
			close(stopped)
			return nil
		}
		s := NewServer(b, slog.New(slog.DiscardHandler))
		if err := s.Listen(path); err != nil {
			fmt.Println("listen:", err)
			return 1
		}
		fmt.Println("listening")
		go func() {
			<-stopped
			_ = s.Shutdown(context.Background())
		}()
		if err := s.Serve(); err != nil {
			return 1
		}
		_ = s.Shutdown(context.Background())
		return 0
	}
	return 2
}

// childCommand returns the test binary as the program mode.
func childCommand(t *testing.T, mode, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, path)
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	cmd.Stderr = os.Stderr
	return cmd
}

// fakeBackend answers from its fields; a nil function answers at once.
type fakeBackend struct {
	backends func(ctx context.Context) ([]BackendStatus, error)
	order    func(ctx context.Context, req ServerRequest) (*ServerStatus, error)
	status   func(context.Context) (*Status, error)
	zones    func(context.Context) ([]ZoneStatus, error)
	zone     func(context.Context, string) (*ZoneDetail, error)
	renew    func(context.Context, []string, func(Event)) (*ZoneReport, error)
	reload   func(context.Context, ReloadOptions, func(Event)) (*ReloadReport, error)
	stop     func(context.Context, StopKind, func(Event)) error
	load     func(context.Context) (*Traffic, error)
	flow     func(context.Context, FlowQuery) (*FlowAnswer, error)
	plan     func(context.Context) (*Plan, error)
	abort    func(context.Context) (*Aborted, error)
	drain    func(context.Context, uint32, bool, func(Event)) error
	upgrade  func(context.Context, UpgradeRequest, func(Event)) (*ReloadReport, error)
	watch    func(context.Context, int, func(Event)) error
	trace    func(context.Context, TraceRequest, io.Writer) (*TraceReport, error)
	endTrace func(context.Context) error
}

func (b *fakeBackend) Trace(ctx context.Context, req TraceRequest, out io.Writer) (*TraceReport, error) {
	if b.trace == nil {
		return &TraceReport{}, nil
	}
	return b.trace(ctx, req, out)
}

func (b *fakeBackend) EndTrace(ctx context.Context) error {
	if b.endTrace == nil {
		return nil
	}
	return b.endTrace(ctx)
}

func (b *fakeBackend) Version() Version {
	return Version{Version: "v0.1.0", Revision: "abc", Go: "go1.26", API: APIVersion}
}

func (b *fakeBackend) Status(ctx context.Context) (*Status, error) {
	if b.status == nil {
		return &Status{}, nil
	}
	return b.status(ctx)
}

func (b *fakeBackend) Zones(ctx context.Context) ([]ZoneStatus, error) {
	if b.zones == nil {
		return nil, nil
	}
	return b.zones(ctx)
}

func (b *fakeBackend) Backends(ctx context.Context) ([]BackendStatus, error) {
	if b.backends == nil {
		return nil, nil
	}
	return b.backends(ctx)
}

func (b *fakeBackend) OrderServer(ctx context.Context, req ServerRequest) (*ServerStatus, error) {
	if b.order == nil {
		return &ServerStatus{}, nil
	}
	return b.order(ctx, req)
}

func (b *fakeBackend) Diff(context.Context) (*Diff, error) { return &Diff{}, nil }

func (b *fakeBackend) Zone(ctx context.Context, name string) (*ZoneDetail, error) {
	if b.zone == nil {
		return &ZoneDetail{}, nil
	}
	return b.zone(ctx, name)
}

func (b *fakeBackend) ReloadZones(ctx context.Context, names []string, emit func(Event)) (*ZoneReport, error) {
	if b.renew == nil {
		return &ZoneReport{}, nil
	}
	return b.renew(ctx, names, emit)
}

func (b *fakeBackend) Reload(ctx context.Context, o ReloadOptions, emit func(Event)) (*ReloadReport, error) {
	if b.reload == nil {
		return &ReloadReport{}, nil
	}
	return b.reload(ctx, o, emit)
}

func (b *fakeBackend) Stop(ctx context.Context, kind StopKind, emit func(Event)) error {
	if b.stop == nil {
		return nil
	}
	return b.stop(ctx, kind, emit)
}

func (b *fakeBackend) ExplainFlow(ctx context.Context, q FlowQuery) (*FlowAnswer, error) {
	if b.flow == nil {
		return &FlowAnswer{}, nil
	}
	return b.flow(ctx, q)
}

func (b *fakeBackend) Traffic(ctx context.Context) (*Traffic, error) {
	if b.load == nil {
		return &Traffic{}, nil
	}
	return b.load(ctx)
}

func (b *fakeBackend) Plan(ctx context.Context) (*Plan, error) {
	if b.plan == nil {
		return &Plan{}, nil
	}
	return b.plan(ctx)
}

func (b *fakeBackend) Abort(ctx context.Context) (*Aborted, error) {
	if b.abort == nil {
		return &Aborted{}, nil
	}
	return b.abort(ctx)
}

func (b *fakeBackend) Drain(ctx context.Context, epoch uint32, now bool, emit func(Event)) error {
	if b.drain == nil {
		return nil
	}
	return b.drain(ctx, epoch, now, emit)
}

func (b *fakeBackend) Upgrade(ctx context.Context, req UpgradeRequest, emit func(Event)) (*ReloadReport, error) {
	if b.upgrade == nil {
		return nil, nil
	}
	return b.upgrade(ctx, req, emit)
}

func (b *fakeBackend) Watch(ctx context.Context, last int, emit func(Event)) error {
	if b.watch == nil {
		return nil
	}
	return b.watch(ctx, last, emit)
}

// socketPath returns a path for a control socket, in a directory that may not
// exist yet. Test names would make t.TempDir too long for one.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") //nolint:usetesting // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "control.sock")
}

// serve serves b on a socket of its own and returns its path.
func serve(t *testing.T, b Backend) string {
	t.Helper()
	path := socketPath(t)
	s := NewServer(b, slog.New(slog.DiscardHandler))
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Shutdown(testContext(t)); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return path
}

// client returns a client of the server at path.
func client(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// testContext returns a context that ends well before the test binary would be
// killed for hanging. It outlives the test's own context: cleanups use it.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// receive returns the next value of ch.
func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-testContext(t).Done():
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// wantError checks that err is an *Error with this code whose text has all
// parts.
func wantError(t *testing.T, err error, code Code, parts ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %#v, want code %s", err, code)
	}
	wantText(t, err, parts...)
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}
