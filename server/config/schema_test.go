package config

import (
	"encoding"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"
)

// rewriting reports whether the tests were run with -rewrite, the flag of
// datadriven.
func rewriting() bool { return flag.Lookup("rewrite").Value.String() == "true" }

// atRoot returns a path below the root of the repository.
func atRoot(path string) string { return filepath.Join("..", "..", path) }

func eachKey(k *key, do func(*key)) {
	for _, c := range k.keys {
		do(c)
		eachKey(c, do)
	}
}

// Every row of the table is complete, and its default is what it accepts.
func TestSchemaRows(t *testing.T) {
	eachKey(root(), func(k *key) {
		if !strings.HasSuffix(k.doc, ".") {
			t.Errorf("%s: doc %q is no sentence", k.path, k.doc)
		}
		if k.accepts() == "" {
			t.Errorf("%s: accepts nothing", k.path)
		}
		defaults := 0
		for _, has := range []bool{k.def != "", k.derived != "", k.required, k.kind == kindObject} {
			if has {
				defaults++
			}
		}
		if defaults != 1 {
			t.Errorf("%s: has %d of a default, a derived default, required, and keys below it; want one", k.path, defaults)
		}
		if k.def == "" && k.kind != kindObject && k.kind != kindObjects && k.sample == "" {
			t.Errorf("%s: has no default and no sample", k.path)
		}
		if k.def != "" {
			k.defaultValue() // panics if it is none
		}
	})
}

// The schema and the type that viper decodes into have the same keys.
func TestSchemaMatchesDocument(t *testing.T) {
	tags := map[string]bool{}
	var collect func(prefix string, typ reflect.Type)
	collect = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			path := prefix + f.Tag.Get("json")
			if path == "dns.expose_generation" {
				continue // written at the top level
			}
			tags[path] = true
			text := reflect.TypeFor[encoding.TextMarshaler]()
			switch elem := f.Type; {
			case elem.Kind() == reflect.Slice && elem.Elem().Implements(text): // a value, not keys
			case elem.Kind() == reflect.Struct && elem.PkgPath() == typ.PkgPath():
				collect(path+".", elem)
			case elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct && elem.Elem().PkgPath() == typ.PkgPath():
				collect(path+"[].", elem.Elem())
			}
		}
	}
	collect("", reflect.TypeFor[document]())

	keys := map[string]bool{}
	eachKey(root(), func(k *key) { keys[k.path] = true })
	if diff := cmp.Diff(keys, tags); diff != "" {
		t.Errorf("the schema and the document differ (-schema +document):\n%s", diff)
	}
}

// wrap breaks text into lines of at most width octets, each after prefix.
func wrap(prefix, text string, width int) string {
	var b strings.Builder
	line := prefix
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > width && line != prefix {
			fmt.Fprintln(&b, line)
			line = prefix
		}
		line += " " + word
	}
	fmt.Fprintln(&b, line)
	return b.String()
}

// commentOut makes comments of the lines of YAML in text.
func commentOut(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		body := strings.TrimLeft(line, " ")
		if body != "\n" && body != "" && body[0] != '#' {
			lines[i] = line[:len(line)-len(body)] + "#" + body
		}
	}
	return strings.Join(lines, "")
}

const referenceHead = `# Every key of dnsapp, with its default value. What is commented out has a default that
# depends on something else. The entries of lists are examples.
#
# dnsapp check -c FILE says what is wrong with a configuration. Relative paths start at the
# folder of the file. Text may have ${NAME} and ${NAME:-default}, which are taken from the
# environment; $$ is a $.
`

// reference renders configs/reference.yaml.
func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	var render func(k *key, indent string)
	render = func(k *key, indent string) {
		for i, c := range k.keys {
			if k.kind != kindObjects || i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(wrap(indent+"#", c.doc, 92))
			switch c.kind {
			case kindObject:
				begin := b.Len()
				fmt.Fprintf(&b, "%s%s:\n", indent, c.name)
				render(c, indent+"  ")
				if c.sometimes {
					text := commentOut(b.String()[begin:])
					kept := b.String()[:begin]
					b.Reset()
					b.WriteString(kept + text)
				}
				continue
			case kindObjects:
				fmt.Fprintf(&b, "%s%s:\n", indent, c.name)
				fmt.Fprintf(&b, "%s  -\n", indent)
				render(c, indent+"    ")
				continue
			}
			accepts := "Write " + c.accepts() + "."
			switch {
			case c.required:
				accepts += " It must be written."
			case c.derived != "":
				accepts += " The default is " + c.derived + "."
			}
			b.WriteString(wrap(indent+"#", accepts, 92))
			switch {
			case c.derived != "":
				fmt.Fprintf(&b, "%s#%s: %s\n", indent, c.name, c.sample)
			case c.def != "":
				fmt.Fprintf(&b, "%s%s: %s\n", indent, c.name, c.def)
			default:
				fmt.Fprintf(&b, "%s%s: %s\n", indent, c.name, c.sample)
			}
		}
	}
	render(root(), "")
	return b.String()
}

