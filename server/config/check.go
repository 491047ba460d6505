package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// place is where something is, and its key there.
type place struct {
	line, column int
	key          string // its index in a list counts within the file
	file         string // as Problems name it; "": that of the checker
}

func at(n *yaml.Node, key string) place { return place{line: n.Line, column: n.Column, key: key} }

// checker turns the nodes of a file into plain values that satisfy the schema:
// what is wrong is reported and left out, or, in a list, replaced by an empty
// value, so that indices stay those of the file.
type checker struct {
	sys      *system
	file     string // as Problems name it
	path     string // of the file, absolute; "" of an included one
	dir      string // where relative paths start
	lines    int    // of the file; 0: not read
	included bool   // it is about an included file
	problems Problems

	places map[string]place // of every key and entry that is written
	wrong  map[string]bool  // keys that are written and were left out

	files []string        // the included ones, as Problems name them, in their order
	taken map[string]bool // by their paths, and c.path
}

func newChecker(sys *system, file, dir string) *checker {
	return &checker{sys: sys, file: file, dir: dir, places: map[string]place{}, wrong: map[string]bool{}}
}

func (c *checker) report(p place, f fault) {
	if p.file == "" {
		p.file = c.file
	}
	if p.file == c.file && p.line > c.lines && c.lines > 0 { // to yaml.v3, the end of the file is a line of its own
		p.line, p.column = c.lines, 0
	}
	c.problems = append(c.problems, Problem{File: p.file, Line: p.line, Column: p.column, Key: p.key, Msg: f.msg, Fix: f.fix})
}

// reportKey reports what is wrong with the value of a key, or, if it is not
// written, with the nearest thing above it that is.
func (c *checker) reportKey(key string, f fault) {
	p, above := place{}, key
	for above != "" {
		var written bool
		if p, written = c.places[above]; written {
			break
		}
		above = above[:max(strings.LastIndexAny(above, ".["), 0)]
	}
	p.key += key[len(above):]
	c.report(p, f)
}

// object returns the values of the mapping n, by the names of k.keys, with the
// defaults of those that are not written if k is an entry of a list. path is
// the key of n.
func (c *checker) object(n *yaml.Node, k *key, path string) map[string]any {
	values := make(map[string]any, len(k.keys))
	first := make(map[string]int, len(k.keys)) // line of the first use
	meant := map[string]bool{}                 // by an unknown key: not reported as missing too
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		full := join(path, name.Value)
		if name.Kind != yaml.ScalarNode {
			c.report(at(name, path), fault{"has a key that is " + nodeKind(name), "write one of " + names(k)})
			continue
		}
		if !c.plain(name, full) {
			continue
		}
		child := k.child(name.Value)
		if child == nil {
			near := nearest(strings.ToLower(name.Value), keyNames(k))
			c.report(at(name, full), unknown(name, k, near))
			if near != "" {
				meant[near] = true
				c.wrong[join(path, near)] = true
			}
			continue
		}
		if line, twice := first[name.Value]; twice {
			c.report(at(name, full), fault{fmt.Sprintf("is written twice, first on line %d", line), "keep one of the two"})
			continue
		}
		first[name.Value] = name.Line
		c.places[full] = at(value, full)
		if c.included && child.kind == kindGlobs {
			c.report(at(name, full), fault{"is in an included file", "write it in the file that includes this one"})
			continue
		}
		if v, ok := c.value(value, child, full); ok {
			values[name.Value] = v
		} else {
			c.wrong[full] = true
		}
	}
	for _, child := range k.keys {
		if _, written := first[child.name]; written {
			continue
		}
		switch {
		case k == root(): // another file may have it: see missing
		case child.required && !meant[child.name]:
			c.report(at(n, join(path, child.name)), fault{"is missing", "write " + child.accepts()})
		case child.inList():
			if v := child.unwritten(); v != nil {
				values[child.name] = v
			}
		}
	}
	return values
}

// plain reports what makes n mean something else than its line says.
func (c *checker) plain(n *yaml.Node, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.report(at(n, path), fault{"uses a YAML anchor or alias", "write the value out"})
	case n.Style&yaml.TaggedStyle != 0:
		c.report(at(n, path), fault{"uses the YAML tag " + strconv.Quote(n.Tag), "leave it out"})
	default:
		return true
	}
	return false
}

// value returns the value of n for k, or false after it has reported why there
// is none.
func (c *checker) value(n *yaml.Node, k *key, path string) (any, bool) {
	if !c.plain(n, path) {
		return nil, false
	}
	if isNull(n) {
		f := fault{"has no value", "write " + k.accepts()}
		if k.def != "" {
			f.fix += ", or leave the key out for " + k.def
		}
		c.report(at(n, path), f)
		return nil, false
	}
	list := k.kind == kindAddrs || k.kind == kindHosts || k.kind == kindPrefixes || k.kind == kindNeighbours || k.kind == kindWords || k.kind == kindObjects || k.kind == kindGlobs
	if k.kind == kindGlobs && n.Kind == yaml.ScalarNode { // a list of one
		v, ok := c.entry(n, k, path)
		return []any{v}, ok
	}
	want := yaml.ScalarNode
	switch {
	case list:
		want = yaml.SequenceNode
	case k.kind == kindObject:
		want = yaml.MappingNode
	}
	if n.Kind != want {
		f := fault{"is " + nodeKind(n), "write " + k.accepts()}
		if list && n.Kind == yaml.ScalarNode && k.kind != kindObjects {
			f.fix = fmt.Sprintf("write a list: [%q]", n.Value)
		}
		c.report(at(n, path), f)
		return nil, false
	}
	switch {
	case k.kind == kindObject:
		return c.object(n, k, path), true
	case list:
		return c.list(n, k, path)
	}
	return c.scalar(n, k, path)
}

