package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// await polls until ok holds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := testContext(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// logged serves b on the socket at path and returns what is logged; run begins to
// answer.
func logged(t *testing.T, b Backend, path string) (log *lines, run func()) {
	t.Helper()
	log = &lines{}
	s := NewServer(b, slog.New(slog.NewTextHandler(log, nil)))
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		if err := s.Shutdown(testContext(t)); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		serving.Wait()
	})
	return log, func() {
		serving.Go(func() {
			if err := s.Serve(); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
}

// What a client has given up before a supervisor that stood still has taken it
// up is not done when that goes on; what was taken up is (TestHangUp).
func TestWithdrawn(t *testing.T) {
	b := &fakeBackend{
		reload: func(context.Context, ReloadOptions, func(Event)) (*ReloadReport, error) {
			t.Error("a reload was begun")
			return nil, nil
		},
		abort: func(context.Context) (*Aborted, error) {
			t.Error("a reload was aborted")
			return nil, nil
		},
	}
	path := socketPath(t)
	log, run := logged(t, b, path)
	for _, ask := range []func(context.Context, *Client) error{
		func(ctx context.Context, c *Client) error {
			_, err := c.Reload(ctx, ReloadRequest{}, nil)
			return err
		},
		func(ctx context.Context, c *Client) error {
			_, err := c.Abort(ctx)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		c := client(t, path)
		err := ask(ctx, c)
		cancel()
		c.Close()
		var silent *SilentError
		if !errors.As(err, &silent) || silent.PID != os.Getpid() || exit.Of(err) != exit.Unreachable {
			t.Fatalf("%#v", err)
		}
		wantText(t, err, "has not answered on "+path)
	}
	run()
	await(t, "both requests are dropped", func() bool { return log.count("its sender has gone") == 2 })
	if _, err := client(t, path).Status(testContext(t)); err != nil {
		t.Errorf("who has not gone: %v", err)
	}
}

// Who waits for a supervisor that says nothing is told so, and can stop waiting.
func TestSilence(t *testing.T) {
	path := socketPath(t)
	logged(t, &fakeBackend{}, path)
	ctx, interrupt := context.WithCancel(testContext(t))
	c := client(t, path)
	told := 0
	c.OnSilence = func(pid int) {
		if told++; pid != os.Getpid() {
			t.Errorf("pid %d", pid)
		}
		interrupt()
	}
	_, err := c.Reload(ctx, ReloadRequest{}, nil)
	wantText(t, err, "interrupted")
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf("told %d times: %v", told, err)
	}
}

// A supervisor that has taken a request up may say nothing for as long as it
// takes, unless it is stopped.
func TestQuiet(t *testing.T) {
	ctx, cancel := context.WithTimeout(testContext(t), silenceAfter+500*time.Millisecond)
	defer cancel()
	c := client(t, serve(t, &fakeBackend{reload: func(ctx context.Context, _ ReloadOptions, _ func(Event)) (*ReloadReport, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}))
	c.OnSilence = func(int) { t.Error("told of silence") }
	if _, err := c.Reload(ctx, ReloadRequest{}, nil); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*SilentError)) {
		t.Errorf("%#v", err)
	}
}

func TestStopped(t *testing.T) {
	sleeper := exec.CommandContext(t.Context(), "sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Wait() }()
	defer func() { _ = sleeper.Process.Kill() }()
	pid := sleeper.Process.Pid
	silent := &SilentError{Path: "/c", PID: pid, After: 5 * time.Second, Err: context.DeadlineExceeded}
	if isStopped(pid) || !strings.HasSuffix(silent.Error(), "for 5s; its log may say why") {
		t.Errorf("running: %v", silent)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "it is stopped", func() bool { return isStopped(pid) })
	wantText(t, silent, "it is stopped; kill -CONT ")
	if got := Silence(pid); !strings.HasSuffix(got, "), which is stopped") {
		t.Errorf("%q", got)
	}
	if isStopped(1<<22 + 1) {
		t.Error("a process that cannot be is stopped")
	}
}
