package zones

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// What a test makes compilers do, in an environment variable that every compiler
// gets: it is one that the supervisor lets through, and has no other use there.
const trick = "TZ"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "compile" {
		if err := beCompiler(os.Getenv(trick)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// beCompiler is a compiler that fails, or waits, as it is told.
func beCompiler(how string) error {
	kind, name, _ := strings.Cut(how, " ")
	switch kind {
	case "":
		return Compile()
	case "wait": // until a pipe has had a writer
		if _, err := os.ReadFile(name); err != nil {
			return err
		}
		return Compile()
	}
	var jobs []job
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil {
		return err
	}
	var c compiler
	for i := range jobs {
		hit := jobs[i].Zone.Name == name
		switch {
		case kind == "die" && hit:
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		case kind == "lie" && hit:
			c.results = append(c.results, result{Job: i + 1000})
			return c.flush()
		case kind == "nothing" && hit:
			return c.flush()
		case kind == "imposter" && hit:
			jobs[i].Alone = false
			if err := c.do(i, &jobs[i]); err != nil {
				return err
			}
			c.results[len(c.results)-1].Report.Name = "other.example."
			continue
		}
		if err := c.do(i, &jobs[i]); err != nil {
			return err
		}
	}
	return c.flush()
}

// testNice is the niceness of compilers here.
const testNice = 10

// folder is some zone files, and a store.
type folder struct {
	t   *testing.T
	dir string
	s   *Store
}

func newFolder(t *testing.T, env ...string) *folder {
	t.Helper()
	f := &folder{t: t, dir: t.TempDir()}
	f.s = NewStore(env, spawn.Identity{}, testNice, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() {
		if n := len(f.s.regions); n != 0 && !t.Failed() {
			t.Errorf("%d regions are left", n)
		}
		if len(f.s.have) != 0 || len(f.s.failed) != 0 {
			t.Errorf("%d zones and %d failures are left", len(f.s.have), len(f.s.failed))
		}
	})
	return f
}

func (f *folder) file(name string) string { return filepath.Join(f.dir, name+"zone") }

// write writes the file of a zone, and sets it an hour back: it is not among
// those that may change again within a tick.
func (f *folder) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(f.file(name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.touch(name, time.Now().Add(-time.Hour))
}

func (f *folder) touch(name string, at time.Time) {
	f.t.Helper()
	if err := os.Chtimes(f.file(name), at, at); err != nil {
		f.t.Fatal(err)
	}
}

func text(serial int, more ...string) string {
	return fmt.Sprintf("$TTL 60\n@ SOA ns admin %d 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n", serial) + strings.Join(more, "\n") + "\n"
}

// large returns a zone with an image of at least size octets.
func large(serial, size int) string {
	var b strings.Builder
	b.WriteString(text(serial))
	for i := range size / 60 {
		fmt.Fprintf(&b, "h%d TXT \"%040d\"\n", i, i)
	}
	return b.String()
}

func (f *folder) config(names ...string) []config.Zone {
	var list []config.Zone
	for _, n := range names {
		list = append(list, config.Zone{Name: n, File: f.file(n)})
	}
	return list
}

// prepare is Prepare that must succeed.
func (f *folder) prepare(names ...string) *Update {
	f.t.Helper()
	u, err := f.s.Prepare(f.t.Context(), f.config(names...))
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// refresh is Refresh of the zones of a generation.
func (f *folder) refresh(g *generation) *Update {
	f.t.Helper()
	u, err := f.s.Refresh(f.t.Context(), g.c.Zones, func(int, int) {})
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// generation is what the supervisor keeps of one.
type generation struct {
	f *folder
	c *Catalog
}

// generation makes one of an update, and commits it; others follow.
func (f *folder) generation(u *Update, others ...*generation) *generation {
	f.t.Helper()
	c, err := f.s.Catalog(u)
	if err != nil {
		f.t.Fatal(err)
	}
	g := &generation{f, c}
	f.commit(u, append(others, g)...)
	return g
}

// commit commits an update and has generations follow.
func (f *folder) commit(u *Update, gens ...*generation) Change {
	f.t.Helper()
	change := f.s.Commit(u)
	for _, g := range gens {
		next, err := f.s.Follow(g.c, change)
		if err != nil {
			f.t.Fatal(err)
		}
		if next != nil {
			f.s.Release(g.c)
			g.c = next
		}
	}
	f.s.Done(u)
	return change
}

func (g *generation) end() { g.f.s.Release(g.c) }

// serials returns the serials of the zones, as their images have them.
func (g *generation) serials() string {
	g.f.t.Helper()
	var list []string
	for _, z := range g.c.Zones {
		image, err := zone.Open(z.image())
		if err != nil {
			g.f.t.Fatal(err)
		}
		if image.Name() != z.Name {
			g.f.t.Errorf("the image of %s is that of %s", z.Name, image.Name())
		}
		list = append(list, fmt.Sprintf("%s%d", z.Name, image.Serial()))
	}
	return strings.Join(list, " ")
}

func (g *generation) want(serials string) {
	g.f.t.Helper()
	if got := g.serials(); got != serials {
		g.f.t.Errorf("serves %s, want %s", got, serials)
	}
}

func (u *Update) want(t *testing.T, compiled, same, failed int) {
	t.Helper()
	if u.Compiled != compiled || u.Same != same || len(u.Failures) != failed {
		t.Errorf("%d compiled, %d the same, %d failed; want %d, %d, %d", u.Compiled, u.Same, len(u.Failures), compiled, same, failed)
	}
}
