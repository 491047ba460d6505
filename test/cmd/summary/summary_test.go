package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runGoTest runs the summary over the events of a real `go test` of a module
// with these files.
func runGoTest(t *testing.T, files map[string]string) (text string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	out, _ := cmd.Output() // exits 1 when a test fails: that is what is tested
	var b strings.Builder
	s := newSummary(&b)
	if err := s.read(strings.NewReader(string(out))); err != nil {
		t.Fatal(err)
	}
	ok = s.close()
	return b.String(), ok
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestAllPass(t *testing.T) {
	text, ok := runGoTest(t, map[string]string{
		"a/a_test.go": `package a
import "testing"
func TestOne(t *testing.T) { t.Run("x", func(*testing.T) {}) }
func TestTwo(t *testing.T) { t.Skip("needs a moon") }`,
		"b/b.go": "package b\n",
	})
	if got, want := lastLine(text), "total: 2 passed, 0 failed, 1 skipped"; got != want || !ok {
		t.Errorf("closing line %q, ok %v; want %q, true", got, ok, want)
	}
	if !strings.Contains(text, "SKIP  m/a.TestTwo: a_test.go:4: needs a moon") {
		t.Errorf("the skip's reason is missing:\n%s", text)
	}
}

// Whatever way a package fails, it shows in the totals and in the text.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct{ source, last, shows string }{
		"test": {
			`package a; import "testing"; func TestOne(t *testing.T) { t.Error("boom") }`,
			"total: 0 passed, 1 failed, 0 skipped", "boom",
		},
		"build": {
			`package a; import "testing"; func TestOne(t *testing.T) { undefined() }`,
			"total: 0 passed, 1 failed, 0 skipped", "undefined: undefined",
		},
		"panic": {
			`package a; import "testing"; func TestOne(t *testing.T) { panic("boom") }`,
			"total: 0 passed, 1 failed, 0 skipped", "panic: boom",
		},
		"exit": {
			`package a; import ("testing"; "os"); func TestMain(m *testing.M) { println("boom"); os.Exit(3) }`,
			"total: 0 passed, 1 failed, 0 skipped", "boom",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, ok := runGoTest(t, map[string]string{"a/a_test.go": c.source})
			if got := lastLine(text); got != c.last || ok {
				t.Errorf("closing line %q, ok %v; want %q, false", got, ok, c.last)
			}
			if !strings.Contains(text, c.shows) {
				t.Errorf("the text does not show %q:\n%s", c.shows, text)
			}
		})
	}
}

// No test is not a success.
func TestNothingRun(t *testing.T) {
	var b strings.Builder
	s := newSummary(&b)
	if err := s.read(strings.NewReader("make: *** no such file\n")); err != nil {
		t.Fatal(err)
	}
	if s.close() {
		t.Error("close reports success")
	}
	if !strings.HasPrefix(b.String(), "make: *** no such file\n") {
		t.Errorf("foreign output is not passed through:\n%s", b.String())
	}
}
