package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dnsapp/dnsapp/server/exit"
)

// Ctrl-C ends the trace: the file is whole, and the report is printed.
func TestInterruptTrace(t *testing.T) {
	b := &backend{tracing: make(chan struct{}), endTrace: make(chan struct{})}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-b.tracing
		interrupt()
	}()
	file := filepath.Join(t.TempDir(), "pcap")
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs, env: environment(serve(t, b))}
	if code := a.run(ctx, []string{"trace", "--pcap", file}); code != exit.Done || errs.Len() != 0 || !strings.Contains(out.String(), "(ended on request)") {
		t.Errorf("code %d: %s%s", code, out.String(), errs.String())
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "ng" {
		t.Errorf("the file has %q, %v", got, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A trace that is refused leaves the file of the last one.
func TestTraceRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pcap")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{out: io.Discard, err: io.Discard, env: environment(serve(t, &backend{}))}
	if code := a.run(t.Context(), []string{"trace", "--pcap", file, "--filter", "arp"}); code != exit.Refused {
		t.Errorf("code %d", code)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "before" {
		t.Errorf("the file has %q, %v", got, err)
	}
}
