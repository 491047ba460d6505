// Package layouttest holds the layouts of shared memory to their numbers.
//
// Invariant: two binaries that agree on a layout number agree on every offset,
// size and encoding in that layout. So a dump of them is kept beside the tests,
// and whoever changes what it says must raise the number, by which a binary
// refuses another's memory.
package layouttest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update-layout", false, "rewrite the golden layout dump, if the layout number was raised")

// Dump is the text of a layout.
type Dump struct{ b strings.Builder }

// Struct adds the fields of v, a struct or a pointer to one, with their offsets
// and sizes.
func (d *Dump) Struct(name string, v any) {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	fmt.Fprintf(&d.b, "struct %s size %d\n", name, t.Size())
	d.fields(t, "", 0)
}

func (d *Dump) fields(t reflect.Type, prefix string, base uintptr) {
	for f := range t.Fields() {
		if f.Name == "_" {
			continue
		}
		fmt.Fprintf(&d.b, "  %4d %-12s %d %v\n", base+f.Offset, prefix+f.Name, f.Type.Size(), f.Type)
		elem, name := f.Type, prefix+f.Name
		for elem.Kind() == reflect.Array {
			elem, name = elem.Elem(), name+"[0]"
		}
		if elem.Kind() == reflect.Struct && elem.PkgPath() != "sync/atomic" {
			d.fields(elem, name+".", base+f.Offset)
		}
	}
}

// Value adds a constant, an offset, or the encoding of a sample.
func (d *Dump) Value(name string, v any) { fmt.Fprintf(&d.b, "value %s %v\n", name, v) }

// Check compares the dump, under its layout number, with testdata/layout.golden.
func Check(t *testing.T, layout uint32, d *Dump) {
	t.Helper()
	if err := check(filepath.Join("testdata", "layout.golden"), layout, d.b.String(), *update); err != nil {
		t.Error(err)
	}
}

func check(file string, layout uint32, dump string, update bool) error {
	want := fmt.Sprintf("layout %d\n%s", layout, dump)
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the golden layout: %w", err)
	}
	golden := string(b)
	if golden == want {
		return nil
	}
	head, body, _ := strings.Cut(golden, "\n")
	switch raised := head != fmt.Sprintf("layout %d", layout); {
	case !raised:
		return fmt.Errorf("the layout is no longer what number %d stands for: raise the number\n--- golden\n%s--- now\n%s", layout, body, dump)
	case !update:
		return fmt.Errorf("the golden file has %q, the code layout %d: run the test with -update-layout", head, layout)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("writing the golden layout: %w", err)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		return fmt.Errorf("writing the golden layout: %w", err)
	}
	return nil
}
