package zones

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/test/proc"
)

// nobody is a user that owns nothing.
const nobody = 65534

// newDropped is newFolder with compilers that are nobody, and a folder that
// nobody but its owner can read.
func newDropped(t *testing.T, env ...string) *folder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start compilers as somebody else")
	}
	f := newFolder(t, env...)
	f.s.host.identity = spawn.Identity{UID: nobody, GID: nobody, Change: true}
	if err := os.Chmod(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

// A compiler is nobody, and yet has the zone files and includes that only the
// supervisor can read; a later look at them has them, too.
func TestLend(t *testing.T) {
	f := newDropped(t)
	f.write("example.", text(1, "$INCLUDE sub/more"))
	if err := os.Mkdir(filepath.Join(f.dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	more := filepath.Join(f.dir, "sub", "more")
	var updates []*Update
	for i, address := range []string{"192.0.2.7", "192.0.2.7", "192.0.2.8"} {
		if err := os.WriteFile(more, []byte("www A "+address+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		u := f.prepare("example.")
		updates = append(updates, u)
		if got := u.Zones[0].Report; got.Records != 4 || len(got.Deps) != 2 {
			t.Errorf("round %d: report %+v", i, got)
		}
		if changed := i != 1; (u.Compiled == 1) != changed {
			t.Errorf("round %d: %d compiled", i, u.Compiled)
		}
		f.s.Commit(u)
	}
	for _, u := range updates {
		f.s.Done(u)
	}
}

// A compiler does not get what is no file of its zones.
func TestLendRefuses(t *testing.T) {
	f := newDropped(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("www A 192.0.2.7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(f.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{secret, "../" + filepath.Base(filepath.Dir(secret)) + "/secret", "pipe", "missing"} {
		f.write("example.", text(1, "$INCLUDE "+path))
		u, err := f.s.Prepare(t.Context(), f.config("example."))
		var refused *RefusedError
		if !errors.As(err, &refused) {
			if u != nil {
				f.s.Done(u)
			}
			t.Errorf("%s: %v", path, err)
			continue
		}
		want := "permission denied"
		if path == "missing" {
			want = "no such file"
		}
		if p := refused.Failures[0].Problems[0]; p.Line != 5 || !strings.Contains(p.Reason, want) {
			t.Errorf("%s: %+v, want %q in line 5", path, p, want)
		}
	}
}

// needs goes by whole names of folders.
func TestNeeds(t *testing.T) {
	l := lender{jobs: []job{{Zone: config.Zone{File: "/a/b/zone"}}, {Zone: config.Zone{File: "/c/../d/zone"}}}}
	for path, want := range map[string]bool{
		"/a/b/zone": true, "/a/b/other": true, "/a/b/c/d": true, "/d/x": true,
		"/a/zone": false, "/a/bb/zone": false, "/c/zone": false, "/": false, "zone": false, "/a/b": false,
	} {
		if got := l.needs(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// What a compiler is while it reads: nobody, at low priority, without a
// capability. It waits for the writer of a pipe meanwhile.
func TestCompilerCredentials(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	f := newDropped(t, trick+"=wait "+pipe)
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(pipe); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.write("example.", text(1))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() {
		u, err := f.s.Prepare(ctx, f.config("example."))
		if err == nil {
			f.s.Done(u)
		}
		ended <- err
	}()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the compiler
	if err != nil {
		t.Fatal(err)
	}
	tree, err := proc.Tree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range tree {
		if p.PID == os.Getpid() {
			continue
		}
		found++
		status, err := proc.Status(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		for field, want := range map[string]string{
			"Uid": "65534\t65534\t65534\t65534", "Gid": "65534\t65534\t65534\t65534", "Groups": "",
			"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1",
		} {
			if status[field] != want {
				t.Errorf("%s is %q, want %q", field, status[field], want)
			}
		}
		if nice, err := unix.Getpriority(unix.PRIO_PROCESS, p.PID); err != nil || 20-nice != testNice {
			t.Errorf("niceness %d, %v", 20-nice, err)
		}
	}
	if found != 1 {
		t.Errorf("%d compilers run", found)
	}
	if err := errors.Join(w.Close(), <-ended); err != nil {
		t.Error(err)
	}
}
