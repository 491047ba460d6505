package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/exit"
)

func TestAnswers(t *testing.T) {
	want := sampleStatus()
	zones := []ZoneStatus{{Name: "example.com.", File: "/etc/dnsapp/example.com.zone", Serial: 7, Records: 12, LoadedAt: day}}
	c := client(t, serve(t, &fakeBackend{
		status: func(context.Context) (*Status, error) { return want, nil },
		zones:  func(context.Context) ([]ZoneStatus, error) { return zones, nil },
	}))
	ctx := testContext(t)

	v, err := c.Version(ctx)
	if err != nil || v.Version != "v0.1.0" || v.API != APIVersion {
		t.Errorf("version is %+v, %v", v, err)
	}
	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, st, cmpAddrPort); d != "" {
		t.Errorf("status differs (-want +got):\n%s", d)
	}
	z, err := c.Zones(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(zones, z); d != "" {
		t.Errorf("zones differ (-want +got):\n%s", d)
	}
}

// An event reaches the client while the reload waits: the backend goes on only
// after the client has seen the event.
func TestReloadStreams(t *testing.T) {
	seen := make(chan Step)
	c := client(t, serve(t, &fakeBackend{
		reload: func(ctx context.Context, o ReloadOptions, emit func(Event)) (*ReloadReport, error) {
			if o.Wait != WaitCommit {
				return nil, fmt.Errorf("wait is %q", o.Wait)
			}
			for _, s := range Steps[1:] {
				emit(Event{Step: s, Entered: true})
				select {
				case got := <-seen:
					if got != s {
						return nil, fmt.Errorf("the client saw %s, not %s", got, s)
					}
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return &ReloadReport{ID: 3, OK: true, Outcome: OutcomeDone}, nil
		},
	}))
	report, err := c.Reload(testContext(t), ReloadRequest{Wait: WaitCommit}, func(e Event) { seen <- e.Step })
	if err != nil {
		t.Fatal(err)
	}
	if report.ID != 3 || !report.OK {
		t.Errorf("report is %+v", report)
	}
}

func TestReloadRefused(t *testing.T) {
	problem := Problem{File: "/etc/dnsapp.yaml", Line: 4, Key: "workers", Message: "is 0", Want: "want 1 to 64"}
	c := client(t, serve(t, &fakeBackend{
		reload: func(context.Context, ReloadOptions, func(Event)) (*ReloadReport, error) {
			e := Refuse("the configuration has %d error", 1)
			e.Problems = []Problem{problem}
			return &ReloadReport{Outcome: OutcomeRefused}, fmt.Errorf("reloading: %w", e)
		},
	}))
	report, err := c.Reload(testContext(t), ReloadRequest{}, func(Event) {})
	wantError(t, err, CodeRefused, "the configuration has 1 error", "/etc/dnsapp.yaml:4: workers: is 0 (want 1 to 64)")
	if report == nil || report.Outcome != OutcomeRefused {
		t.Errorf("report is %+v", report)
	}
	if exit.Of(err) != exit.Refused {
		t.Errorf("exit code is %d", exit.Of(err))
	}
}

func TestPlainErrorIsFailed(t *testing.T) {
	c := client(t, serve(t, &fakeBackend{
		status: func(context.Context) (*Status, error) { return nil, errors.New("no directory") },
		reload: func(context.Context, ReloadOptions, func(Event)) (*ReloadReport, error) {
			return nil, errors.New("no worker started")
		},
	}))
	_, err := c.Status(testContext(t))
	wantError(t, err, CodeFailed, "no directory")
	_, err = c.Reload(testContext(t), ReloadRequest{}, func(Event) {})
	wantError(t, err, CodeFailed, "no worker started")
}

// A client that hangs up ends the waiting, and the server says so to the
// backend by the context only.
func TestHangUp(t *testing.T) {
	ended := make(chan error, 1)
	c := client(t, serve(t, &fakeBackend{
		reload: func(ctx context.Context, _ ReloadOptions, emit func(Event)) (*ReloadReport, error) {
			emit(Event{Step: StepWindow})
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		},
	}))
	ctx, hangUp := context.WithCancel(testContext(t))
	_, err := c.Reload(ctx, ReloadRequest{}, func(Event) { hangUp() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("client error is %v", err)
	}
	if err := receive(t, ended, "end of the backend's context"); !errors.Is(err, context.Canceled) {
		t.Errorf("backend error is %v", err)
	}
}

func TestTimeout(t *testing.T) {
	c := client(t, serve(t, &fakeBackend{
		reload: func(ctx context.Context, _ ReloadOptions, emit func(Event)) (*ReloadReport, error) {
			emit(Event{Step: StepDrain, Text: "committed"})
			<-ctx.Done()
			return nil, ctx.Err()
		},
		status: func(context.Context) (*Status, error) { return sampleStatus(), nil },
	}))
	_, err := c.Reload(testContext(t), ReloadRequest{Timeout: Millis(20 * time.Millisecond)}, func(Event) {})
	wantError(t, err, CodeDraining, "the reload is not finished after 20ms and goes on", "T3 (drain): committed", "epoch 1 waits for 3 UDP flows, newest idle 4.1 s")
	if exit.Of(err) != exit.Draining {
		t.Errorf("exit code is %d", exit.Of(err))
	}
}

// A client that does not read delays nobody, loses events and is told so.
func TestSlowReader(t *testing.T) {
	emitted := make(chan struct{})
	path := serve(t, &fakeBackend{
		reload: func(_ context.Context, _ ReloadOptions, emit func(Event)) (*ReloadReport, error) {
			defer close(emitted)
			for range 20_000 { // some 4 MB: more than any socket buffer
				emit(Event{Step: StepDrain, Text: strings.Repeat("x", 100)})
			}
			return &ReloadReport{OK: true}, nil
		},
	})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/reload HTTP/1.1\r\nHost: dnsapp\r\nContent-Length: 0\r\n\r\n")
	receive(t, emitted, "end of the reload while nobody reads")

	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events, told, last := 0, false, Line{}
	for dec := json.NewDecoder(resp.Body); !last.Done; {
		last = Line{}
		if err := dec.Decode(&last); err != nil {
			t.Fatal(err)
		}
		if last.Event != nil {
			events++
			told = told || strings.Contains(last.Event.Text, "events left out")
		}
	}
	if events >= 20_000 || !told {
		t.Errorf("%d events came, told of the missing ones: %v", events, told)
	}
	if last.Report == nil || !last.Report.OK {
		t.Errorf("last line is %+v", last)
	}
}

// The supervisor survives a bug behind one request, and the client is not told
// that all went well.
func TestBackendPanics(t *testing.T) {
	c := client(t, serve(t, &fakeBackend{
		reload: func(context.Context, ReloadOptions, func(Event)) (*ReloadReport, error) { panic("a bug") },
	}))
	_, err := c.Reload(testContext(t), ReloadRequest{}, func(Event) {})
	wantError(t, err, CodeFailed, "met a bug")
	if _, err := c.Version(testContext(t)); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	path := serve(t, &fakeBackend{})
	hc := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	defer hc.CloseIdleConnections()
	for _, c := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"GET", "/", "", 404, "there is no /"},
		{"GET", "/v2/status", "", 404, "is dnsappctl newer"},
		{"GET", "/v1/reload", "", 405, "/v1/reload takes POST, not GET"},
		{"POST", "/v1/status", "", 405, "/v1/status takes GET, not POST"},
		{"POST", "/v1/reload", `{"wiat":"done"}`, 400, `unknown field "wiat"`},
		{"POST", "/v1/reload", `{"wait":"forever"}`, 400, `wait is "forever", and must be "done" or "commit"`},
		{"POST", "/v1/reload", `{"timeout_ms":-1}`, 400, "timeout_ms is negative"},
		{"POST", "/v1/reload", `{"timeout_ms":"1s"}`, 400, "reading the request"},
		{"POST", "/v1/reload", `{} {}`, 400, "more than one JSON value"},
		{"POST", "/v1/reload", `{`, 400, "reading the request"},
		{"POST", "/v1/reload", strings.Repeat(" ", maxBody+1), 400, "too large"},
		{"POST", "/v1/stop", `{"kind":"quick"}`, 400, `kind is "quick", and must be "graceful", "fast" or "now"`},
		{"POST", "/v1/abort", `{"epoch":1}`, 400, `unknown field "epoch"`},
		{"POST", "/v1/drain", `{}`, 400, "epoch is missing"},
		{"POST", "/v1/drain", `{"epoch":-1}`, 400, "reading the request"},
		{"GET", "/v1/events?last=-1", "", 400, `last is "-1", and must be a whole number from 0 to 256`},
		{"GET", "/v1/events?last=257", "", 400, "whole number from 0 to 256"},
		{"GET", "/v1/events?last=x", "", 400, "whole number"},
		{"GET", "/v1/flow", "", 400, `transport is "", and must be udp or tcp`},
		{"GET", "/v1/flow?transport=udp", "", 400, "remote is missing"},
		{"GET", "/v1/flow?transport=udp&remote=192.0.2.1", "", 400, `remote "192.0.2.1" is no address with a port`},
		{"GET", "/v1/flow?transport=udp&remote=192.0.2.1:0", "", 400, "remote is missing"},
		{"GET", "/v1/flow?transport=udp&remote=192.0.2.1:7&local=127.0.0.1:0", "", 400, "local has no port"},
		{"GET", "/v1/flow?transport=udp&remote=192.0.2.1:7&local=0.0.0.0:53", "", 400, "local 0.0.0.0:53 is no address that a client asks"},
		{"GET", "/v1/flow?transport=udp&remote=192.0.2.1:7&local=[::1]:53", "", 400, "of different families"},
	} {
		req, err := http.NewRequest(c.method, "http://dnsapp"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		var e Error
		err = json.NewDecoder(resp.Body).Decode(&e)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || e.Code != CodeUsage || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s %s %.40q: %d %+v, %v", c.method, c.path, c.body, resp.StatusCode, e, err)
		}
	}
}

// Everything but the peer's user lets it connect, and still it gets nothing.
func TestPeerOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: becoming another user needs root")
	}
	var asked atomic.Bool
	path := serve(t, &fakeBackend{status: func(context.Context) (*Status, error) {
		asked.Store(true)
		return &Status{}, nil
	}})
	dir := filepath.Dir(path)
	for file, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := childCommand(t, "status", path)
	exe := filepath.Join(filepath.Dir(dir), "child") // the test binary's own directory is closed to others
	b, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd.Path = exe
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "answer: only root and uid 0 may control this dnsapp, and this is uid 65534\n"; string(out) != want {
		t.Errorf("the other user got %q, want %q", out, want)
	}
	if asked.Load() {
		t.Error("the backend was asked")
	}
}

