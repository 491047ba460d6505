package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Change is one key whose value differs between two configurations. Entries of
// lists are named, not numbered: "listeners[dns].address".
type Change struct {
	Key string `json:"key"`
	Old string `json:"old"` // as it would be written in the file; "": the entry is new
	New string `json:"new"` // "": the entry is gone
}

// String returns the change in one line.
func (c Change) String() string {
	switch {
	case c.Old == "":
		return fmt.Sprintf("%s: added %s", c.Key, c.New)
	case c.New == "":
		return fmt.Sprintf("%s: removed %s", c.Key, c.Old)
	}
	return fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, c.New)
}

// Diff returns what differs, in the order of the schema. The order of zones
// and listeners means nothing and is not compared, nor is File. What a default
// depends on (the host name, the processors) counts as if it were written.
func Diff(before, after *Config) []Change {
	old, now := reflect.ValueOf(*documentOf(before)), reflect.ValueOf(*documentOf(after))
	var changes []Change
	for i := range schema {
		s := &schema[i]
		switch {
		case strings.Contains(s.path, "[]"): // compared with the entry that it is below
		case s.kind == kindObjects:
			changes = append(changes, diffEntries(s.path, keyAt(s.path), field(old, s.path), field(now, s.path))...)
		case s.kind != kindObject:
			o, n := format(field(old, s.path)), format(field(now, s.path))
			if o != n {
				changes = append(changes, Change{s.path, o, n})
			}
		}
	}
	return changes
}

// diffEntries compares two lists of structs whose key "name" is unique.
func diffEntries(list string, k *key, old, now reflect.Value) []Change {
	byName := map[string]reflect.Value{}
	for i := range old.Len() {
		byName[field(old.Index(i), "name").String()] = old.Index(i)
	}
	var changes []Change
	for i := range now.Len() {
		n := now.Index(i)
		name := field(n, "name").String()
		o, known := byName[name]
		delete(byName, name)
		if known && n.Comparable() && n.Equal(o) { // most of very many zones
			continue
		}
		path := list + "[" + name + "]"
		if !known {
			changes = append(changes, Change{Key: path, New: formatEntry(k, n)})
			continue
		}
		changes = append(changes, diffKeys(path, k, o, n)...)
	}
	for i := range old.Len() {
		name := field(old.Index(i), "name").String()
		if o, gone := byName[name]; gone {
			changes = append(changes, Change{Key: list + "[" + name + "]", Old: formatEntry(k, o)})
		}
	}
	return changes
}

// diffKeys compares what is below k in two structs.
func diffKeys(path string, k *key, old, now reflect.Value) []Change {
	var changes []Change
	for _, child := range k.keys {
		o, n, below := field(old, child.name), field(now, child.name), join(path, child.name)
		switch child.kind {
		case kindObject:
			changes = append(changes, diffKeys(below, child, o, n)...)
		case kindObjects:
			changes = append(changes, diffEntries(below, child, o, n)...)
		default:
			if before, after := format(o), format(n); before != after {
				changes = append(changes, Change{below, before, after})
			}
		}
	}
	return changes
}

func formatEntry(k *key, v reflect.Value) string {
	var parts []string
	for _, child := range k.keys {
		f := field(v, child.name)
		switch {
		case child.sometimes && f.IsZero():
		case child.kind == kindObject:
			parts = append(parts, child.name+": "+formatEntry(child, f))
		case child.kind == kindObjects:
			entries := make([]string, f.Len())
			for i := range entries {
				entries[i] = formatEntry(child, f.Index(i))
			}
			parts = append(parts, child.name+": ["+strings.Join(entries, ", ")+"]")
		default:
			parts = append(parts, child.name+": "+format(f))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// format returns a value as it would be written in the file.
func format(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return shortDuration(x)
	case netip.AddrPort:
		if !x.IsValid() {
			return "off"
		}
		return x.String()
	}
	switch v.Kind() {
	case reflect.String:
		if v.String() == "" {
			return `""`
		}
		return v.String()
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = format(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// Refusals returns what keeps a reload from going from before to after, each by
// its key: nil if nothing does. Zones, listeners and every key that the schema does
// not mark as frozen may change.
func Refusals(before, after *Config) []Problem {
	var refused []Problem
	old, now := reflect.ValueOf(*documentOf(before)), reflect.ValueOf(*documentOf(after))
	for i := range schema {
		s := &schema[i]
		if s.frozen == "" || strings.Contains(s.path, "[]") { // what is in a list, with the list
			continue
		}
		if s.kind == kindObjects {
			k := keyAt(s.path)
			for _, c := range diffEntries(s.path, k, field(old, s.path), field(now, s.path)) {
				_, name, whole := strings.Cut(c.Key, "].")
				name, _, _ = strings.Cut(name, ".")
				if whole && k.child(name) != nil && k.child(name).frozen == "" {
					continue
				}
				refused = append(refused, Problem{
					File: after.File, Key: c.Key, Msg: "a reload cannot change this (" + c.String() + "): " + s.frozen,
					Fix: "write it as it was, or stop and start the server",
				})
			}
			continue
		}
		o, n := format(field(old, s.path)), format(field(now, s.path))
		if o == n {
			continue
		}
		refused = append(refused, Problem{
			File: after.File, Key: s.path,
			Msg: fmt.Sprintf("a reload cannot change %s to %s: %s", o, n, s.frozen),
			Fix: "write " + o + ", or stop and start the server",
		})
	}
	return refused
}
