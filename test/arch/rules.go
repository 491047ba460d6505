package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxLines is the most lines that a Go file may have.
const maxLines = 600

// Finding is a place where a rule is broken.
type Finding struct {
	Path string
	Line int // from 1
	Rule string
	Msg  string
}

// String returns f as compilers print it.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s (%s)", f.Path, f.Line, f.Msg, f.Rule)
}

type reporter func(path string, line int, msg string)

// rules are all rules, by the names that findings give them.
var rules = map[string]func(*tree, reporter){
	"one-way":     oneWay,
	"owner":       owners,
	"unsafe":      unsafeFiles,
	"package-doc": packageDocs,
	"file-size":   fileSizes,
	"no-sleep":    sleeps,
	"no-place":    places,
}

// Check returns where the source tree at the root of fsys breaks a rule, by
// path and line. The error is about reading the tree.
func Check(fsys fs.FS) ([]Finding, error) {
	t, err := read(fsys)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for name, rule := range rules {
		rule(t, func(path string, line int, msg string) { all = append(all, Finding{path, line, name, msg}) })
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Msg, b.Msg))
	})
	return all, nil
}

// owner says which folders may import a package, and what is below them.
type owner struct {
	dirs  []string
	tests bool // any test may, too
}

// owned maps what is imported, with all below it, to its owners. miekg/dns
// parses zones and checks answers, gopacket makes and checks frames in tests; both
// stay off the request path.
var owned = map[string]owner{
	"github.com/spf13/viper":              {dirs: []string{"server/config"}},
	"github.com/go-viper/mapstructure":    {dirs: []string{"server/config"}},
	"github.com/spf13/cobra":              {dirs: []string{"cmd"}},
	"github.com/spf13/pflag":              {dirs: []string{"cmd"}},
	"github.com/prometheus/client_golang": {dirs: []string{"server/metrics"}},
	"github.com/miekg/dns":                {dirs: []string{"server/dns/zone", "test", "bench"}, tests: true},
	"github.com/google/gopacket":          {dirs: []string{"test"}, tests: true},
	"C":                                   {dirs: []string{"dpdk"}},
}

func owners(t *tree, report reporter) {
	t.eachFile(func(p *pkg, f *file) {
		for _, i := range f.imports {
			for path, o := range owned {
				if !within(i.path, path) || o.tests && f.test {
					continue
				}
				if !slices.ContainsFunc(o.dirs, func(dir string) bool { return within(p.dir, dir) }) {
					report(f.path, i.line, fmt.Sprintf("imports %q, which is for %s only", i.path, strings.Join(o.dirs, ", ")))
				}
			}
		}
	})
}

// within reports whether the slash-separated path is at or below parent.
func within(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || rest[0] == '/')
}

// unsafeFiles: a reader finds all of unsafe by the names of files.
func unsafeFiles(t *tree, report reporter) {
	t.eachFile(func(_ *pkg, f *file) {
		if stem := strings.TrimSuffix(strings.TrimSuffix(f.path, ".go"), "_test"); strings.HasSuffix(stem, "_unsafe") {
			return
		}
		for _, i := range f.imports {
			if i.path == "unsafe" {
				report(f.path, i.line, `imports "unsafe" and is not called *_unsafe.go`)
			}
		}
	})
}

// packageDocs: every package says what it is, in one place. A folder of tests
// only is a package too.
func packageDocs(t *tree, report reporter) {
	for dir, p := range t.packages {
		files := slices.DeleteFunc(slices.Clone(p.files), func(f *file) bool { return f.test })
		if len(files) == 0 {
			files = p.files
		}
		var documented []*file
		for _, f := range files {
			if f.syntax.Doc != nil && strings.TrimSpace(f.syntax.Doc.Text()) != "" {
				documented = append(documented, f)
			}
		}
		switch name := files[0].syntax.Name.Name; {
		case len(documented) == 0:
			report(files[0].path, 1, fmt.Sprintf("no file of %s says what the package is for", dir))
		case len(documented) > 1:
			report(documented[1].path, 1, fmt.Sprintf("the package is described here and in %s", path.Base(documented[0].path)))
		case name != "main" && !strings.HasPrefix(documented[0].syntax.Doc.Text(), "Package "+strings.TrimSuffix(name, "_test")+" "):
			report(documented[0].path, 1, fmt.Sprintf("the comment does not begin with Package %s", name))
		}
	}
}

func fileSizes(t *tree, report reporter) {
	t.eachFile(func(_ *pkg, f *file) {
		if f.lines > maxLines {
			report(f.path, maxLines+1, fmt.Sprintf("has %d lines, more than %d", f.lines, maxLines))
		}
	})
}

// sleeps: a test that sleeps is slow when it sleeps too long and wrong when it
// does not sleep long enough. Events, testing/synctest, or polling by a ticker
// with a deadline do neither.
func sleeps(t *tree, report reporter) {
	t.eachFile(func(_ *pkg, f *file) {
		if !f.test {
			return
		}
		name := localName(f.syntax, "time")
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
					report(f.path, t.fset.Position(s.Pos()).Line, "sleeps in a test")
				}
			}
			return true
		})
	})
}

// localName returns by what name f knows the package path.
func localName(f *ast.File, path string) string {
	for _, spec := range f.Imports {
		if spec.Path.Value == `"`+path+`"` {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path
		}
	}
	return ""
}

// The places that must not be named are written in two pieces here.
var (
	somebodysFolder = regexp.MustCompile(`(?:^|[^\w.~/-])/` + `(?:home|work|Users)(?:/|[^\w-]|$)`)
	registry        = regexp.MustCompile(`\b(?:proxy|sum|index)\.` + `golang\.org\b|\bgoproxy\.` + `\w+\b|\bpypi\.` + `org\b|\bregistry\.` + `npmjs\.org\b|\bcrates\.` + `io\b`)
)

// places: nothing names a folder of the machine it was written on, or a server
// to download from.
func places(t *tree, report reporter) {
	for _, f := range t.texts {
		for n, line := range strings.Split(string(f.content), "\n") {
			if m := somebodysFolder.FindString(line); m != "" {
				report(f.path, n+1, fmt.Sprintf("names a folder of somebody's machine: %q", strings.TrimSpace(m)))
			}
			if m := registry.FindString(line); m != "" {
				report(f.path, n+1, fmt.Sprintf("names a server to download from: %q", m))
			}
		}
	}
}
