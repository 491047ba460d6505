package zones

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A zone that kills its compiler is to blame, and no other: the rest is loaded.
func TestCompilerDies(t *testing.T) {
	for _, how := range []string{"die", "lie", "nothing", "imposter"} {
		t.Run(how, func(t *testing.T) {
			f := newFolder(t, trick+"="+how+" c.")
			names := []string{"a.", "b.", "c.", "d.", "e."}
			for _, n := range names {
				f.write(n, text(1))
			}
			_, err := f.s.Prepare(t.Context(), f.config(names...))
			var refused *RefusedError
			if !errors.As(err, &refused) || len(refused.Failures) != 1 || refused.Failures[0].Zone.Name != "c." {
				t.Fatalf("error %v", err)
			}
			t.Log(err)
			g := f.generation(f.prepare("a.", "b.", "d.", "e."))
			g.want("a.1 b.1 d.1 e.1")
			g.end()
		})
	}
}

// An end of the context ends the compilers, and everything is given back.
func TestCancelled(t *testing.T) {
	f := newFolder(t)
	f.write("a.", large(1, 4<<20))
	why := errors.New("not wanted any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	began := func(int, int) { cancel(why) }
	if _, err := f.s.update(ctx, f.config("a."), began); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

// Many zones are dealt out among compilers, share regions, and all arrive; a
// large one has a region of its own.
func TestManyZones(t *testing.T) {
	f := newFolder(t)
	var names []string
	for i := range 500 {
		n := fmt.Sprintf("z%d.", i)
		names = append(names, n)
		f.write(n, text(i, strings.Repeat("; filler\n", 200)))
	}
	f.write("large.", large(7, largeImage))
	names = append(names, "large.")
	last := 0
	u, err := f.s.update(t.Context(), f.config(names...), func(done, of int) {
		if done < last || of != len(names) {
			t.Errorf("progress: %d of %d after %d", done, of, last)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	if last != len(names) {
		t.Errorf("progress ends with %d", last)
	}
	u.want(t, len(names), 0, 0)
	g := f.generation(u)
	for i, s := range strings.Fields(g.serials())[:500] {
		if want := fmt.Sprintf("z%d.%d", i, i); s != want {
			t.Fatalf("zone %d is %s, want %s", i, s, want)
		}
	}
	if n := len(g.c.Regions); n < 2 || n > 1+maxCompilers {
		t.Errorf("%d regions", n)
	}
	if z := g.c.Zones[500]; z.region.zones != 1 || z.Report.Size < largeImage {
		t.Errorf("the large zone of %d octets shares its region with %d", z.Report.Size, z.region.zones-1)
	}
	g.end()
}

// The jobs are dealt out by size, each once.
func TestDeal(t *testing.T) {
	f := newFolder(t)
	sizes := []int{10, 4_000_000, 20, 3_000_000, 30, 1_000_000, 40}
	var jobs []job
	for i, size := range sizes {
		n := fmt.Sprintf("z%d.", i)
		f.write(n, strings.Repeat("x", size))
		jobs = append(jobs, job{Zone: f.config(n)[0]})
	}
	jobs = append(jobs, job{Zone: f.config("missing.")[0]})
	seen := make([]bool, len(jobs))
	parts := deal(jobs)
	for _, p := range parts {
		load := 0
		for _, i := range p {
			if seen[i] {
				t.Errorf("job %d twice", i)
			}
			seen[i] = true
			if i < len(sizes) {
				load += sizes[i]
			}
		}
		if len(parts) == 2 && load > 4_100_000 {
			t.Errorf("one of two compilers has %d octets of 8 million", load)
		}
	}
	for i, ok := range seen {
		if !ok {
			t.Errorf("job %d is nobody's", i)
		}
	}
	if n := len(deal(jobs[:1])); n != 1 {
		t.Errorf("%d compilers for one small zone", n)
	}
	if n := len(deal(nil)); n != 0 {
		t.Errorf("%d compilers for nothing", n)
	}
}
