package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/exit"
)

// errNoRelease says that there is nothing to compare with.
var errNoRelease = errors.New("this copy of the project has no history with a release in it (git clone it without --depth)")

// releaseFile names the commit that counts as the last release as long as none is
// tagged: a new one, once a layout or a protocol number has changed, or the test has
// two binaries that refuse each other.
const releaseFile = "testdata/last-release"

// lastRelease builds dnsapp as it was at the last tag, or at the commit that counts as
// one, once, and returns the program and what its version is.
var lastRelease = sync.OnceValues(func() (release [2]string, err error) {
	git := func(args ...string) ([]byte, error) {
		c := exec.Command("git", args...)
		c.Dir = suite.root
		return c.Output()
	}
	var commit string
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match", "v*"); err == nil {
		commit = strings.TrimSpace(string(tag))
		release[1] = commit
	} else {
		b, err := os.ReadFile(releaseFile)
		if err != nil {
			return release, err
		}
		commit = strings.TrimSpace(string(b))
		release[1] = "v0.0.0-" + commit[:min(len(commit), 12)]
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		return release, errNoRelease
	}
	dir, err := os.MkdirTemp("", "dnsapp-last-")
	if err != nil {
		return release, err
	}
	suite.temporary = append(suite.temporary, dir)
	source, err := git("archive", commit)
	if err != nil {
		return release, fmt.Errorf("reading %s: %w", commit, err)
	}
	if err := unpack(source, dir); err != nil {
		return release, fmt.Errorf("unpacking %s: %w", commit, err)
	}
	release[0] = filepath.Join(dir, "last-dnsapp")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version="+release[1], "-o", release[0], "./cmd/dnsapp")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return release, fmt.Errorf("building %s: %w\n%s", commit, err, out)
	}
	return release, nil
})

// unpack writes the files of an archive of the project below dir.
func unpack(source []byte, dir string) error {
	for r := tar.NewReader(bytes.NewReader(source)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
}

// The last release and this one take over from each other, under load and without a
// loss; or, if they have other numbers, are refused by them.
func TestLastRelease(t *testing.T) {
	requireSuite(t)
	release, err := lastRelease()
	if errors.Is(err, errNoRelease) {
		t.Skip("SKIPPED: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	last, tag := release[0], release[1]
	theirs := must(t, exec.Command(last, "version", "--handover"))
	ours := must(t, exec.Command(filepath.Join(suite.bin, "dnsapp"), "version", "--handover"))
	s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	next := s.path("dnsapp-next")
	copyProgram(t, s.exe, next)
	s.others = append(s.others, next)
	s.install(last)
	s.serve()
	s.awaitReady()
	now := strings.Fields(string(must(t, exec.Command(next, "version"))))[1]
	p := startProbe(t)
	if !bytes.Equal(theirs, ours) {
		_, errs, code := s.tryCtl("upgrade", "--binary", next)
		if code != exit.Refused || !strings.Contains(string(errs), "cannot share memory") {
			t.Errorf("%s has %sthis one %sand the upgrade ends with code %d: %s", tag, theirs, ours, code, errs)
		}
		t.Logf("%s and this one cannot take over from each other", tag)
	} else {
		s.ctl("upgrade", "--binary", next)
		s.awaitVersion(now, true)
		s.ctl("upgrade", "--drain-old")
		s.ctl("upgrade", "--binary", s.exe)
		s.awaitVersion(tag, true)
		s.ctl("upgrade", "--rollback")
		s.awaitVersion(now, false)
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.ctl("stop", "--now")
	s.awaitExit(10 * time.Second)
}

// must returns what a command prints.
func must(t *testing.T, c *exec.Cmd) []byte {
	t.Helper()
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return out
}
