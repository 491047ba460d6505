package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cockroachdb/datadriven"
)

// The tree keeps every rule.
func TestTree(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	findings, err := Check(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

// Each rule finds what breaks it, and nothing else, in the samples of
// testdata/rules: trees written as "-- path --" and the content. HOME, WORK and
// REGISTRY stand for what no file of this tree may name; lines=N makes every
// file N lines long. Run it with -rewrite to write what is found now.
func TestRules(t *testing.T) {
	broken := map[string]bool{}
	datadriven.Walk(t, filepath.Join("testdata", "rules"), func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			var lines int
			td.MaybeScanArgs(t, "lines", &lines)
			findings, err := Check(sample(td.Input, lines))
			if err != nil {
				return err.Error()
			}
			if len(findings) == 0 {
				return "ok"
			}
			var b strings.Builder
			for _, f := range findings {
				broken[f.Rule] = true
				if f.Rule == "no-place" {
					f.Msg = masked.Replace(f.Msg)
				}
				fmt.Fprintln(&b, f)
			}
			return b.String()
		})
	})
	for name := range rules {
		if !broken[name] {
			t.Errorf("no sample breaks the rule %s", name)
		}
	}
}

var (
	unmasked = strings.NewReplacer("HOME", "/"+"home", "WORK", "/"+"work", "REGISTRY", "proxy."+"golang.org")
	masked   = strings.NewReplacer("/"+"home", "HOME", "/"+"work", "WORK", "proxy."+"golang.org", "REGISTRY")
)

func sample(input string, lines int) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, part := range strings.Split("\n"+unmasked.Replace(input), "\n-- ")[1:] {
		name, content, _ := strings.Cut(part, " --\n")
		content += "\n"
		content += strings.Repeat("\n", max(lines-strings.Count(content, "\n"), 0))
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return fsys
}

// Every layer says what it may import.
func TestLayersAreComplete(t *testing.T) {
	for dir, l := range layers {
		if _, ok := below[l]; !ok {
			t.Errorf("%s: no layer %q", dir, l)
		}
	}
}
