package manual

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// Compare fails t where the pages in dir are not those of root. With rewrite it
// writes them.
func Compare(t *testing.T, root *cobra.Command, dir string, rewrite bool) {
	t.Helper()
	pages := Pages(root)
	stale, err := filepath.Glob(filepath.Join(dir, root.Name()+"*."+Section))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stale {
		base := filepath.Base(file)
		if base != root.Name()+"."+Section && base[len(root.Name())] != '-' { // dnsapp*: dnsappctl
			continue
		}
		if _, wanted := pages[base]; wanted {
			continue
		}
		if !rewrite {
			t.Errorf("%s is the page of no command, -rewrite removes it", file)
		} else if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for base, page := range pages {
		file := filepath.Join(dir, base)
		if rewrite {
			if err := os.WriteFile(file, page, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v; -rewrite writes it", err)
			continue
		}
		if !bytes.Equal(have, page) {
			t.Errorf("%s differs (-want +got), -rewrite accepts it:\n%s", file, cmp.Diff(string(page), string(have)))
		}
	}
}