// golden compares got with a file of the repository, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if rewriting() {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the schema says; run the tests with -rewrite (-file +schema):\n%s", path, diff)
	}
}

func TestReferenceFile(t *testing.T) {
	golden(t, atRoot("configs/reference.yaml"), reference())
}

// The reference file says what the defaults are.
func TestReferenceIsDefaults(t *testing.T) {
	c, err := load(atRoot("configs/reference.yaml"), testSystem())
	if err != nil {
		t.Fatal(err)
	}
	want := defaults(c.File)
	want.Zones, want.Backends, want.Listeners, want.DPDK.Devices = c.Zones, c.Backends, c.Listeners, c.DPDK.Devices
	if diff := cmp.Diff(want, c, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
		t.Errorf("(-defaults +reference):\n%s", diff)
	}
}

// Every configuration that is shipped loads.
func TestShippedConfigs(t *testing.T) {
	files, err := filepath.Glob(atRoot("configs/*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("configs: %v, %v", files, err)
	}
	for _, file := range files {
		sys := testSystem()
		sys.dpdk = true
		if _, err := load(file, sys); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// The quickstart needs neither root nor an environment.
func TestQuickstart(t *testing.T) {
	c, err := load(atRoot("configs/quickstart.yaml"), testSystem())
	if err != nil {
		t.Fatal(err)
	}
	if want := "/tmp/dnsapp/control.sock"; c.Control != want {
		t.Errorf("control %q, want %q", c.Control, want)
	}
	sys := testSystem()
	sys.env = environment([]string{"XDG_RUNTIME_DIR=/run/user/1000"})
	if c, err = load(atRoot("configs/quickstart.yaml"), sys); err != nil {
		t.Fatal(err)
	}
	if want := "/run/user/1000/dnsapp/control.sock"; c.Control != want {
		t.Errorf("control %q, want %q", c.Control, want)
	}
}

const (
	tableBegin = "<!-- The table is generated from server/config/schema.go: go test ./server/config -rewrite -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// The table of keys in the manual is what the schema says.
func TestManualTable(t *testing.T) {
	path := atRoot("docs/configuration.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(page), tableBegin)
	_, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	var b strings.Builder
	b.WriteString("\n| key | value | default | on reload | meaning |\n|---|---|---|---|---|\n")
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	eachKey(root(), func(k *key) {
		def, change, value := "", "may change", k.accepts()
		switch {
		case k.required:
			def = "must be written"
		case k.derived != "":
			def = k.derived
		case k.def != "":
			def = "`" + k.def + "`"
		}
		switch k.kind {
		case kindObject:
			change, value = "", "keys below it"
		case kindObjects:
			value = "a list"
		}
		if k.frozen != "" {
			change = "refused"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.path, cell(value), cell(def), change, cell(k.doc))
	})
	b.WriteByte('\n')
	golden(t, path, head+tableBegin+b.String()+tableEnd+tail)
}

// The file that the manual shows loads, and so does every other YAML in it.
func TestManualExamples(t *testing.T) {
	page, err := os.ReadFile(atRoot("docs/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("no examples")
	}
	for _, b := range blocks {
		text, _, _ := strings.Cut(b, "```")
		if !strings.Contains(text, "listeners:") {
			text += who
		}
		sys := testSystem()
		sys.env = environment([]string{"POD_NAME=pod-1"})
		if _, err := loadText(t, dir, "manual.yaml", text, sys); err != nil {
			t.Errorf("%v\nin:\n%s", err, text)
		}
	}
}

// The zone of the quickstart is a zone: one SOA, no errors.
func TestExampleZone(t *testing.T) {
	f, err := os.Open(atRoot("configs/zones/example.com.zone"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types := map[uint16]int{}
	p := dns.NewZoneParser(f, "", f.Name())
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		types[rr.Header().Rrtype]++
		if !dns.IsSubDomain("example.com.", rr.Header().Name) {
			t.Errorf("%v: out of the zone", rr)
		}
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	for typ, least := range map[uint16]int{
		dns.TypeSOA: 1, dns.TypeNS: 4, dns.TypeA: 10, dns.TypeAAAA: 5, dns.TypeMX: 2, dns.TypeTXT: 3, dns.TypeCNAME: 2, dns.TypeSRV: 2, dns.TypeCAA: 2,
	} {
		if types[typ] < least {
			t.Errorf("%d records of type %s, want %d", types[typ], dns.TypeToString[typ], least)
		}
	}
}
