package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// who is the shortest list of listeners, so that a case can be about one key.
const who = `listeners: [{name: who, address: ["127.0.0.1:5399"], service: identify}]` + "\n"

// TestTranscripts loads the configurations in testdata/transcripts and compares what
// is said about them. Run it with -rewrite to write what is said now.
//
//	load [who] [env=(NAME=value,...)] [root] [dpdk] [show=(KEY,...)]
//
// prints the problems, or the values of the keys. "who" adds a list of
// listeners at the end. What follows a line "-- NAME --" is another file.
//
//	reload
//
// takes two configurations with a line "=>" between them, and prints what
// changes and what is refused.
func TestTranscripts(t *testing.T) {
	dir := folder(t)
	datadriven.Walk(t, filepath.Join("testdata", "transcripts"), func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "load":
				return transcribeLoad(t, dir, td)
			case "reload":
				before, after, _ := strings.Cut(td.Input, "\n=>\n")
				return transcribeReload(t, dir, before, after)
			}
			t.Fatalf("%s: no such command", td.Cmd)
			return ""
		})
	})
}

// folder returns a folder with what the configurations of the tests refer to.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"zones", "zones/folder.zone"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "zones/example.com.zone"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "zones/pipe.zone"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testSystem is a machine with 4 processors, and the real files but for one
// that may not be read (root may read any).
func testSystem() *system {
	return &system{
		read: read,
		readable: func(path string) error {
			if filepath.Base(path) == "secret.zone" {
				return &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
			}
			return readable(path)
		},
		glob: glob,
		env:  func(string) (string, bool) { return "", false },
		host: func() (string, error) { return "host-1", nil },
		user: func(name string) error {
			if name != "nobody" {
				return errors.New("no such user")
			}
			return nil
		},
		local: func(a netip.Addr) bool { return a.IsLoopback() || a == netip.MustParseAddr("192.0.2.7") },

		processors: 4,
	}
}

func transcribeLoad(t *testing.T, dir string, td *datadriven.TestData) string {
	sys, more := testSystem(), ""
	var show []string
	for _, arg := range td.CmdArgs {
		switch arg.Key {
		case "who":
			more = who
		case "root":
			sys.root = true
		case "dpdk":
			sys.dpdk = true
		case "show":
			show = arg.Vals
		case "env":
			sys.env = environment(arg.Vals)
		default:
			t.Fatalf("load: no argument %q", arg.Key)
		}
	}
	main, others := apart(td.Input + "\n")
	for name, text := range others {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}()
	}
	c, err := loadText(t, dir, "test.yaml", main+more, sys)
	if err != nil {
		return shorten(err.Error(), dir)
	}
	if faults := schemaFaults(t, main+more); faults != nil {
		t.Errorf("%s: the JSON Schema refuses what Load accepts: %v", td.Pos, faults)
	}
	var b strings.Builder
	d := reflect.ValueOf(*documentOf(c))
	for _, key := range show {
		fmt.Fprintf(&b, "%s: %s\n", key, showField(d, key))
	}
	if len(show) == 0 {
		b.WriteString("ok\n")
	}
	return strings.ReplaceAll(b.String(), dir, "DIR")
}

// apart takes the further files of an input off it.
func apart(input string) (first string, others map[string]string) {
	parts := strings.Split("\n"+input, "\n-- ")
	others = map[string]string{}
	for _, p := range parts[1:] {
		name, text, _ := strings.Cut(p, " --")
		others[name] = strings.TrimPrefix(text, "\n") + "\n"
	}
	first = strings.TrimPrefix(parts[0], "\n")
	if len(others) > 0 {
		first += "\n"
	}
	return first, others
}

func showField(d reflect.Value, key string) string {
	v := field(d, key)
	k := root().child(key)
	if k == nil || k.kind != kindObjects {
		return format(v)
	}
	var entries []string
	for i := range v.Len() {
		entries = append(entries, formatEntry(k, v.Index(i)))
	}
	return strings.Join(entries, " ")
}

