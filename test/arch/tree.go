package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the root of the tree.
const Module = "github.com/dnsapp/dnsapp"

// maxText is the size, in octets, above which a file is taken for data.
const maxText = 1 << 20

// tree is a source tree, read.
type tree struct {
	fset     *token.FileSet
	packages map[string]*pkg // by folder; "." is the root
	texts    []text
}

// pkg is a folder with Go files.
type pkg struct {
	dir   string
	files []*file
}

// file is one Go file.
type file struct {
	path    string
	test    bool // _test.go
	lines   int
	syntax  *ast.File
	imports []imported
}

// imported is one import of a file.
type imported struct {
	path string
	line int
}

// inModule returns the folder of an import of this module.
func (i imported) inModule() (dir string, ok bool) {
	if i.path == Module {
		return ".", true
	}
	return strings.CutPrefix(i.path, Module+"/")
}

// text is any file that is text.
type text struct {
	path    string
	content []byte
}

// read reads the tree at the root of fsys. It leaves out what git or the go
// command would: hidden folders but those of CI, build outputs, and, for Go
// files, testdata.
func read(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), packages: map[string]*pkg{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") && !slices.Contains([]string{".", ".ci", ".github"}, name)
			if hidden || name == "bin" || name == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		if name == ".git" { // of a linked worktree: a file that says where the rest is
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxText {
			return err
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return fmt.Errorf("reading the tree: %w", err)
		}
		if !bytes.Contains(content, []byte{0}) {
			t.texts = append(t.texts, text{name, content})
		}
		if strings.HasSuffix(base, ".go") && !slices.Contains(strings.Split(name, "/"), "testdata") {
			return t.add(name, content)
		}
		return nil
	})
	return t, err
}

func (t *tree) add(name string, content []byte) error {
	syntax, err := parser.ParseFile(t.fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing the tree: %w", err)
	}
	f := &file{
		path: name, test: strings.HasSuffix(name, "_test.go"), syntax: syntax,
		lines: bytes.Count(content, []byte("\n")),
	}
	for _, spec := range syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("parsing the tree: %s: import %s: %w", name, spec.Path.Value, err)
		}
		f.imports = append(f.imports, imported{p, t.fset.Position(spec.Pos()).Line})
	}
	dir := path.Dir(name)
	if t.packages[dir] == nil {
		t.packages[dir] = &pkg{dir: dir}
	}
	t.packages[dir].files = append(t.packages[dir].files, f)
	return nil
}

// eachFile calls do for every Go file.
func (t *tree) eachFile(do func(*pkg, *file)) {
	for _, p := range t.packages {
		for _, f := range p.files {
			do(p, f)
		}
	}
}
