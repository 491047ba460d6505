package zones

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// What has not changed is neither compiled nor read again, and is the same
// version for every generation.
func TestUnchanged(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	f.write("b.", text(1))
	u := f.prepare("a.", "b.")
	u.want(t, 2, 0, 0)
	g1 := f.generation(u)
	u = f.prepare("a.", "b.")
	u.want(t, 0, 0, 0)
	g2 := f.generation(u, g1)
	if g1.c.Zones[0] != g2.c.Zones[0] || g1.c.Zones[1] != g2.c.Zones[1] {
		t.Error("two versions of the same content")
	}
	if len(g2.c.Regions) != 1 {
		t.Errorf("%d regions for two small zones", len(g2.c.Regions))
	}
	g1.end()
	g2.want("a.1 b.1")
	g2.end()
}

// A new version reaches every generation, also one that drains; what is used no
// more is gone.
func TestChanged(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	f.write("b.", text(1))
	old := f.generation(f.prepare("a.", "b."))
	f.write("a.", text(2))
	u := f.prepare("a.")
	old.want("a.1 b.1") // not before the commit
	g := f.generation(u, old)
	g.want("a.2")
	old.want("a.2 b.1")

	f.write("b.", text(3)) // only the old one has it
	f.write("a.", text(4))
	u = f.refresh(old)
	u.want(t, 2, 0, 0)
	if n := len(f.commit(u, old, g)); n != 2 {
		t.Errorf("%d zones changed", n)
	}
	g.want("a.4")
	old.want("a.4 b.3")
	if n := len(f.s.regions); n != 1 {
		t.Errorf("%d regions for one pair of zones", n)
	}
	old.end()
	g.want("a.4")
	g.end()
}

// A file that is touched is read and not compiled, and from then on not read.
func TestTouched(t *testing.T) {
	f := newFolder(t, trick+"=die never.")
	f.write("a.", text(1))
	g := f.generation(f.prepare("a."))
	f.touch("a.", time.Now().Add(-time.Minute))
	u := f.refresh(g)
	u.want(t, 0, 1, 0)
	if n := len(f.commit(u, g)); n != 0 {
		t.Errorf("%d changes", n)
	}
	u = f.refresh(g)
	u.want(t, 0, 0, 0)
	f.s.Done(u)
	g.end()
}

// A file that had just been written when it was read may have been written again
// with the same size and time. It is read once more, until it is old enough.
func TestRacy(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	now := time.Now()
	f.touch("a.", now)
	g := f.generation(f.prepare("a."))
	if err := os.WriteFile(f.file("a."), []byte(text(2)), 0o600); err != nil { // the same inode and size
		t.Fatal(err)
	}
	f.touch("a.", now) // and time
	u := f.refresh(g)
	u.want(t, 1, 0, 0)
	f.commit(u, g)
	g.want("a.2")
	g.end()
}

// A zone that cannot be loaded keeps its last good version, whatever generation
// asks, and says why; it is not compiled again before its files change.
func TestFailure(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	f.write("b.", text(1))
	g := f.generation(f.prepare("a.", "b."))
	f.write("a.", text(2, "www A 1.2.3.999", "www TYPO x"))
	f.write("b.", text(2))
	u := f.refresh(g)
	u.want(t, 1, 0, 1)
	f.commit(u, g)
	g.want("a.1 b.2")
	fail := f.s.Failure(g.c.Zones[0])
	if fail == nil || len(fail.Problems) != 2 || fail.Problems[0].Line != 5 || fail.Problems[0].File != f.file("a.") ||
		!strings.HasSuffix(fail.String(), "(and 1 more)") || f.s.Stale() != 1 || f.s.Failure(g.c.Zones[1]) != nil {
		t.Errorf("failure %v, %d stale", fail, f.s.Stale())
	}

	u = f.refresh(g) // no file has changed since
	u.want(t, 0, 0, 1)
	f.commit(u, g)
	if f.s.Failure(g.c.Zones[0]) != fail {
		t.Error("the same broken file was read again")
	}
	_, err := f.s.Prepare(t.Context(), f.config("a.", "b."))
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Failures) != 1 || !strings.Contains(err.Error(), "zone a.: "+f.file("a.")+":5: ") ||
		strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("a new generation: %v", err)
	}

	f.write("a.", text(3))
	u = f.refresh(g)
	u.want(t, 1, 0, 0)
	f.commit(u, g)
	g.want("a.3 b.2")
	if f.s.Stale() != 0 {
		t.Error("it is still stale")
	}
	g.end()
}

