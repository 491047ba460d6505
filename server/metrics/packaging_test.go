package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// exprs returns the PromQL in a document: the values of every "expr".
func exprs(v any) (list []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok && k == "expr" {
				list = append(list, s)
				continue
			}
			list = append(list, exprs(e)...)
		}
	case []any:
		for _, e := range v {
			list = append(list, exprs(e)...)
		}
	}
	return list
}

var (
	nameInExpr    = regexp.MustCompile(`\bdnsapp_[a-z_]+`)
	matchedInExpr = regexp.MustCompile(`\b(dnsapp_[a-z_]+)\{([^}]*)\}`)
	labelInMatch  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
)

// The alerts and the dashboard ask for what there is: names of families, with
// labels that those have.
func TestPackaging(t *testing.T) {
	known := map[string]*family{}
	for _, s := range sections {
		for _, f := range s.families {
			known[f.name] = f
			if f.kind == histogramKind {
				known[f.name+"_bucket"] = f
			}
		}
	}
	for file, decode := range map[string]func([]byte, any) error{
		"prometheus/dnsapp.rules.yaml": yaml.Unmarshal, "grafana/dnsapp.json": json.Unmarshal,
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "packaging", file))
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := decode(b, &doc); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list := exprs(doc)
		if len(list) < 9 {
			t.Errorf("%s: only %d expressions", file, len(list))
		}
		for _, e := range list {
			names := nameInExpr.FindAllString(e, -1)
			if len(names) == 0 || strings.Count(e, "(") != strings.Count(e, ")") {
				t.Errorf("%s: %s: not an expression about dnsapp", file, e)
			}
			for _, name := range names {
				if known[name] == nil {
					t.Errorf("%s: %s: there is no %s", file, e, name)
				}
			}
			for _, m := range matchedInExpr.FindAllStringSubmatch(e, -1) {
				for _, l := range labelInMatch.FindAllStringSubmatch(m[2], -1) {
					if f := known[m[1]]; f != nil && l[1] != "instance" && !slices.Contains(f.labels, l[1]) {
						t.Errorf("%s: %s: %s has no label %s", file, e, m[1], l[1])
					}
				}
			}
		}
	}
}
