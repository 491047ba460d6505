package conformance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dnsapp/dnsapp/server/dns/zone/master"
)

// zscannerSkips are the cases, and the lines of cases, in which we differ on
// purpose, with the reason.
var zscannerSkips = map[string]struct {
	reason string
	lines  []int // of the input, from 1; none: the whole case
	blocks []int // of the expected output, from 0, that these lines gave
}{
	"04-1_ORIGIN": {reason: "RFC 1035 5.1 does not ask for an absolute name behind $ORIGIN, and zone files use relative ones"},
	"12_TXT": {
		reason: "a character-string has at most 255 octets (RFC 1035 3.3): a longer one is refused, not cut up",
		lines:  []int{27, 28}, blocks: []int{18, 19},
	},
}

// TestZscanner: each text gives the records, and refuses the lines, that it
// should, in their order. Which of several faults a line is refused for, and
// whether a bad include is reported once or twice, is not compared.
func TestZscanner(t *testing.T) {
	dir := dataDir(t, "zscanner")
	files, err := filepath.Glob(filepath.Join(dir, "*.in"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	for _, in := range files {
		name := strings.TrimSuffix(filepath.Base(in), ".in")
		t.Run(name, func(t *testing.T) {
			skip, skipped := zscannerSkips[name]
			if skipped && len(skip.lines) == 0 {
				t.Skip(skip.reason)
			}
			text, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("@TMPDIR@"), []byte(dir))
			want, err := os.ReadFile(strings.TrimSuffix(in, ".in") + ".out")
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(text, []byte("\n"))
			for _, n := range skip.lines {
				lines[n-1] = []byte("\n")
			}
			// The cases are for a scanner with a default TTL of 0.
			text = append([]byte("$TTL 0\n"), bytes.Join(lines, nil)...)
			got, reasons := scan(t, text, in, []byte{0})
			if w := zscannerEvents(string(want), skip.blocks); got != w {
				t.Errorf("got\n%s\nwant\n%s\nrefused for:\n%s", got, w, strings.Join(reasons, "\n"))
			}
		})
	}
}

const refused = "REFUSED\n"

// scan reads text and returns what it gave, in the notation of the cases, and
// why lines were refused.
func scan(t *testing.T, text []byte, path string, origin []byte) (string, []string) {
	var out strings.Builder
	var reasons []string
	files := []string{path}
	h := &master.Handler{
		Record: func(r *master.Record) error {
			fmt.Fprintf(&out, "OWNER=%X CLASS=%04X RRTTL=%08X RTYPE=%04X RDATA=%X\n", r.Owner, uint16(r.Class), r.TTL, uint16(r.Type), r.RData)
			return nil
		},
		Errorf: func(p master.Pos, format string, args ...any) {
			reasons = append(reasons, fmt.Sprintf("%s:%d: ", filepath.Base(files[p.File]), p.Line)+fmt.Sprintf(format, args...))
			out.WriteString(refused)
		},
		Warnf: func(master.Pos, string, ...any) {},
		Open: func(path string) ([]byte, uint16, error) {
			b, err := os.ReadFile(path)
			files = append(files, path)
			return b, uint16(len(files) - 1), err
		},
	}
	if err := master.Parse(text, path, origin, h); err != nil {
		t.Fatal(err)
	}
	return collapse(out.String()), reasons
}

// zscannerEvents turns expected output into a line for each record and each run
// of refusals, without the blocks to drop.
func zscannerEvents(want string, drop []int) string {
	var out strings.Builder
	for i, block := range strings.Split(want, "------\n") {
		block = strings.TrimSpace(block)
		switch {
		case block == "", slices.Contains(drop, i):
		case strings.HasPrefix(block, "WARNG="), strings.HasPrefix(block, "ERROR="):
			out.WriteString(refused)
		default:
			out.WriteString(strings.ReplaceAll(block, "\n", " ") + "\n")
		}
	}
	return collapse(out.String())
}

func collapse(s string) string {
	for strings.Contains(s, refused+refused) {
		s = strings.ReplaceAll(s, refused+refused, refused)
	}
	return s
}
