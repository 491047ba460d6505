package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/directory"
)

// kind is the type of a value.
type kind int

const (
	kindText     kind = iota // printable characters, setting.max octets at most
	kindLabel                // a name for logs, metrics and commands
	kindPath                 // absolute, or relative to the folder of the file
	kindFile                 // kindPath of a file that can be read
	kindSocket               // kindPath that a socket can be bound to
	kindNoPath               // kindPath, or "" for none
	kindAddr                 // IP address and port
	kindAddrs                // list of kindAddr
	kindAdmin                // kindAddr, or off
	kindInt                  // setting.min .. setting.max
	kindLanes                // kindInt, or auto (decoded as 0)
	kindSlots                // kindInt that is a power of two
	kindBool                 //
	kindDuration             // setting.min .. setting.max nanoseconds
	kindGlob                 // kindPath that may have wildcards
	kindGlobs                // kindGlob, or a list of them
	kindWord                 // one of setting.words
	kindWords                // list of kindWord, none twice
	kindDomain               // a domain name
	kindObject               // keys below it
	kindObjects              // list of kindObject
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
	frozen   string   // why a reload cannot change it; "": it can
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
)

var schema = []setting{
	{
		path: "name", kind: kindText, max: maxName, derived: "the host name", sample: "edge-1",
		doc: "Free text that names this server in status and in the answers of identify.",
	},
	{
		path: "control", kind: kindSocket, def: "/run/dnsapp/control.sock", frozen: frozenSupervisor,
		doc: "Unix socket that dnsappctl talks to. Its folder is made with mode 0700 if it is missing, " +
			"and locked: a second server on it is refused.",
	},
	{
		path: "admin", kind: kindAdmin, def: "127.0.0.1:9153", frozen: frozenSupervisor,
		doc: "Where /metrics, /healthz and /readyz are served, over HTTP. Nothing protects them: keep the address private.",
	},
	{
		path: "pid_file", kind: kindNoPath, def: `""`, frozen: frozenSupervisor,
		doc: "File that holds the process id of the supervisor while it runs.",
	},
	{
		path: "state_dir", kind: kindPath, def: "/var/lib/dnsapp", frozen: frozenSupervisor,
		doc: "Folder of what must outlive a stop, such as secrets. It is made with mode 0700 if it is missing.",
	},
	{
		path: "user", kind: kindText, max: 64, def: "nobody", frozen: frozenSupervisor,
		doc: "User name, or numeric user id, that workers and zone compilers run as. It has an effect only when started as root.",
	},
	{
		path: "workers", kind: kindInt, def: "1", min: 1, max: maxWorkers,
		doc: "Processes of a generation.",
	},
	{
		path: "lanes", kind: kindLanes, def: "auto", min: 1, max: maxLanes,
		doc: fmt.Sprintf("Receive loops of a worker. auto: the processors, %d at most, shared out over the workers, and at least 1. "+
			"workers times lanes is at most %d.", autoLanes, maxLanes),
	},
	{
		path: "datapath", kind: kindWord, def: string(Sockets), words: []string{string(Sockets), string(DPDK)},
		frozen: "workers of both cannot hand over to each other",
		doc:    "How packets reach the workers: by kernel sockets, or by DPDK, which needs a binary built with the dpdk tag.",
	},
	{
		path: "expose_generation", kind: kindBool, def: "false",
		doc: "Answer TXT queries of class CHAOS for generation.dnsapp. with the generation, worker and lane that serves them.",
	},

	{
		path: "include", kind: kindGlobs, def: "[]",
		doc: "Files that are taken in as if they were written here, in the order of their names; the path may have *, ? and [...]. " +
			"The lists zones and listeners are joined; any other key may be written in one file only.",
	},

	{path: "log", kind: kindObject, doc: "What is logged, to standard error."},
	{
		path: "log.level", kind: kindWord, def: "info", words: []string{"debug", "info", "warn", "error"},
		doc: "The least severe level that is logged.",
	},
	{
		path: "log.format", kind: kindWord, def: "text", words: []string{"text", "json"},
		doc: "Lines for people, or one JSON object a line.",
	},

	{path: "reload", kind: kindObject, doc: "How one generation replaces another."},
	{
		path: "reload.mode", kind: kindWord, def: string(Graceful), words: []string{string(Graceful), string(Restart)},
		frozen: "the two bind their sockets in different ways",
		doc: "graceful keeps every flow with the generation that began it. " +
			"restart stops the old workers and starts new ones, which loses packets: it is there to compare with.",
	},
	{
		path: "reload.overlap", kind: kindWord, def: string(FinishOldest), words: []string{string(FinishOldest), string(RefuseOverlap)},
		doc: fmt.Sprintf("What a reload does when %d generations live, the most there can be. finish-oldest ends the drain of the oldest one, "+
			"as its deadline would, and goes on when it is gone. refuse refuses the reload.", directory.MaxSlots),
	},
	{
		path: "reload.udp_idle", kind: kindDuration, def: "10s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A UDP flow without a packet for this long is over, and no longer kept with its generation.",
	},
	{
		path: "reload.shutdown_timeout", kind: kindDuration, def: "90s", min: 0, max: int64(24 * time.Hour),
		doc: "The longest that an old generation drains. What it still serves then is handed over to the new one.",
	},
	{
		path: "reload.ready_timeout", kind: kindDuration, def: "60s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A reload is given up, and the old generation serves on, when the new workers are not ready after this long.",
	},
	{
		path: "reload.heartbeat_timeout", kind: kindDuration, def: "1s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
		doc: "A worker that is asked for a sign of life, and stands still for this long, is killed and started again.",
	},
	{
		path: "reload.flow_table", kind: kindSlots, def: "65536", min: 1 << 10, max: 16 << 20,
		doc: "UDP flows that a generation can keep. A slot takes 16 octets of shared memory.",
	},

	{path: "dns", kind: kindObject, doc: "What all DNS listeners share."},
	{
		path: "dns.max_udp_size", kind: kindInt, def: "1232", min: 512, max: 4096,
		doc: "Octets of the largest answer over UDP. The default avoids fragments on any IPv6 path.",
	},
	{
		path: "dns.minimal_responses", kind: kindBool, def: "true",
		doc: "Leave out authority and additional data that no resolver needs: answers are smaller and cost less.",
	},
	{
		path: "dns.tcp_idle", kind: kindDuration, def: "10s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A TCP connection without a query for this long is closed (RFC 7766 section 6.2.3).",
	},
	{
		path: "dns.tcp_connections", kind: kindInt, def: "10000", min: 1, max: 1_000_000,
		doc: "Open TCP connections that a worker allows; fewer where the limit of open files is lower.",
	},
	{
		path: "dns.tcp_client_connections", kind: kindInt, def: "1000", min: 1, max: 1_000_000,
		doc: "Open TCP connections that a worker allows for one client: an IPv4 address, or an IPv6 network of 64 bits.",
	},
	{
		path: "dns.tcp_lifetime", kind: kindDuration, def: "1h", min: int64(time.Second), max: int64(7 * 24 * time.Hour),
		doc: "A TCP connection that is this old is closed when it pauses, and soon in any case.",
	},
	{path: "dns.query_log", kind: kindObject, doc: "A sample of the answered queries, one JSON object a line."},
	{
		path: "dns.query_log.file", kind: kindNoPath, def: `""`,
		doc: "The file that they are appended to; a reload opens it anew. What it does not take in time is dropped and counted.",
	},
	{
		path: "dns.query_log.sample", kind: kindInt, def: "100", min: 1, max: 1_000_000_000,
		doc: "One query in so many is logged, at random.",
	},

	{path: "zones", kind: kindObjects, def: "[]", doc: "Zones that the DNS listeners answer from."},
	{
		path: "zones[].name", kind: kindDomain, required: true, sample: "example.com",
		doc: "Domain name of the apex. It is absolute, with or without the closing dot, and case does not matter. No two zones may have the same one.",
	},
	{
		path: "zones[].file", kind: kindFile, required: true, sample: "zones/example.com.zone",
		doc: "Master file (RFC 1035 section 5).",
	},

	{path: "listeners", kind: kindObjects, required: true, doc: "Addresses that are served. There must be at least one."},
	{
		path: "listeners[].name", kind: kindLabel, required: true, sample: "dns", max: 63,
		doc: "Names the listener in logs, metrics and commands. No two listeners may have the same one.",
	},
	{
		path: "listeners[].address", kind: kindAddrs, required: true, sample: `["127.0.0.1:5353", "[::1]:5353"]`,
		doc: "Addresses to serve, each with its port. Quote IPv6 addresses. 0.0.0.0 is every IPv4 address of the host, [::] every IPv6 one " +
			"(and no IPv4 one). An address and port may be served once for each transport: neither twice, nor beside 0.0.0.0 or [::] with the same port.",
	},
	{
		path: "listeners[].transport", kind: kindWords, def: "[udp, tcp]", words: []string{"udp", "tcp"},
		doc: "Protocols to serve on each address.",
	},
	{
		path: "listeners[].service", kind: kindWord, required: true, words: []string{string(ServiceDNS), string(ServiceIdentify)}, sample: "dns",
		doc: "dns answers queries from the zones. " +
			"identify answers every datagram, and every line on TCP, with the generation, worker and lane that serves it.",
	},
	{
		path: "listeners[].affinity", kind: kindWord, derived: "none for dns, flow for identify", sample: "none",
		words: []string{string(AffinityFlow), string(AffinityNone)},
		doc: "flow: a UDP flow stays, over reloads, with the generation that began it. " +
			"none: the newest generation answers every datagram, which is right where one datagram knows nothing of the last.",
	},
}

// key is a setting at its place in the tree of keys.
type key struct {
	*setting
	name string // last part of the path
	keys []*key // below an object, in the order of the schema
}

// root is the tree of the schema: the whole file.
var root = tree(schema)

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
	case kindAddrs:
		return `a list of addresses with their ports, such as ["127.0.0.1:53", "[::1]:53"]`
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