func (c *checker) list(n *yaml.Node, k *key, path string) (any, bool) {
	if len(n.Content) == 0 && k.def != "[]" {
		c.report(at(n, path), fault{"is empty", "write " + k.accepts()})
		return nil, false
	}
	values := make([]any, len(n.Content))
	seen := map[any]int{}
	for i, e := range n.Content {
		entry := path + "[" + strconv.Itoa(i) + "]"
		c.places[entry] = at(e, entry)
		if k.kind == kindObjects {
			values[i] = map[string]any{}
			switch {
			case !c.plain(e, entry):
			case e.Kind == yaml.MappingNode:
				values[i] = c.object(e, k, entry)
			default:
				c.report(at(e, entry), fault{"is " + nodeKind(e), "write " + k.entry()})
			}
			continue
		}
		values[i] = ""
		v, ok := c.entry(e, k, entry)
		if !ok {
			continue
		}
		if j, twice := seen[v]; twice && k.kind != kindAddrs && k.kind != kindGlobs {
			c.report(at(e, entry), fault{fmt.Sprintf("%q is also in %s[%d]", v, path, j), "keep one of the two"})
			continue
		}
		seen[v] = i
		values[i] = v
	}
	return values, true
}

// entry is value for what is in a list of scalars.
func (c *checker) entry(n *yaml.Node, k *key, path string) (any, bool) {
	one := *k.setting
	switch k.kind {
	case kindAddrs:
		one.kind = kindAddr
	case kindHosts:
		one.kind = kindHost
	case kindPrefixes:
		one.kind = kindPrefix
	case kindNeighbours:
		one.kind = kindNeighbour
	case kindWords:
		one.kind = kindWord
	case kindGlobs:
		one.kind = kindGlob
	}
	return c.value(n, &key{setting: &one, name: k.name}, path)
}

func (c *checker) scalar(n *yaml.Node, k *key, path string) (any, bool) {
	s := scalar{text: n.Value, tag: n.ShortTag()}
	if s.tag == "!!str" {
		text, faults := expand(s.text, c.sys.env)
		for _, f := range faults {
			c.report(at(n, path), f)
		}
		if faults != nil {
			return nil, false
		}
		// A plain ${LANES} is whatever its text would be; "${LANES}" is too,
		// because braces and brackets make people quote it.
		s.loose = text != s.text
		s.text = text
	}
	v, f := k.parse(s, c.dir)
	if f != nil {
		c.report(at(n, path), *f)
		return nil, false
	}
	return v, true
}

// unknown says what to do about a key that k does not have; near is one that it
// has, or "".
func unknown(name *yaml.Node, k *key, near string) fault {
	if name.Tag == "!!merge" {
		return fault{"uses a YAML merge", "write the keys out"}
	}
	f := fault{"is not a known key", "known here: " + names(k)}
	if near != "" {
		f.fix = fmt.Sprintf("did you mean %q?", near)
		return f
	}
	for i := range schema {
		s := &schema[i]
		if parent, last := split(s.path); last == name.Value && !strings.Contains(strings.TrimSuffix(parent, "[]"), "[]") {
			f.fix = "it belongs under " + strings.TrimSuffix(parent, "[]")
			if parent == "" {
				f.fix = "it belongs at the top level"
			}
			return f
		}
	}
	return f
}

// inList reports whether k is below an entry of a list. Viper knows no defaults
// there, so the checker puts them in.
func (k *key) inList() bool { return strings.Contains(k.path, "[]") }

// unwritten returns the value of a key that is not written: nil where it has
// none.
func (k *key) unwritten() any {
	switch {
	case k.kind == kindObject:
		values := make(map[string]any, len(k.keys))
		for _, child := range k.keys {
			if v := child.unwritten(); v != nil {
				values[child.name] = v
			}
		}
		return values
	case k.def != "":
		return k.defaultValue()
	}
	return nil
}

// defaultValue returns what value returns for k.def.
func (k *key) defaultValue() any {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(k.def), &n); err != nil {
		panic(fmt.Sprintf("config: default of %s: %v", k.path, err))
	}
	c := newChecker(&system{}, "", "/")
	v, ok := c.value(n.Content[0], k, k.path)
	if !ok {
		panic(fmt.Sprintf("config: default of %s: %v", k.path, c.problems))
	}
	return v
}

func keyNames(k *key) []string {
	var all []string
	for _, c := range k.keys {
		all = append(all, c.name)
	}
	return all
}

func names(k *key) string {
	all := keyNames(k)
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func join(path, name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		name = strconv.Quote(name) // an unknown key may be anything; a Problem is one line
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// split is the inverse of join.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}
