package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that is no configuration at all gets the first problems and the number
// of the others.
func TestProblemsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "junk.yaml")
	var b strings.Builder
	for i := range 3 * maxProblems {
		b.WriteString(strings.Repeat("x", i+1) + ": 1\n")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	var list Problems
	if !errors.As(err, &list) || len(list) != maxProblems+1 {
		t.Fatalf("%d problems: %v", len(list), err)
	}
	if last := list[maxProblems].String(); !strings.Contains(last, "more problems") || !strings.Contains(last, path) {
		t.Errorf("the last one is %q", last)
	}
}
