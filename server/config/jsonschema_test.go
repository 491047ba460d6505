package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// The file that editors are given is what the schema says.
func TestJSONSchemaFile(t *testing.T) {
	golden(t, atRoot("configs/dnsapp.schema.json"), string(JSONSchema()))
}

// schemaFaults checks a configuration against the JSON Schema: as much of draft
// 2020-12 as JSONSchema uses.
func schemaFaults(t *testing.T, text string) []string {
	t.Helper()
	schema, err := decodedSchema()
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return []string{err.Error()}
	}
	v := validator{top: schema}
	v.check("", schema, doc)
	return v.faults
}

var decodedSchema = sync.OnceValues(func() (schema map[string]any, err error) {
	err = json.Unmarshal(JSONSchema(), &schema)
	return schema, err
})

type validator struct {
	top    map[string]any
	faults []string
}

func (v *validator) fault(at, format string, args ...any) {
	v.faults = append(v.faults, at+": "+fmt.Sprintf(format, args...))
}

// accepts reports whether a subschema accepts a value.
func (v *validator) accepts(s any, value any) bool {
	inner := validator{top: v.top}
	inner.check("", s.(map[string]any), value)
	return len(inner.faults) == 0
}

func (v *validator) check(at string, s map[string]any, value any) {
	if stamp, ok := value.(time.Time); ok { // to JSON, and to us, it is text
		value = stamp.Format(time.DateOnly)
	}
	for keyword, want := range s {
		switch keyword {
		case "$schema", "title", "description", "default", "$defs":
		case "type":
			if got := typeOf(value); got != want && !(want == "number" && got == "integer") {
				v.fault(at, "is %s, not %v", got, want)
			}
		case "properties":
			m, _ := value.(map[string]any)
			for name, sub := range want.(map[string]any) {
				if x, has := m[name]; has {
					v.check(at+"."+name, sub.(map[string]any), x)
				}
			}
		case "additionalProperties":
			m, _ := value.(map[string]any)
			for name := range m {
				if _, known := s["properties"].(map[string]any)[name]; !known {
					v.fault(at, "has the unknown key %q", name)
				}
			}
		case "required":
			m, isMap := value.(map[string]any)
			for _, name := range want.([]any) {
				if _, has := m[name.(string)]; isMap && !has {
					v.fault(at, "lacks %v", name)
				}
			}
		case "items":
			list, _ := value.([]any)
			for i, x := range list {
				v.check(fmt.Sprintf("%s[%d]", at, i), want.(map[string]any), x)
			}
		case "minItems":
			if list, is := value.([]any); is && len(list) < int(want.(float64)) {
				v.fault(at, "has %d items", len(list))
			}
		case "uniqueItems":
			list, _ := value.([]any)
			for i, x := range list {
				if slices.Contains(list[:i], x) {
					v.fault(at, "has %v twice", x)
				}
			}
		case "minLength":
			if text, is := value.(string); is && len(text) < int(want.(float64)) {
				v.fault(at, "is too short")
			}
		case "maxLength":
			if text, is := value.(string); is && len(text) > int(want.(float64)) {
				v.fault(at, "is too long")
			}
		case "pattern":
			if text, is := value.(string); is && !regexp.MustCompile(want.(string)).MatchString(text) {
				v.fault(at, "%q is not like %v", text, want)
			}
		case "minimum":
			if n, is := value.(int); is && float64(n) < want.(float64) {
				v.fault(at, "%d is too small", n)
			}
		case "maximum":
			if n, is := value.(int); is && float64(n) > want.(float64) {
				v.fault(at, "%d is too large", n)
			}
		case "enum":
			if !slices.ContainsFunc(want.([]any), func(x any) bool { return same(x, value) }) {
				v.fault(at, "%v is none of %v", value, want)
			}
		case "const":
			if !same(want, value) {
				v.fault(at, "%v is not %v", value, want)
			}
		case "anyOf":
			if !slices.ContainsFunc(want.([]any), func(x any) bool { return v.accepts(x, value) }) {
				v.fault(at, "%v is none of %v", value, want)
			}
		case "$ref":
			name := strings.TrimPrefix(want.(string), "#/$defs/")
			v.check(at, v.top["$defs"].(map[string]any)[name].(map[string]any), value)
		default:
			v.fault(at, "the keyword %s is not known to this test", keyword)
		}
	}
}

func same(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) && typeOf(a) == typeOf(b) }

func typeOf(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if x == float64(int64(x)) {
			return "integer"
		}
		return "number"
	}
	return "integer"
}

// What is shipped and documented is accepted. (What the transcripts load is, too:
// see transcribeLoad.)
func TestJSONSchemaAccepts(t *testing.T) {
	files, err := filepath.Glob(atRoot("configs/*.yaml"))
	if err != nil || files == nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if faults := schemaFaults(t, string(b)); faults != nil {
			t.Errorf("%s: %v", file, faults)
		}
	}
	if faults := schemaFaults(t, "include: conf.d/*.yaml"); faults != nil {
		t.Error(faults)
	}
}

// What can be seen to be wrong in a key alone is refused, by Load and by the JSON
// Schema.
func TestJSONSchemaRefuses(t *testing.T) {
	dir := folder(t)
	for _, text := range []string{
		"worker: 1", "workers: 0", "workers: 65", "workers: two", `workers: "2"`, "workers: 1.5", "workers: true", "workers:",
		"lanes: any", "lanes: 0", "lanes: 257", "name: 7", `name: ""`, "admin: 127.0.0.1", "admin: host:53", "datapath: xdp",
		"expose_generation: yes", "expose_generation: 1", "log: info", "log: {level: loud}", "log: {levl: info}",
		"reload: {udp_idle: 5}", "reload: {udp_idle: fast}", "reload: {flow_table: 1000}", "reload: {mode: slow}", "reload: []",
		"dns: {max_udp_size: 511}", "dns: {minimal_responses: no}", "zones: {}", "zones: [{}]", "zones: [{name: a.example}]",
		"zones: [text]", "zones: [{name: a, file: 7}]", "include: 7", "include: {}", "include: [7]", `include: ""`,
	} {
		text += "\n" + who
		if _, err := loadText(t, dir, "test.yaml", text, testSystem()); err == nil {
			t.Errorf("Load accepts %s", text)
		}
		if schemaFaults(t, text) == nil {
			t.Errorf("the JSON Schema accepts %s", text)
		}
	}
	for _, text := range []string{
		"name: a", "listeners: []", "listeners: {}", "listeners: [{}]",
		`listeners: [{name: who, address: [], service: identify}]`,
		`listeners: [{name: who, address: ["127.0.0.1:53"], service: none}]`,
		`listeners: [{name: who, address: "127.0.0.1:53", service: identify}]`,
		`listeners: [{name: who, address: ["[::1"], service: identify}]`,
		`listeners: [{name: w ho, address: ["127.0.0.1:53"], service: identify}]`,
		`listeners: [{name: who, address: ["127.0.0.1:53"], service: identify, transport: []}]`,
		`listeners: [{name: who, address: ["127.0.0.1:53"], service: identify, transport: [udp, udp]}]`,
		`listeners: [{name: who, address: ["127.0.0.1:53"], service: identify, affinity: some}]`,
	} {
		if _, err := loadText(t, dir, "test.yaml", text, testSystem()); err == nil {
			t.Errorf("Load accepts %s", text)
		}
		if schemaFaults(t, text) == nil {
			t.Errorf("the JSON Schema accepts %s", text)
		}
	}
}
