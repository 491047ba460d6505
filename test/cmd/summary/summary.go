package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// key names a test, or a package where test is empty.
type key struct{ pkg, test string }

// summary counts test events. A test that has subtests counts as itself and as
// each of them, as `go test -v` prints them.
type summary struct {
	w                       io.Writer
	output                  map[key]*strings.Builder // of tests and packages that still run
	builds                  map[string]*strings.Builder
	failedTests             map[string]int // per package, since its last closing event
	ran                     map[string]int // likewise, tests that closed
	passed, failed, skipped int
	skips                   []string
	failures                []string
}

func newSummary(w io.Writer) *summary {
	return &summary{
		w:           w,
		output:      map[key]*strings.Builder{},
		builds:      map[string]*strings.Builder{},
		failedTests: map[string]int{},
		ran:         map[string]int{},
	}
}

// read consumes events until the end of r. A line that is no event is passed
// through: it is what a tool said outside the protocol.
func (s *summary) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.event(e)
			} else {
				fmt.Fprintf(s.w, "%s\n", bytes.TrimRight(line, "\n"))
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading test events: %w", err)
		}
	}
}

func (s *summary) event(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		appendTo(s.output, k, e.Output)
	case "build-output":
		appendTo(s.builds, e.ImportPath, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.closePackage(e)
		} else {
			s.closeTest(e)
		}
		delete(s.output, k)
	}
}

func appendTo[K comparable](m map[K]*strings.Builder, k K, text string) {
	b := m[k]
	if b == nil {
		b = new(strings.Builder)
		m[k] = b
	}
	b.WriteString(text)
}

func (s *summary) closeTest(e event) {
	name := e.Package + "." + e.Test
	s.ran[e.Package]++
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, name+": "+skipReason(s.text(e)))
	case "fail":
		s.failed++
		s.failedTests[e.Package]++
		s.failures = append(s.failures, name)
		fmt.Fprintf(s.w, "%s", s.text(e))
	}
}

// closePackage prints the package's line. A package that failed without a
// failed test (it did not build, TestMain failed, it panicked or was killed)
// counts as one failure.
func (s *summary) closePackage(e event) {
	elapsed := time.Duration(e.Elapsed * float64(time.Second)).Round(time.Millisecond)
	switch {
	case e.Action == "fail":
		if s.failedTests[e.Package] == 0 {
			s.failed++
			s.failures = append(s.failures, e.Package)
			s.printUnfinished(e.Package)
		}
		fmt.Fprintf(s.w, "FAIL  %s  %v\n", e.Package, elapsed)
	case s.ran[e.Package] > 0:
		fmt.Fprintf(s.w, "ok    %s  %d tests  %v\n", e.Package, s.ran[e.Package], elapsed)
	}
	delete(s.failedTests, e.Package)
	delete(s.ran, e.Package)
}

// printUnfinished prints all that a package which died has said and what the
// compiler said of it: the tests that were running never close.
func (s *summary) printUnfinished(pkg string) {
	for path, b := range s.builds {
		// A test binary's import path reads `pkg [pkg.test]`; a failing
		// dependency is reported once, with the first package that needs it.
		fmt.Fprintf(s.w, "%s", b)
		delete(s.builds, path)
	}
	for k, b := range s.output {
		if k.pkg == pkg {
			fmt.Fprintf(s.w, "%s", b)
			delete(s.output, k)
		}
	}
}

func (s *summary) text(e event) string {
	if b := s.output[key{e.Package, e.Test}]; b != nil {
		return b.String()
	}
	return ""
}

// skipReason finds the message in the output of a skipped test: the last line
// that is not of the framework.
func skipReason(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, l := range slices.Backward(lines) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			return l
		}
	}
	return "no reason given"
}

// close prints the skips, the names of what failed and the totals, and reports
// whether all is well.
func (s *summary) close() bool {
	for _, l := range s.skips {
		fmt.Fprintln(s.w, "SKIP ", l)
	}
	for _, l := range s.failures {
		fmt.Fprintln(s.w, "FAIL ", l)
	}
	if s.passed+s.failed+s.skipped == 0 {
		fmt.Fprintln(s.w, "no test was run")
	}
	fmt.Fprintf(s.w, "total: %d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.failed == 0 && s.passed > 0
}
