package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// wildcards are the characters that make a path a pattern.
const wildcards = `*?[`

// include takes in the files that values names under the key include, as if
// they were written at the end of the file that names them: lists are joined,
// and any other key is written in one file only. What is wrong with a file is
// reported with its name.
func (c *checker) include(values map[string]any) {
	c.taken = map[string]bool{c.path: true}
	patterns, _ := values["include"].([]any)
	for i, p := range patterns {
		key := "include[" + strconv.Itoa(i) + "]"
		if _, listed := c.places[key]; !listed { // a single pattern
			key = "include"
		}
		pattern, _ := p.(string)
		if pattern == "" { // was refused
			continue
		}
		for _, file := range c.matches(pattern, key) {
			sub := newChecker(c.sys, c.display(file), c.dir)
			sub.included = true
			if found := sub.fragment(file); found != nil {
				c.merge(values, sub, found)
			}
			c.files = append(c.files, sub.file)
			c.taken[file] = true
			c.problems = append(c.problems, sub.problems...)
		}
	}
}

// matches returns the files that a pattern stands for, in the order of their
// names.
func (c *checker) matches(pattern, key string) []string {
	files, err := c.sys.glob(pattern)
	switch {
	case err != nil:
		c.reportKey(key, fault{fmt.Sprintf("%q is no pattern", pattern), "close the bracket that is open"})
	case len(files) == 0 && !strings.ContainsAny(pattern, wildcards):
		c.reportKey(key, fileFault(pattern, fs.ErrNotExist))
	}
	slices.Sort(files)
	return slices.DeleteFunc(files, func(file string) bool {
		if c.taken[file] {
			c.reportKey(key, fault{fmt.Sprintf("takes in %q again", c.display(file)), "name each file once"})
		}
		return c.taken[file]
	})
}

// display returns the path of an included file as Problems name it: like that of
// the configuration, where it lies below the same folder.
func (c *checker) display(file string) string {
	below, err := filepath.Rel(c.dir, file)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") {
		return file
	}
	return filepath.Join(filepath.Dir(c.file), below)
}

// fragment returns the values of an included file, nil if it has none.
func (c *checker) fragment(file string) map[string]any {
	data, err := c.sys.read(file)
	if err != nil {
		c.report(place{}, fileFault(file, err))
		return nil
	}
	top := c.parse(data)
	if top == nil {
		return nil
	}
	return c.object(top, root(), "")
}

// merge adds the values of an included file to those of the file that includes
// it.
func (c *checker) merge(values map[string]any, sub *checker, found map[string]any) {
	for _, k := range root().keys {
		v, has := found[k.name]
		switch {
		case k.kind == kindObjects:
			list, _ := values[k.name].([]any)
			more, _ := v.([]any)
			sub.shift(k.name, len(list))
			if has {
				values[k.name] = append(list, more...)
			}
		case k.kind == kindObject:
			below, _ := v.(map[string]any)
			mine, _ := values[k.name].(map[string]any)
			if mine == nil {
				mine = map[string]any{}
			}
			for name, v := range below {
				if !c.twice(sub, join(k.name, name)) {
					mine[name] = v
				}
			}
			if len(mine) > 0 {
				values[k.name] = mine
			}
		case has && !c.twice(sub, k.name):
			values[k.name] = v
		}
	}
	for key, p := range sub.places {
		if _, mine := c.places[key]; !mine {
			if p.file == "" {
				p.file = sub.file
			}
			c.places[key] = p
		}
	}
	maps.Copy(c.wrong, sub.wrong)
}

// twice reports a key that both c and sub have.
func (c *checker) twice(sub *checker, key string) bool {
	first, mine := c.places[key]
	if !mine {
		return false
	}
	file := first.file
	if file == "" {
		file = c.file
	}
	sub.report(sub.places[key], fault{fmt.Sprintf("is also written in %s:%d", file, first.line), "keep one of the two"})
	return true
}

// shift renames the places of the entries of a list, whose entries follow n
// others in the joined list. Their keys stay: they count within the file.
func (c *checker) shift(list string, n int) {
	if n == 0 {
		return
	}
	shifted := make(map[string]place, len(c.places))
	wrong := make(map[string]bool, len(c.wrong))
	rename := func(key string) string {
		rest, of := strings.CutPrefix(key, list+"[")
		index, tail, closed := strings.Cut(rest, "]")
		i, err := strconv.Atoi(index)
		if !of || !closed || err != nil {
			return key
		}
		return list + "[" + strconv.Itoa(i+n) + "]" + tail
	}
	for key, p := range c.places {
		shifted[rename(key)] = p
	}
	for key := range c.wrong {
		wrong[rename(key)] = true
	}
	c.places, c.wrong = shifted, wrong
}

// missing reports the keys at the top that must be written and are in no file.
func (c *checker) missing(top *yaml.Node, values map[string]any) {
	for _, k := range root().keys {
		_, has := values[k.name]
		if k.required && !has && !c.wrong[k.name] {
			c.report(at(top, k.name), fault{"is missing", "write " + k.accepts()})
		}
	}
}

// where says where the value of key is, for a report about the value of from:
// "line 7", or "conf.d/a.yaml:7" if that is another file.
func (c *checker) where(key, from string) string {
	p := c.places[key]
	if p.file == c.places[from].file {
		return fmt.Sprintf("line %d", p.line)
	}
	file := p.file
	if file == "" {
		file = c.file
	}
	return fmt.Sprintf("%s:%d", file, p.line)
}

// glob is filepath.Glob for files. Its error is ErrBadPattern.
func glob(pattern string) ([]string, error) {
	files, err := filepath.Glob(pattern)
	if errors.Is(err, filepath.ErrBadPattern) {
		return nil, err
	}
	return files, nil
}