func TestMayControl(t *testing.T) {
	for _, c := range []struct {
		uid, own uint32
		want     bool
	}{{0, 0, true}, {0, 53, true}, {53, 53, true}, {53, 0, false}, {54, 53, false}, {^uint32(0), 0, false}} {
		if got := mayControl(c.uid, c.own); got != c.want {
			t.Errorf("mayControl(%d, %d) = %v", c.uid, c.own, got)
		}
	}
}

// Stop returns when the supervisor's process has gone, whether it said goodbye
// or not, and the directory is free then.
func TestStopWaitsForExit(t *testing.T) {
	for _, mode := range []string{"serve", "serve and vanish"} {
		t.Run(mode, func(t *testing.T) {
			path := socketPath(t)
			cmd := childCommand(t, mode, path)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			if line != "listening\n" {
				t.Fatalf("the child says %q", line)
			}
			c := client(t, path)
			if err := c.Stop(testContext(t), StopRequest{}, func(Event) {}); err != nil {
				t.Errorf("stop: %v", err)
			}
			l, err := listen(path)
			if err != nil {
				t.Errorf("after the stop: %v", err)
			} else if err := l.release(); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the child: %v", err)
			}
		})
	}
}

// Shutdown cuts off what does not end in time.
func TestShutdownCutsOff(t *testing.T) {
	path := socketPath(t)
	began := make(chan struct{})
	s := NewServer(&fakeBackend{
		reload: func(ctx context.Context, _ ReloadOptions, _ func(Event)) (*ReloadReport, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, slog.New(slog.DiscardHandler))
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	c := client(t, path)
	answer := make(chan error, 1)
	go func() {
		_, err := c.Reload(testContext(t), ReloadRequest{}, func(Event) {})
		answer <- err
	}()
	receive(t, began, "reload")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(now); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown: %v", err)
	}
	var un *UnreachableError
	var e *Error
	if err := receive(t, answer, "answer"); !errors.As(err, &un) && !errors.As(err, &e) {
		t.Errorf("the client got %v", err)
	}
	if err := receive(t, served, "end of Serve"); err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("second shutdown: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	l, err := listen(path)
	if err != nil {
		t.Fatalf("the directory is not free: %v", err)
	}
	release(t, l)
}

// Each line of a stream is one line of text, for clients that read lines.
func TestLinesAreLines(t *testing.T) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	if err := enc.Encode(Line{Event: &Event{Text: "a\nb"}}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d line ends in %q", n, out.String())
	}
}
