package reload

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// diagram collects the transitions of a walk.
type diagram struct {
	phases map[arrow[Phase]]map[string]bool
	stages map[arrow[Stage]]map[string]bool
}

type arrow[T Phase | Stage] struct{ from, to T }

func (d *diagram) add(f LogTransition, e Event) {
	switch from := f.From.(type) {
	case Phase:
		label(&d.phases, arrow[Phase]{from, f.To.(Phase)}, e)
	case Stage:
		label(&d.stages, arrow[Stage]{from, f.To.(Stage)}, e)
	}
}

func label[T Phase | Stage](arrows *map[arrow[T]]map[string]bool, a arrow[T], e Event) {
	if *arrows == nil {
		*arrows = map[arrow[T]]map[string]bool{}
	}
	if (*arrows)[a] == nil {
		(*arrows)[a] = map[string]bool{}
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", e), "reload.")
	if fired, ok := e.(TimerFired); ok {
		name = "timer " + fired.Timer.String()
	}
	(*arrows)[a][name] = true
}

// String returns the diagram in Mermaid's language.
func (d *diagram) String() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	draw(&b, "machine", "the machine", "m_", d.phases)
	draw(&b, "generation", "each generation", "g_", d.stages)
	return b.String()
}

func draw[T interface {
	Phase | Stage
	fmt.Stringer
	Step() string
}](b *strings.Builder, id, title, prefix string, arrows map[arrow[T]]map[string]bool) {
	fmt.Fprintf(b, "    state \"%s\" as %s {\n", title, id)
	sorted := slices.SortedFunc(maps.Keys(arrows), func(x, y arrow[T]) int {
		return (int(x.from)-int(y.from))*100 + int(x.to) - int(y.to)
	})
	named := map[T]bool{}
	name := func(v T) {
		if named[v] {
			return
		}
		named[v] = true
		text := v.String()
		if step := v.Step(); step != "" {
			text = step + " " + text
		}
		fmt.Fprintf(b, "        state \"%s\" as %s%v\n", text, prefix, v)
	}
	for _, a := range sorted {
		name(a.from)
		name(a.to)
	}
	var zero T
	fmt.Fprintf(b, "        [*] --> %s%v\n", prefix, zero)
	for _, a := range sorted {
		events := slices.Sorted(maps.Keys(arrows[a]))
		fmt.Fprintf(b, "        %s%v --> %s%v: %s\n", prefix, a.from, prefix, a.to, strings.Join(events, ", "))
	}
	b.WriteString("    }\n")
}

// The diagram stands in a file of its own and on a page for operators.
const (
	diagramFile = "machine.mmd"
	diagramPage = "../../docs/reload.md"
	diagramOpen = "```mermaid\n"
	diagramEnd  = "```\n\n<!-- end of the diagram -->"
)

// compare checks the diagram against its file and its page. -rewrite refreshes
// both.
func (d *diagram) compare(t *testing.T) {
	page, err := os.ReadFile(diagramPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(page), diagramOpen)
	_, after, closed := strings.Cut(rest, diagramEnd)
	if !opened || !closed {
		t.Fatalf("%s has no place for the diagram", diagramPage)
	}
	for file, want := range map[string]string{
		diagramFile: d.String(),
		diagramPage: before + diagramOpen + d.String() + diagramEnd + after,
	} {
		if rewrite := flag.Lookup("rewrite"); rewrite != nil && rewrite.Value.String() == "true" {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what the machine does (go test -rewrite), -machine +file:\n%s", file, diff)
		}
	}
}
