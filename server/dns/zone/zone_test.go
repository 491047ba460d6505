package zone

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/shm"
)

const apexText = "$TTL 300\n@ 3600 SOA ns host 7 2 3 4 600\n@ NS ns\nns A 192.0.2.1\n"

// write puts a file into a directory of its own and returns its path.
func write(tb testing.TB, name, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func mustOpen(tb testing.TB, origin, text string) *Zone {
	tb.Helper()
	c, _, err := Compile(origin, write(tb, "zone", text))
	if err != nil {
		tb.Fatal(err)
	}
	image, err := c.Image()
	if err != nil {
		tb.Fatal(err)
	}
	z, err := Open(image)
	if err != nil {
		tb.Fatal(err)
	}
	if err := z.Verify(); err != nil {
		tb.Fatal(err)
	}
	return z
}

func nameOf(tb testing.TB, text string) *wire.Name {
	tb.Helper()
	b, err := wire.AppendName(nil, []byte(text), nil)
	if err != nil {
		tb.Fatal(err)
	}
	n := new(wire.Name)
	if n.Set(b) != len(b) {
		tb.Fatalf("no name %q", text)
	}
	return n
}

// The report and the zone say what was compiled.
func TestCompileReport(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "zone")
	for name, text := range map[string]string{"zone": apexText + "$INCLUDE inc\nx.y A 192.0.2.2\nx.y A 192.0.2.2\nout.of.zone. A 192.0.2.3\n", "inc": "i 60 A 192.0.2.4\ni 70 A 192.0.2.5\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, rep, err := Compile("Example.COM", path)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Name != "example.com." || rep.Serial != 7 || rep.Records != 6 || rep.Nodes != 5 || rep.Size != c.Size() {
		t.Errorf("report %+v", rep)
	}
	if len(rep.Deps) != 2 || rep.Deps[0].Path != path || rep.Deps[1].Path != filepath.Join(dir, "inc") || !rep.Deps[0].Fresh() || !rep.Deps[1].Fresh() {
		t.Errorf("deps %+v", rep.Deps)
	}
	var warnings []string
	for _, w := range rep.Warnings {
		warnings = append(warnings, strings.TrimPrefix(w.String(), dir))
	}
	slices.Sort(warnings)
	want := []string{"/inc:2: TTL 70", "/zone:7: duplicate", "/zone:8: out.of.zone."}
	if !slices.EqualFunc(warnings, want, strings.HasPrefix) {
		t.Errorf("warnings %q, want %q", warnings, want)
	}

	r, err := c.Region("test-zone")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	z, err := Map(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Verify(); err != nil {
		t.Error(err)
	}
	if z.Name() != rep.Name || z.Serial() != 7 || z.Records() != 6 || z.Nodes() != 5 || z.Key() != rep.Key || z.Size() != rep.Size {
		t.Errorf("zone %s, serial %d, %d records, %d nodes, key %v, size %d", z.Name(), z.Serial(), z.Records(), z.Nodes(), z.Key(), z.Size())
	}
	if seals, err := unix.FcntlInt(uintptr(r.Fd()), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_WRITE == 0 {
		t.Errorf("seals %#x, %v", seals, err)
	}
}

// The key follows the content, and nothing else.
func TestKey(t *testing.T) {
	compile := func(origin, text string) Report {
		_, rep, err := Compile(origin, write(t, "zone", text))
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	a, b := compile("z.", apexText), compile("Z.", apexText)
	if a.Key != b.Key {
		t.Error("the same content has two keys")
	}
	if a.Key == compile("y.", apexText).Key || a.Key == compile("z.", apexText+"; comment\n").Key {
		t.Error("two contents have one key")
	}
	if err := os.WriteFile(a.Deps[0].Path, []byte(apexText+"x A 192.0.2.9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a.Deps[0].Fresh() || !b.Deps[0].Fresh() {
		t.Error("Fresh does not follow the file")
	}
}

// What is refused says where and why, all of it in one go.
func TestRefusals(t *testing.T) {
	for what, c := range map[string]struct {
		text string
		want []string // "line: word"
	}{
		"no SOA":           {"@ 1 NS ns\n", []string{"0: SOA"}},
		"no NS":            {"@ 1 SOA a b 1 2 3 4 5\n", []string{"0: NS"}},
		"two SOA":          {apexText + "@ SOA ns host 8 2 3 4 600\n", []string{"5: SOA"}},
		"SOA elsewhere":    {apexText + "x SOA ns host 8 2 3 4 600\n", []string{"5: SOA"}},
		"another class":    {apexText + "x CH A 192.0.2.1\n", []string{"5: class"}},
		"two bad lines":    {apexText + "x A y\nz A 192.0.2.1\nw FOO\n", []string{"5: IPv4", "7: FOO"}},
		"CNAME and MX":     {apexText + "x CNAME y\nx MX 1 y\n", []string{"5: CNAME"}},
		"two CNAME":        {apexText + "x CNAME y\nx CNAME w\n", []string{"6: CNAME"}},
		"two DNAME":        {apexText + "x DNAME y\nx DNAME w\n", []string{"6: DNAME"}},
		"DS at the apex":   {apexText + "@ DS 1 8 2 00\n", []string{"5: DS"}},
		"CNAME at the cut": {apexText + "x NS y\nx CNAME w\n", []string{"6: CNAME"}},
	} {
		path := write(t, "zone", c.text)
		_, _, err := Compile("z.", path)
		if !errors.Is(err, ErrZone) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, w := range c.want {
			line, word, _ := strings.Cut(w, ": ")
			place := path + ":" + line + ": "
			if line == "0" {
				place = path + ": "
			}
			if !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %s...%s", what, err, place, word)
			}
		}
		var e *Error
		if !errors.As(err, &e) || e.File != path {
			t.Errorf("%s: no *Error in %v", what, err)
		}
	}
	if _, _, err := Compile("z.", filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrZone) {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, err := Compile("z.", t.TempDir()); err == nil {
		t.Error("a directory was taken for a zone file")
	}
	many := apexText + strings.Repeat("x A y\n", 100)
	if _, _, err := Compile("z.", write(t, "zone", many)); strings.Count(err.Error(), "IPv4") != maxErrors {
		t.Errorf("%d errors are reported, not %d", strings.Count(err.Error(), "IPv4"), maxErrors)
	}
}

// What loads, but will not work as meant, is warned about, with its line.
func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"@ NS none\n":                          "5: none.z. has no address",
		"a MX 1 none\n":                        "5: none.z. has no address",
		"a SRV 1 2 3 b\nb TXT t\n":             "5: b.z. has no address",
		"a MX 1 b\nb CNAME ns\n":               "5: b.z. is an alias",
		"a NS ns.a\n":                          "5: ns.a.z. is below the delegation",
		"d DNAME e\nx.d A 192.0.2.1\n":         "6: x.d.z. is below the DNAME",
		"c NS ns\nc DNAME e\n":                 "6: DNAME and NS",
		"k DNSKEY 256 3 5 Zm9v\n":              "5: algorithm RSASHA1",
		"$ORIGIN x\n A 192.0.2.9\n":            "6: record without an owner",
		"a NS ns\nb NS ns.a\nc MX 1 ns.a\n":    "", // another zone's hosts
		"a MX 1 w.w\n*.w A 192.0.2.1\n":        "",
		"a NS ns.a\nns.a AAAA 2001:db8::1\n":   "3: no name server of the zone has an AAAA",
		"a NS elsewhere.\na MX 1 elsewhere.\n": "",
	} {
		_, rep, err := Compile("z.", write(t, "zone", apexText+text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, w := range rep.Warnings {
			if !strings.HasPrefix(w.Text, "TTL") {
				got = append(got, fmt.Sprintf("%d: %s", w.Line, w.Text))
			}
		}
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Records that may stand beside a CNAME may.
func TestCNAMECompanions(t *testing.T) {
	mustOpen(t, "z.", apexText+"x CNAME y\nx NSEC ns A\nx RRSIG CNAME 8 2 300 1 2 3 z. Zm9v\nx RRSIG NSEC 8 2 300 1 2 3 z. Zm9v\n")
}

// Each RRSIG keeps its TTL: it goes with the RRset that it covers, and the
// signatures of a name are none.
func TestSignatureTTL(t *testing.T) {
	z := mustOpen(t, "z.", apexText+"x 10 A 192.0.2.1\nx 10 RRSIG A 8 2 10 1 2 3 z. Zm9v\nx 20 RRSIG NSEC 8 2 20 1 2 3 z. Zm9v\n")
	s, ok := z.Lookup(nameOf(t, "x.z."), None).Node.RRset(wire.TypeRRSIG)
	if !ok || s.Count != 2 {
		t.Fatalf("%d records", s.Count)
	}
	rr := s.Wire
	for _, want := range []uint32{10, 20} {
		if ttl := binary.BigEndian.Uint32(rr[6:]); ttl != want {
			t.Errorf("TTL %d, want %d", ttl, want)
		}
		rr = rr[recordFixed+binary.BigEndian.Uint16(rr[10:]):]
	}
}

// A report survives JSON: the compiler hands it over so.
func TestReportJSON(t *testing.T) {
	_, rep, err := Compile("z.", write(t, "zone", apexText))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || back.Key != rep.Key || back.Deps[0] != rep.Deps[0] {
		t.Errorf("%+v became %+v, %v", rep, back, err)
	}
	if err := json.Unmarshal([]byte(`{"key":"00ff"}`), &back); err == nil {
		t.Error("a short digest was taken")
	}
}

// Lookup tells existing names from empty non-terminals, wildcards, delegations
// and DNAMEs, at every depth.
func TestLookup(t *testing.T) {
	z := mustOpen(t, "z.", apexText+`a.b.c A 192.0.2.1
*.w A 192.0.2.2
cut NS ns.cut
ns.cut A 192.0.2.3
deep.cut NS ns.cut
d DNAME e
below.d A 192.0.2.4
both NS ns
both DNAME e
`)
	for name, want := range map[string]struct {
		kind MatchKind
		node string
	}{
		"z.": {Exact, "z."}, "a.b.c.z.": {Exact, "a.b.c.z."}, "b.c.z.": {Exact, "b.c.z."}, "x.b.c.z.": {NoName, "b.c.z."}, "x.y.z.": {NoName, "z."},
		"w.z.": {Exact, "w.z."}, "x.w.z.": {Wildcard, "*.w.z."}, "x.y.w.z.": {Wildcard, "*.w.z."}, "*.w.z.": {Exact, "*.w.z."}, "x.*.w.z.": {NoName, "*.w.z."},
		"cut.z.": {Delegation, "cut.z."}, "ns.cut.z.": {Delegation, "cut.z."}, "x.y.cut.z.": {Delegation, "cut.z."}, "deep.cut.z.": {Delegation, "cut.z."}, "x.deep.cut.z.": {Delegation, "cut.z."},
		"d.z.": {Exact, "d.z."}, "below.d.z.": {Redirect, "d.z."}, "x.y.d.z.": {Redirect, "d.z."}, "x.below.d.z.": {Redirect, "d.z."},
		"both.z.": {Delegation, "both.z."}, "x.both.z.": {Delegation, "both.z."},
	} {
		n := nameOf(t, name)
		for _, hint := range []Ref{None, z.Candidate(n.Hash(0)), z.Apex().Ref()} {
			m := z.Lookup(n, hint)
			if got := wire.Text(m.Node.Name()); m.Kind != want.kind || got != want.node {
				t.Errorf("%s, hint %d: kind %d, node %s, want %d, %s", name, hint, m.Kind, got, want.kind, want.node)
			}
		}
	}
}

// Every name of a zone is found, and no other, at any size of the hash table.
func TestLookupAgainstMap(t *testing.T) {
	var text strings.Builder
	text.WriteString(apexText)
	names := map[string]bool{"z.": true, "ns.z.": true}
	for i := range 700 {
		fmt.Fprintf(&text, "h%d.%d.%d A 192.0.2.1\n", i, i%7, i%3)
		names[fmt.Sprintf("h%d.%d.%d.z.", i, i%7, i%3)] = true
		names[fmt.Sprintf("%d.%d.z.", i%7, i%3)] = true
		names[fmt.Sprintf("%d.z.", i%3)] = true
		if i&(i-1) == 0 {
			z := mustOpen(t, "z.", text.String())
			if z.Nodes() != len(names) {
				t.Fatalf("%d nodes, want %d", z.Nodes(), len(names))
			}
			for name := range names {
				if z.Lookup(nameOf(t, name), None).Kind != Exact {
					t.Fatalf("%s is not found among %d", name, len(names))
				}
				if z.Lookup(nameOf(t, "x"+name), None).Kind == Exact && !names["x"+name] {
					t.Fatalf("x%s is found", name)
				}
			}
		}
	}
}

// The longest origin wins, DNS labels and not octets counting.
func TestSet(t *testing.T) {
	var zones []*Zone
	for _, origin := range []string{"com.", "example.com.", "b.a.example.com.", "ample.com."} {
		zones = append(zones, mustOpen(t, origin, apexText))
	}
	s, err := NewSet(zones)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"com.": "com.", "x.com.": "com.", "example.com.": "example.com.", "a.example.com.": "example.com.", "b.a.example.com.": "b.a.example.com.",
		"x.y.b.a.example.com.": "b.a.example.com.", "x.ample.com.": "ample.com.", "xample.com.": "com.", "org.": "", ".": "", "com.org.": "",
	} {
		n := nameOf(t, name)
		got := ""
		if z := s.Find(n, n.Labels()); z != nil {
			got = z.Name()
		}
		if got != want {
			t.Errorf("%s is in %q, want %q", name, got, want)
		}
	}
	n := nameOf(t, "b.a.example.com.")
	if z := s.Find(n, n.Labels()-1); z.Name() != "example.com." {
		t.Errorf("the parent is %s", z.Name())
	}
	if allocs := testing.AllocsPerRun(100, func() { s.Find(n, n.Labels()) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if _, err := NewSet(append(zones, mustOpen(t, "COM.", apexText))); err == nil {
		t.Error("a zone was taken twice")
	}
	for _, empty := range []*Set{nil, {}} {
		if empty.Find(n, n.Labels()) != nil || len(empty.Zones()) != 0 {
			t.Error("an empty set finds something")
		}
	}
	root, err := NewSet([]*Zone{mustOpen(t, ".", apexText)})
	if err != nil {
		t.Fatal(err)
	}
	long := nameOf(t, strings.Repeat("a.", 127))
	if z := root.Find(long, long.Labels()); z == nil || z.Name() != "." {
		t.Errorf("127 labels: %v", z)
	}
}

// A region of another kind, layout or state, and a cut image, are refused.
func TestOpenRefuses(t *testing.T) {
	c, _, err := Compile("z.", write(t, "zone", apexText))
	if err != nil {
		t.Fatal(err)
	}
	image, err := c.Image()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(image) {
		if _, err := Open(image[:n]); !errors.Is(err, ErrImage) {
			t.Fatalf("%d of %d octets: %v", n, len(image), err)
		}
	}
	for _, c := range []struct {
		what string
		off  int
		v    uint64
	}{
		{"magic", hdrMagic, 1}, {"layout", hdrLayout, 99}, {"size", hdrSize, 1 << 40}, {"slots", hdrSlots, 1 << 62}, {"slot mask", hdrSlotMask, 0xffffffff},
		{"arena", hdrArena, ^uint64(0)}, {"arena length", hdrArenaLen, 1 << 40}, {"apex", hdrApex, 0xffffffff}, {"no apex", hdrApex, 0},
	} {
		bad := bytes.Clone(image)
		binary.LittleEndian.PutUint64(bad[c.off:], c.v)
		if _, err := Open(bad); !errors.Is(err, ErrImage) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	r := shm.Heap(shm.HeaderSize + len(image))
	r.Format(shm.KindZones, Layout)
	copy(shm.ViewSlice[byte](r, shm.HeaderSize, len(image)), image)
	if _, err := Map(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("an unpublished region: %v", err)
	}
	r.Publish()
	if _, err := Map(r); err != nil {
		t.Errorf("a published region: %v", err)
	}
	r.Format(shm.KindZones, Layout+1)
	r.Publish()
	if _, err := Map(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("another layout: %v", err)
	}
}

// An image that changes needs another layout number: processes of two versions
// share it. After a deliberate change raise Layout and run with -update.
func TestGoldenImage(t *testing.T) {
	c, _, err := Compile("z.", write(t, "zone", apexText+"x MX 1 ns\ns NS ns.s\nns.s A 192.0.2.5\n*.w CNAME x\na.b TXT t\n"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := c.Image()
	if err != nil {
		t.Fatal(err)
	}
	clear(image[hdrKey : hdrKey+len(Digest{})]) // follows the compiler version, too
	got := fmt.Sprintf("layout %d\n%s", Layout, hex.Dump(image))
	path := filepath.Join("testdata", "image.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		if first, _, _ := strings.Cut(string(want), "\n"); first == fmt.Sprintf("layout %d", Layout) {
			t.Errorf("the image changed, but Layout is still %d", Layout)
		} else {
			t.Errorf("Layout is %d now: run with -update", Layout)
		}
	}
}

var update = flag.Bool("update", false, "write testdata/image.golden")

// Verify finds nearly every damage; what it misses is in octets that mean
// nothing to it (names, addresses).
func TestVerify(t *testing.T) {
	c, _, err := Compile("z.", write(t, "zone", apexText+"x MX 1 ns\ns NS ns.s\nns.s A 192.0.2.5\n*.w CNAME x\n"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := c.Image()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := headerSize; at < len(image); at++ {
		bad := bytes.Clone(image)
		bad[at] ^= 0x41
		z, err := Open(bad)
		if err == nil {
			err = z.Verify()
		}
		if err != nil {
			if !errors.Is(err, ErrImage) {
				t.Fatalf("octet %d: %v", at, err)
			}
			found++
		}
	}
	if n := len(image) - headerSize; found < n/3 {
		t.Errorf("%d of %d damages found", found, n)
	}
}
