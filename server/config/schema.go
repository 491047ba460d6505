package config

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/server/directory"
)

// kind is the type of a value.
type kind int

const (
	kindText       kind = iota // printable characters, setting.max octets at most
	kindNoText                 // kindText, or "" for none
	kindLabel                  // a name for logs, metrics and commands
	kindPath                   // absolute, or relative to the folder of the file
	kindFile                   // kindPath of a file that can be read
	kindSocket                 // kindPath that a socket can be bound to
	kindNoPath                 // kindPath, or "" for none
	kindAddr                   // IP address and port
	kindAddrs                  // list of kindAddr
	kindServer                 // kindAddr of another host
	kindHost                   // IP address
	kindHosts                  // list of kindHost, none twice
	kindPrefix                 // IP address and prefix length
	kindPrefixes               // list of kindPrefix, none twice
	kindNeighbour              // IP address and link address
	kindNeighbours             // list of kindNeighbour, none twice
	kindAdmin                  // kindAddr, or off
	kindInt                    // setting.min .. setting.max
	kindLanes                  // kindInt, or auto (decoded as 0)
	kindSlots                  // kindInt that is a power of two
	kindBool                   //
	kindDuration               // setting.min .. setting.max nanoseconds
	kindGlob                   // kindPath that may have wildcards
	kindGlobs                  // kindGlob, or a list of them
	kindWord                   // one of setting.words
	kindWords                  // list of kindWord, none twice
	kindDomain                 // a domain name
	kindObject                 // keys below it
	kindObjects                // list of kindObject
)

// setting describes one key. The table of them is the schema.
type setting struct {
	path     string // "reload.udp_idle"; "[]" after a list: "zones[].name"
	kind     kind
	def      string   // the default in YAML; "": none
	derived  string   // the default in words, when it is not a constant
	required bool     // must be written
	min, max int64    // of numbers, of durations (nanoseconds), max of text (octets)
	words    []string // what kindWord and kindWords accept
	sample   string   // YAML for the reference file when def does not serve
	doc      string   // one or more sentences

	sometimes bool // only some entries of its list may have it

	frozen string // why a reload cannot change it; "": it can
}

// Limits that other packages set by their shared memory layouts.
const (
	maxWorkers = directory.MaxWorkers
	maxLanes   = directory.MaxLanes
	maxSockets = directory.MaxSockets
)

// autoLanes is the most lanes that "auto" makes, over all workers.
const autoLanes = 8

// maxName leaves room in the 255 octets of a TXT string for the rest of the
// identify text.
const maxName = 128

// maxSocketPath is what sockaddr_un holds, less the closing NUL.
const maxSocketPath = 107

const (
	frozenSupervisor = "the supervisor took it when it started"
	frozenPrimary    = "dnsapp primary made it when it started"
)

// key is a setting at its place in the tree of keys.
type key struct {
	*setting
	name string // last part of the path
	keys []*key // below an object, in the order of the schema
}

// root returns the tree of the schema: the whole file. A worker, whose start is waited
// for, needs none.
var root = sync.OnceValue(func() *key { return tree(schema) })

func tree(settings []setting) *key {
	top := &key{setting: &setting{kind: kindObject, doc: "the file"}}
	byPath := map[string]*key{"": top}
	for i := range settings {
		s := &settings[i]
		parent, name := "", s.path
		if dot := strings.LastIndexByte(s.path, '.'); dot >= 0 {
			parent, name = strings.TrimSuffix(s.path[:dot], "[]"), s.path[dot+1:]
		}
		k := &key{setting: s, name: name}
		byPath[s.path] = k
		byPath[parent].keys = append(byPath[parent].keys, k)
	}
	return top
}

// keyAt returns the key with a path of the schema.
func keyAt(path string) *key {
	k := root()
	for name := range strings.SplitSeq(path, ".") {
		k = k.child(name)
	}
	return k
}

func (k *key) child(name string) *key {
	for _, c := range k.keys {
		if c.name == name {
			return c
		}
	}
	return nil
}

// accepts says, in a few words, what may be written for k.
func (k *key) accepts() string {
	switch k.kind {
	case kindText:
		return fmt.Sprintf("text of 1 to %d octets", k.max)
	case kindNoText:
		return fmt.Sprintf("text of at most %d octets", k.max)
	case kindLabel:
		return fmt.Sprintf("1 to %d letters, digits, '-', '_' and '.'", k.max)
	case kindPath, kindFile, kindSocket:
		return "a path"
	case kindNoPath:
		return `a path, or "" for none`
	case kindGlob, kindGlobs:
		return "a path that may have wildcards, such as conf.d/*.yaml, or a list of them"
	case kindAddr:
		return `an address with its port, such as "127.0.0.1:53" or "[::1]:53"`
	case kindServer:
		return `an address with its port, such as "192.0.2.1:9000" or "[2001:db8::1]:9000"`
	case kindAddrs:
		return `a list of addresses with their ports, such as ["127.0.0.1:53", "[::1]:53"]`
	case kindHost:
		return `an address without a port, such as "192.0.2.1" or "2001:db8::1"`
	case kindHosts:
		return `a list of addresses without ports, such as ["192.0.2.1", "2001:db8::1"]`
	case kindPrefix, kindPrefixes:
		return `a list of addresses with prefix lengths, such as ["192.0.2.1/24", "2001:db8::1/64"]`
	case kindNeighbour, kindNeighbours:
		return `a list of addresses with link addresses, such as ["192.0.2.254 02:00:5e:00:53:01"]`
	case kindAdmin:
		return `an address with its port, such as "127.0.0.1:9153", or off`
	case kindInt:
		return fmt.Sprintf("a whole number from %d to %d", k.min, k.max)
	case kindLanes:
		return fmt.Sprintf("auto, or a whole number from %d to %d", k.min, k.max)
	case kindSlots:
		return fmt.Sprintf("a power of two from %d to %d", k.min, k.max)
	case kindBool:
		return "true or false"
	case kindDuration:
		return fmt.Sprintf("a duration from %s to %s, such as 500ms, 10s or 5m", shortDuration(time.Duration(k.min)), shortDuration(time.Duration(k.max)))
	case kindWord:
		return oneOf(k.words)
	case kindWords:
		return "a list of one or more of " + strings.Join(k.words, ", ")
	case kindDomain:
		return "a domain name, such as example.com"
	case kindObject:
		return "keys and values, such as " + k.keys[0].name + ": " + k.keys[0].def
	case kindObjects:
		return "a list of entries " + k.entry()
	}
	return ""
}

// entry returns the shortest entry of a list of objects.
func (k *key) entry() string {
	var parts []string
	for _, c := range k.keys {
		if c.required {
			parts = append(parts, c.name+": "+c.sample)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// oneOf joins words as "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// shortDuration writes d as people do: 1h and not 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
