package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSVCBVectors: the presentation form of each vector gives the same octets as
// its \# form (RFC 9460 D).
func TestSVCBVectors(t *testing.T) {
	dir := dataDir(t, "nsd-svcb")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, reasons := scan(t, text, name, []byte{0})
		if len(reasons) > 0 {
			t.Errorf("%s: %s", name, strings.Join(reasons, "\n"))
		}
		return got
	}
	if pf, wf := read("svcb.test-vectors-pf.zone"), read("svcb.test-vectors-wf.zone"); pf != wf {
		t.Errorf("presentation form\n%s\nwire form\n%s", pf, wf)
	}
	if got, want := read("svcb.success-cases.zone"), svcbOnly(read("svcb.success-cases.zone.cmp")); svcbOnly(got) != want {
		t.Errorf("success cases\n%s\nwant\n%s", got, want)
	}
}

// svcbOnly returns the lines of scan that are of SVCB or HTTPS records.
func svcbOnly(events string) string {
	var out strings.Builder
	for line := range strings.Lines(events) {
		if strings.Contains(line, "RTYPE=0040") || strings.Contains(line, "RTYPE=0041") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestSVCBFailures: each of the files holds exactly one record that must be
// refused, beside a SOA record that is good.
func TestSVCBFailures(t *testing.T) {
	dir := dataDir(t, "nsd-svcb")
	files, err := filepath.Glob(filepath.Join(dir, "svcb.failure-cases-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, reasons := scan(t, text, file, []byte{0})
			if strings.Contains(got, "RTYPE=0040") || strings.Contains(got, "RTYPE=0041") || len(reasons) == 0 {
				t.Errorf("accepted:\n%s\n%s", text, got)
			}
		})
	}
}
