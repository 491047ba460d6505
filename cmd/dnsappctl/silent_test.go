package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/exit"
)

// A supervisor that stands still is told from one that is at work: the exit code
// says that nothing was begun, and standard error whom it waits for.
func TestSilent(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl") //nolint:usetesting // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := control.NewServer(&backend{}, slog.New(slog.DiscardHandler))
	path := filepath.Join(dir, "control.sock")
	if err := s.Listen(path); err != nil { // and it never serves
		t.Fatal(err)
	}
	defer func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	began := time.Now()
	out, errs, code := ctl(t, path, "reload", "--timeout", "50ms", "-o", "json")
	who := "the supervisor (pid " + strconv.Itoa(os.Getpid()) + ")"
	if code != exit.Unreachable || !strings.Contains(out, `"code":"unreachable"`) {
		t.Errorf("code %d: %s", code, out)
	}
	if !strings.HasPrefix(errs, "dnsappctl: waiting for "+who+" ...\n") || !strings.Contains(errs, "the reload has not begun, and is withdrawn: "+who) {
		t.Errorf("standard error: %s", errs)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
