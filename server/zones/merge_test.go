package zones

import (
	"fmt"
	"testing"
)

// Zones that change one at a time do not end with a region each.
func TestMergeSmall(t *testing.T) {
	f := newFolder(t)
	var names []string
	for i := range 3 * maxSmall {
		names = append(names, fmt.Sprintf("z%d.", i))
		f.write(names[i], text(1))
	}
	drains := f.generation(f.prepare(names...))
	g := f.generation(f.prepare(names...), drains)
	want := ""
	for i, n := range names {
		f.write(n, text(2+i))
		u := f.refresh(g)
		u.want(t, 1, 0, 0)
		f.commit(u, drains, g)
		if n := len(f.s.regions); n > maxSmall+1 {
			t.Errorf("%d regions after %d changes", n, i+1)
		}
		want += fmt.Sprintf(" %s%d", n, 2+i)
	}
	g.want(want[1:])
	drains.want(want[1:])
	drains.end()
	g.want(want[1:])
	g.end()
}

// A region of which most has moved away is given up; what is left in it moves,
// also where only some zones are looked at.
func TestMergeThin(t *testing.T) {
	f := newFolder(t)
	const each = 300_000
	names := []string{"a.", "b.", "c.", "d.", "e.", "f."}
	for _, n := range names {
		f.write(n, large(1, each))
	}
	g := f.generation(f.prepare(names...))
	all, err := f.s.copyOut(g.c.Zones) // however many compilers there were
	if err != nil {
		t.Fatal(err)
	}
	f.commit(&Update{moved: all}, g)
	first := g.c.Zones[5].region
	for _, n := range names[:4] {
		f.write(n, large(2, each))
	}
	u := f.refresh(g)
	f.commit(u, g)
	if g.c.Zones[5].region != first {
		t.Fatal("moved before there was a reason")
	}
	f.write("a.", large(3, each))
	some, err := f.s.Refresh(t.Context(), g.c.Zones[:1], func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	f.commit(some, g)
	if g.c.Zones[5].region == first || g.c.Zones[4].region == first {
		t.Error("the last zones hold on to a region of six")
	}
	for r := range f.s.regions {
		if r == first {
			t.Error("the region is still there")
		}
	}
	g.want("a.3 b.2 c.2 d.2 e.1 f.1")
	g.end()
}

// A merge for a generation that never comes leaves everything as it was.
func TestMergeNotCommitted(t *testing.T) {
	f := newFolder(t)
	var names []string
	for i := range maxSmall + 1 {
		names = append(names, fmt.Sprintf("z%d.", i))
		f.write(names[i], text(1))
	}
	g := f.generation(f.prepare(names[0]))
	for i := range names[1:maxSmall] {
		u := f.prepare(names[:i+2]...)
		next := f.generation(u, g)
		g.end()
		g = next
	}
	before := g.serials()
	regions := len(f.s.regions)
	u := f.prepare(names...)
	if len(u.moved) == 0 {
		t.Error("nothing was to be merged: the test tests nothing")
	}
	f.s.Done(u)
	g.want(before)
	if n := len(f.s.regions); n != regions {
		t.Errorf("%d regions, were %d", n, regions)
	}
	g.end()
}
