package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"gopkg.in/yaml.v3"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone/master"
)

// rfcSkips are the cases that are not ours, with the reason.
var rfcSkips = map[string]string{
	"defaultclass.yaml":        "a zone has class IN here; there is no other default class",
	"unknown-zero-length.yaml": `TXT has one character-string at least (RFC 1035 3.3.14), so "\# 0" is refused, as zscanner's cases ask`,
}

// rfcRefused are the cases whose text must be refused.
var rfcRefused = []string{"stroverflow.yaml"}

// TestRFCMasterFiles: RFC 1035 5.1, RFC 2308 4 and RFC 3597 5: order of TTL and
// class, defaults, escapes, string lengths.
func TestRFCMasterFiles(t *testing.T) {
	dir := dataDir(t, "rfc-zones")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			if reason, ok := rfcSkips[name]; ok {
				t.Skip(reason)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Origin   string
				Zonefile string
				Result   []struct {
					Owner string
					Class string
					TTL   uint32
					Data  yaml.Node
				}
			}
			if err := yaml.Unmarshal(raw, &c); err != nil {
				t.Fatal(err)
			}
			origin, err := wire.AppendName(nil, []byte(c.Origin), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got, want, faults []string
			h := &master.Handler{
				Record: func(r *master.Record) error {
					got = append(got, rfcText(t, r))
					return nil
				},
				Errorf: func(p master.Pos, f string, args ...any) { faults = append(faults, fmt.Sprintf(f, args...)) },
				Warnf:  func(master.Pos, string, ...any) {},
			}
			if err := master.Parse([]byte(c.Zonefile), name, origin, h); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(rfcRefused, name) {
				if len(faults) == 0 || len(got) > 0 {
					t.Fatalf("accepted: %v", got)
				}
				return
			}
			for _, r := range c.Result {
				want = append(want, fmt.Sprintf("%s %d %s %s", r.Owner, r.TTL, r.Class, rfcData(&r.Data)))
			}
			if !slices.Equal(got, want) || len(faults) > 0 {
				t.Errorf("got\n%s\nwant\n%s\nfaults %v", strings.Join(got, "\n"), strings.Join(want, "\n"), faults)
			}
		})
	}
}

// rfcText returns a record in the notation of rfcData.
func rfcText(t *testing.T, r *master.Record) string {
	buf := append([]byte(nil), r.Owner...)
	buf = append(buf, byte(r.Type>>8), byte(r.Type), byte(r.Class>>8), byte(r.Class), byte(r.TTL>>24), byte(r.TTL>>16), byte(r.TTL>>8), byte(r.TTL), byte(len(r.RData)>>8), byte(len(r.RData)))
	rr, _, err := dns.UnpackRR(append(buf, r.RData...), 0)
	if err != nil {
		t.Fatal(err)
	}
	var data []string
	for i := 1; i <= dns.NumField(rr); i++ {
		if _, ok := rr.(*dns.TXT); ok {
			for _, s := range rr.(*dns.TXT).Txt {
				data = append(data, strings.ReplaceAll(s, `\"`, `"`))
			}
			continue
		}
		data = append(data, dns.Field(rr, i))
	}
	return fmt.Sprintf("%s %d %s %s %v", wire.Text(r.Owner), r.TTL, dns.ClassToString[uint16(r.Class)], strings.ToUpper(dns.TypeToString[uint16(r.Type)]), data)
}

// rfcData returns the data of an expected record as its type and a list.
func rfcData(n *yaml.Node) string {
	typ := strings.ToUpper(strings.TrimPrefix(n.Tag, "!"))
	var data []string
	for i, c := range n.Content {
		if n.Kind == yaml.SequenceNode || i%2 == 1 {
			data = append(data, c.Value)
		}
	}
	if typ == "UNKNOWN" { // only ever TXT "foo"
		return "TXT [foo]"
	}
	return fmt.Sprintf("%s %v", typ, data)
}

// TestRFCZones: the zones that the RFCs print compile, signed ones included.
func TestRFCZones(t *testing.T) {
	dir := dataDir(t, "rfc-zones")
	for file, origin := range map[string]string{
		"example.com.txt":         "example.com.",
		"nsd-example.txt":         "example.com.",
		"rfc4035-appendix-A.zone": "example.",
		"rfc5155-appendix-A.zone": "example.",
		"rfc1034-6-1-edu.zone":    "edu.",
		"rfc1034-6-1-root.zone":   ".",
	} {
		if _, rep, err := compileFile(t, origin, filepath.Join(dir, file)); err != nil || rep.Records == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
}