// The good old file in its place again ends a failure without a compilation.
func TestFailureTakenBack(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	g := f.generation(f.prepare("a."))
	if err := os.Rename(f.file("a."), f.file("saved")); err != nil {
		t.Fatal(err)
	}
	u := f.refresh(g)
	u.want(t, 0, 0, 1)
	f.commit(u, g)
	if p := f.s.Failure(g.c.Zones[0]); p == nil || p.Problems[0].File != f.file("a.") || p.Problems[0].Reason != "no such file or directory" {
		t.Errorf("failure %v", p)
	}
	if err := os.Rename(f.file("saved"), f.file("a.")); err != nil {
		t.Fatal(err)
	}
	u = f.refresh(g)
	u.want(t, 0, 0, 0)
	f.commit(u, g)
	if f.s.Stale() != 0 {
		t.Error("it is still stale")
	}
	g.want("a.1")
	g.end()
}

// What was prepared for a generation that never comes leaves no trace.
func TestNotCommitted(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	g := f.generation(f.prepare("a."))
	f.write("a.", text(2))
	u := f.prepare("a.")
	c, err := f.s.Catalog(u)
	if err != nil {
		t.Fatal(err)
	}
	f.s.Release(c)
	f.s.Done(u)
	g.want("a.1")
	u = f.refresh(g)
	u.want(t, 1, 0, 0)
	f.commit(u, g)
	g.want("a.2")
	g.end()
}

// Try says what Prepare would do, and does nothing.
func TestTry(t *testing.T) {
	f := newFolder(t)
	for _, n := range []string{"same.", "touched.", "changed.", "broken."} {
		f.write(n, text(1))
	}
	g := f.generation(f.prepare("same.", "touched.", "changed.", "broken."))
	f.touch("touched.", time.Now().Add(-time.Minute))
	f.write("changed.", text(2))
	f.write("broken.", text(3, "x"))
	f.write("new.", text(4))
	trials, err := f.s.Try(t.Context(), f.config("same.", "touched.", "changed.", "broken.", "new."))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		compiled, changed, served, fails bool
		serial                           uint32
	}{
		{serial: 1, served: true}, {serial: 1, served: true, compiled: true}, {serial: 2, served: true, compiled: true, changed: true},
		{served: true, compiled: true, fails: true}, {serial: 4, compiled: true, changed: true},
	} {
		r := trials[i]
		if r.Compiled != want.compiled || r.Changed != want.changed || (r.Served != nil) != want.served || (r.Err != nil) != want.fails ||
			!want.fails && r.Report.Serial != want.serial {
			t.Errorf("%s: %+v", r.Zone.Name, r)
		}
	}
	g.want("same.1 touched.1 changed.1 broken.1")
	if f.s.Stale() != 0 || len(f.s.regions) != 1 {
		t.Errorf("%d stale, %d regions", f.s.Stale(), len(f.s.regions))
	}
	g.end()
}

// A zone keeps the cell of its counters over versions, files and absence.
func TestCells(t *testing.T) {
	f := newFolder(t)
	f.write("a.", text(1))
	f.write("b.", text(1))
	g := f.generation(f.prepare("a.", "b."))
	a, b := g.c.Zones[0].Cell(), g.c.Zones[1].Cell()
	if a == 0 || b == 0 || a == b || g.c.Zones[0].Place().Counter != a {
		t.Errorf("cells %d and %d", a, b)
	}
	f.write("a.", text(2))
	f.commit(f.refresh(g), g)
	g.want("a.2 b.1")
	if got := g.c.Zones[0].Cell(); got != a {
		t.Errorf("a new version has cell %d, not %d", got, a)
	}
	g.end()
	other := f.config("a.")
	other[0].File = f.file("b.")
	u, err := f.s.Prepare(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	g = f.generation(u)
	if got := g.c.Zones[0].Cell(); got != a {
		t.Errorf("from another file it has cell %d, not %d", got, a)
	}
	g.end()
	if names, all := f.s.Cells(2); all != 3 || len(names) != 2 || names[0] != "" || names[1] != "a." && names[1] != "b." {
		t.Errorf("cells %q of %d", names, all)
	}
}
