package statefile

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/config"
)

func sample() *State {
	return &State{
		Software: "v1.2.3", SavedAt: time.Unix(1_700_000_000, 5).UTC(),
		Servers: []Server{{
			Backend: "app", File: config.Server{Name: "a", Address: netip.MustParseAddrPort("[2001:db8::1]:53"), Weight: 4, Backup: true, MaxFlows: 9},
			Order: backend.Draining, Weight: 7, Down: true, Counts: backend.Counts{Flows: 1, Refused: 2, Silent: 3, To: 4, From: 1<<64 - 1},
		}},
		Counters:   map[string]uint64{"received": 1<<64 - 1},
		Supervisor: map[string]uint64{"respawned": 3},
		Zones:      []Zone{{Name: "example.com.", UDP: 1, TCP: 2, NXDomain: 3, Truncated: 4}},
	}
}

// What is written is read, whole, and nobody else may read it, whatever was there
// before.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	want := sample()
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want.Version = Version
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// A file that cannot be written leaves the old one, and nothing beside it.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none", "state.json"), dir} {
		err := Write(path, sample())
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// A file that is not there is told apart from one that is of no use.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := Write(path, sample()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The next release writes more keys; they are for it alone.
	more := strings.Replace(string(good), `"software"`, `"novelty": [1], "software"`, 1)
	for name, c := range map[string]struct{ content, want string }{
		"more keys":       {more, ""},
		"empty":           {"", "damaged"},
		"cut":             {string(good[:len(good)/2]), "damaged"},
		"two":             {string(good) + string(good), "damaged"},
		"zeros":           {strings.Repeat("\x00", len(good)), "damaged"},
		"not an object":   {"[]", "damaged"},
		"no version":      {"{}", "version 0"},
		"another version": {`{"version": 2, "servers": "all"}`, "version 2, and this binary reads version 1"},
		"unknown order":   {strings.Replace(string(good), `"draining"`, `"asleep"`, 1), `no order "asleep"`},
		"weight":          {strings.Replace(string(good), `"weight": 7`, `"weight": 65536`, 1), "weight 65536"},
		"negative":        {strings.Replace(string(good), `"received": 18446744073709551615`, `"received": -1`, 1), "damaged"},
		"large":           {strings.Repeat(" ", maxSize+1), "damaged"},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Read(path)
		switch {
		case c.want == "" && (err != nil || len(s.Servers) != 1):
			t.Errorf("%s: %+v, %v", name, s, err)
		case c.want != "" && (err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What others may have written is not believed, and a pipe does not hold up the start.
func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := Write(open, sample()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o620); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{open: "others may write it", pipe: "not a regular file", dir: "not a regular file"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// A server that is there twice would get one of two orders by chance.
func TestReadTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s := sample()
	s.Servers = append(s.Servers, s.Servers[0])
	if err := Write(path, s); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
}