func transcribeReload(t *testing.T, dir, before, after string) string {
	loaded := func(name, text string) *Config {
		c, err := loadText(t, dir, name, text+"\n", testSystem())
		if err != nil {
			t.Fatalf("loading %s: %v", name, err)
		}
		return c
	}
	o, n := loaded("before.yaml", before), loaded("after.yaml", after)
	var b strings.Builder
	for _, c := range Diff(o, n) {
		fmt.Fprintln(&b, c)
	}
	for _, p := range Refusals(o, n) {
		fmt.Fprintln(&b, "refused:", p)
	}
	return strings.ReplaceAll(b.String(), dir, "DIR")
}

func loadText(t *testing.T, dir, name, text string, sys *system) (*Config, error) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(path, sys)
}

func environment(vals []string) func(string) (string, bool) {
	env := map[string]string{}
	for _, v := range vals {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

func shorten(s, dir string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, dir+"/test.yaml:", "test.yaml:"), dir, "DIR")
}

// What cannot be read at all.
func TestUnreadableFile(t *testing.T) {
	dir := folder(t)
	for _, c := range []struct{ path, want string }{
		{dir + "/none.yaml", "none.yaml: there is no such file (write one, or name another by -c; configs/reference.yaml has every key)"},
		{dir + "/zones/example.com.zone/none.yaml", `none.yaml: there is no file "DIR/zones/example.com.zone/none.yaml" (relative paths start at the folder of the configuration file)`},
		{dir + "/zones", `zones: "DIR/zones" is a directory (name a file in it)`},
		{dir + "/zones/pipe.zone", `pipe.zone: "DIR/zones/pipe.zone" is not a regular file (name a regular file)`},
		{dir + "/\xff.yaml", "\xff.yaml: has a path that is not UTF-8 (rename it, or its folder)"},
	} {
		_, err := Load(c.path)
		if err == nil {
			t.Errorf("Load(%q): no error", c.path)
			continue
		}
		want := filepath.Dir(c.path) + "/" + strings.ReplaceAll(c.want, "DIR", dir)
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("Load(%q) (-want +got):\n%s", c.path, diff)
		}
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 {
			t.Errorf("Load(%q): %T, want one Problem", c.path, err)
		}
	}
}

func TestFileTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(maxFile+1), f.Close()); err != nil { // sparse
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "are more than") {
		t.Fatalf("Load: %v", err)
	}
}

// A relative path is relative to the file, wherever the process stands, and
// File is absolute.
func TestPathsAreAbsolute(t *testing.T) {
	dir := folder(t)
	text := "control: run/c.sock\nstate_dir: ../state\nzones: [{name: example.com, file: zones/example.com.zone}]\n" + who
	if err := os.WriteFile(filepath.Join(dir, "rel.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(dir))
	c, err := Load(filepath.Join(filepath.Base(dir), "rel.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.File, c.Control, c.StateDir, c.Zones[0].File}
	want := []string{dir + "/rel.yaml", dir + "/run/c.sock", filepath.Dir(dir) + "/state", dir + "/zones/example.com.zone"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

// What Load returns for the shortest file is every default.
func TestDefaults(t *testing.T) {
	dir := folder(t)
	got, err := loadText(t, dir, "short.yaml", who, testSystem())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults(dir+"/short.yaml"), got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLookupUser(t *testing.T) {
	for _, c := range []struct {
		name     string
		uid, gid uint32
		ok       bool
	}{
		{"root", 0, 0, true},
		{"0", 0, 0, true},
		{"4000000001", 4000000001, 4000000001, true}, // in no user database
		{"no such user", 0, 0, false},
		{"-1", 0, 0, false},
		{"4294967296", 0, 0, false},
	} {
		uid, gid, err := LookupUser(c.name)
		if uid != c.uid || gid != c.gid || (err == nil) != c.ok {
			t.Errorf("LookupUser(%q) = %d, %d, %v", c.name, uid, gid, err)
		}
	}
}
