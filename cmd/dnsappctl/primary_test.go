package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/exit"
)

// The primary is asked on its own socket: where there is none, whatever the
// supervisor does, nothing answers.
func TestPrimaryNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	for _, args := range []string{"primary status", "primary stop", "primary status -o json"} {
		_, errs, code := ctl(t, path, strings.Fields(args)...)
		if code != exit.Unreachable || !strings.Contains(errs, "no dnsapp primary answers on "+filepath.Dir(path)) {
			t.Errorf("%s: code %d, %q", args, code, errs)
		}
	}
}

// What a primary says is shown, with the buffers of every process; a refusal is
// passed on with its reason and code.
func TestPrimary(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "primary.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := primary.Status{
		State: primary.State{Identity: primary.Identity{PID: os.Getpid()}, Prefix: "dnsapp-7"}, Digest: "abc", DPDK: "DPDK 22.11", StartedAt: time.Now(),
		Ports:       []primary.Port{{Name: "wan", Device: "net_tap0", Driver: "net_tap", MTU: 1500, Queues: 2, Up: true, Mbps: 10000, RxPackets: 5}},
		Secondaries: []primary.Secondary{{Identity: primary.Identity{PID: 4711}, Lcore: 6, Slot: 1, Worker: 1, Mbufs: 32}},
		Pool:        &primary.Pool{Size: 100, Free: 68}, Deaths: 3, Mended: 64,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s) })
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error": "1 secondaries live"}`, http.StatusConflict)
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })

	path := filepath.Join(dir, "control.sock")
	out, errs, code := ctl(t, path, "primary", "status")
	for _, want := range []string{
		"prefix dnsapp-7, digest abc\n", "pool 100 = free 68 + rings 0 + primary 0 + rx 0 + tx 0 + astray 0 + pid 4711 32\n",
		"deaths 3, after which 64 packet buffers were given back\n", "wan (net_tap0)  0     net_tap", "10000 Mbit/s", "6      1     1       4711  attached  32\n",
	} {
		if !strings.Contains(out, want) || code != 0 {
			t.Errorf("code %d, %s; %q is not in:\n%s", code, errs, want, out)
		}
	}
	var got primary.Status
	if out, _, _ := ctl(t, path, "primary", "status", "-o", "json"); json.Unmarshal([]byte(out), &got) != nil || *got.Pool != *s.Pool {
		t.Errorf("as JSON: %s", out)
	}
	if _, errs, code := ctl(t, path, "primary", "stop"); code != exit.Refused || !strings.Contains(errs, "the primary refuses: 1 secondaries live") {
		t.Errorf("code %d, %q", code, errs)
	}
}
