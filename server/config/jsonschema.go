package config

import (
	"bytes"
	"encoding/json"
	"fmt"

	"gopkg.in/yaml.v3"
)

// JSONSchema returns the schema as a JSON Schema (draft 2020-12), for editors and
// for those who generate configurations. It accepts every file that Load accepts.
// Load refuses more: rules between keys, addresses and domain names in their
// details, what does not exist on this machine.
func JSONSchema() []byte {
	top := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "dnsapp configuration"},
	}
	top = append(top, objectSchema(root())...)
	top = append(top,
		// What must be written may be in an included file.
		member{"anyOf", []object{{{"required", required(root())}}, {{"required", []string{"include"}}}}},
		member{"$defs", object{{"environment", object{
			{"description", "A value from the environment."},
			{"type", "string"},
			{"pattern", `\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`},
		}}}},
	)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(top); err != nil {
		panic(fmt.Sprintf("config: encoding the JSON Schema: %v", err)) // it is made of plain values
	}
	return b.Bytes()
}

// object is a JSON object whose members keep their order, which is the order in
// which people read them.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// objectSchema describes a mapping with the keys of k.
func objectSchema(k *key) object {
	var properties object
	for _, c := range k.keys {
		properties = append(properties, member{c.name, keySchema(c)})
	}
	s := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if list := required(k); len(list) > 0 && k != root() {
		s = append(s, member{"required", list})
	}
	return s
}

func required(k *key) []string {
	var list []string
	for _, c := range k.keys {
		if c.required {
			list = append(list, c.name)
		}
	}
	return list
}

// keySchema describes the value of a key, in words and by what it accepts.
func keySchema(k *key) object {
	s := object{{"description", k.doc}}
	switch k.kind {
	case kindObject:
		return append(s, objectSchema(k)...)
	case kindObjects:
		s = append(s, member{"type", "array"}, member{"items", objectSchema(k)})
		if k.required {
			s = append(s, member{"minItems", 1})
		}
	default:
		s[0].value = k.doc + " Write " + k.accepts() + "."
		s = append(s, valueSchema(k)...)
	}
	if k.def != "" {
		var def any
		if err := yaml.Unmarshal([]byte(k.def), &def); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", k.path, err))
		}
		s = append(s, member{"default", def})
	}
	return s
}

// duration is what time.ParseDuration accepts.
const duration = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// address is, but for the details, what netip.ParseAddrPort accepts.
const address = `^(\[[^\]]+\]|[0-9.]+):[0-9]{1,5}$`

// host is, but for the details, what netip.ParseAddr accepts.
const host = `^[0-9A-Fa-f:.]+(%.+)?$`

// prefix is, but for the details, what netip.ParsePrefix accepts, and neighbour an
// address and a link address.
const (
	prefix    = `^[0-9A-Fa-f:.]+/[0-9]{1,3}$`
	neighbour = `^[0-9A-Fa-f:.]+ +[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$`
)

// valueSchema describes what may be written for k. Whatever is more than text
// may also come from the environment.
func valueSchema(k *key) object {
	text := object{{"type", "string"}}
	pattern := func(p string) object { return object{{"type", "string"}, {"pattern", p}} }
	whole := object{{"type", "integer"}, {"minimum", k.min}, {"maximum", k.max}}
	switch k.kind {
	case kindText, kindPath, kindFile, kindSocket, kindDomain, kindGlob:
		return append(text, member{"minLength", 1})
	case kindNoPath:
		return text
	case kindNoText:
		return append(text, member{"maxLength", k.max})
	case kindHost:
		return orEnvironment(pattern(host))
	case kindHosts:
		return object{{"type", "array"}, {"uniqueItems", true}, {"items", orEnvironment(pattern(host))}}
	case kindPrefixes:
		return object{{"type", "array"}, {"uniqueItems", true}, {"items", orEnvironment(pattern(prefix))}}
	case kindNeighbours:
		return object{{"type", "array"}, {"uniqueItems", true}, {"items", orEnvironment(pattern(neighbour))}}
	case kindLabel:
		return orEnvironment(pattern(fmt.Sprintf("^[A-Za-z0-9._-]{1,%d}$", k.max)))
	case kindGlobs:
		one := append(text, member{"minLength", 1})
		return object{{"anyOf", []object{one, {{"type", "array"}, {"items", one}}}}}
	case kindAddr, kindServer:
		return orEnvironment(pattern(address))
	case kindAddrs:
		return object{{"type", "array"}, {"minItems", 1}, {"items", orEnvironment(pattern(address))}}
	case kindAdmin:
		return orEnvironment(pattern(address), object{{"enum", []string{"", "off"}}})
	case kindInt:
		return orEnvironment(whole)
	case kindLanes:
		return orEnvironment(object{{"const", "auto"}}, whole)
	case kindSlots:
		var powers []int64
		for n := k.min; n <= k.max; n *= 2 {
			powers = append(powers, n)
		}
		return orEnvironment(object{{"enum", powers}})
	case kindBool:
		return orEnvironment(object{{"type", "boolean"}})
	case kindDuration:
		return orEnvironment(pattern(duration))
	case kindWord:
		return orEnvironment(object{{"enum", k.words}})
	case kindObject, kindObjects: // see keySchema
	case kindWords:
		return object{
			{"type", "array"}, {"minItems", 1}, {"uniqueItems", true}, {"items", orEnvironment(object{{"enum", k.words}})},
		}
	}
	panic("config: no JSON Schema of the value of " + k.path)
}

// orEnvironment accepts any of choices, or a value from the environment.
func orEnvironment(choices ...object) object {
	return object{{"anyOf", append(choices, object{{"$ref", "#/$defs/environment"}})}}
}
