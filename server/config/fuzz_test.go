package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// FuzzLoad: no files make Load panic; what it refuses, it refuses by Problems
// that say where; what it accepts, the JSON Schema accepts too, survives JSON and
// fits no worse a second time. Seeds are the transcripts, the shipped files and
// testdata/fuzz.
func FuzzLoad(f *testing.F) {
	transcripts, err := filepath.Glob("testdata/transcripts/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range transcripts {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "\n\n") {
			_, input, _ := strings.Cut(block, "\n")
			input, _, _ = strings.Cut(input, "----\n")
			f.Add([]byte(input))
		}
	}
	f.Add([]byte(reference()))
	f.Fuzz(func(t *testing.T, data []byte) {
		sys := testSystem()
		sys.root = true
		const main = "/etc/dnsapp/dnsapp.yaml"
		first, others := apart(string(data))
		files := map[string]string{main: first}
		for name, text := range others {
			if file := filepath.Join("/etc/dnsapp", name); files[file] == "" {
				files[file] = text
			}
		}
		sys.read = func(path string) ([]byte, error) {
			text, ok := files[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		}
		sys.glob = func(pattern string) (found []string, err error) {
			for file := range files {
				matched, err := filepath.Match(pattern, file)
				if err != nil {
					return nil, err
				}
				if matched {
					found = append(found, file)
				}
			}
			return found, nil
		}
		sys.readable = func(string) error { return nil }
		c, err := load(main, sys)
		if err != nil {
			var ps Problems
			if !errors.As(err, &ps) || len(ps) == 0 {
				t.Fatalf("%T %v, want Problems", err, err)
			}
			for _, p := range ps {
				if p.Msg == "" || p.Fix == pleaseReport || strings.ContainsAny(p.String(), "\n\r") {
					t.Errorf("%#v", p)
				}
				text, ok := files[p.File]
				if lines := countLines([]byte(text)); !ok || p.Line < 1 && p.Key == "" || p.Line > lines {
					t.Errorf("%v: there are %d lines", p, lines)
				}
			}
			return
		}
		if faults := schemaFaults(t, first); faults != nil {
			t.Errorf("the JSON Schema refuses what Load accepts: %v", faults)
		}
		back, err := throughJSON(c)
		if err != nil || !reflect.DeepEqual(c, back) {
			t.Fatalf("was %#v\n is %#v, %v", c, back, err)
		}
		if again, err := load(main, sys); err != nil || Diff(c, again) != nil || Refusals(c, again) != nil {
			t.Fatalf("loaded again: %v, %v", Diff(c, again), err)
		}
	})
}
