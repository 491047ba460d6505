package arch

import (
	"fmt"
	"slices"
	"strings"
)

// layer is what a package is for.
type layer string

const (
	mechanism  layer = "mechanism"  // knows nothing of what it is used for
	backend    layer = "backend"    // packets in and out; imported by the worker only
	configured layer = "config"     // the configuration, and what is made of it alone
	service    layer = "service"    // what is served
	worker     layer = "worker"     // puts services on lanes
	part       layer = "part"       // of the supervisor
	supervisor layer = "supervisor" // puts everything together
	command    layer = "command"
	testOnly   layer = "test" // imported by tests only
)

// below says which layers a layer may import.
var below = map[layer][]layer{
	mechanism:  {mechanism},
	backend:    {mechanism, backend},
	configured: {mechanism, configured},
	service:    {mechanism},
	worker:     {mechanism, backend, configured, service},
	part:       {mechanism, backend, configured, part},
	supervisor: {mechanism, backend, configured, service, worker, part},
	command:    {mechanism, backend, configured, service, worker, part, supervisor},
	testOnly:   {mechanism, backend, configured, service, worker, part, supervisor, testOnly},
}

// layers places folders; "/..." takes in what is below. A service that grows
// folders takes them in: its own parts may import each other.
var layers = map[string]layer{
	"internal/hold":       mechanism,
	"internal/step":       mechanism,
	"server/backend":      mechanism,
	"server/burst":        mechanism,
	"server/counters":     mechanism,
	"server/directory":    mechanism,
	"server/exit":         mechanism,
	"server/fdstore":      mechanism,
	"server/grace":        mechanism,
	"server/handover":     mechanism,
	"server/mono":         mechanism,
	"server/packet/...":   mechanism,
	"server/priority":     mechanism,
	"server/querylog":     mechanism,
	"server/shm":          mechanism,
	"server/trace":        mechanism,
	"server/spawn":        mechanism,
	"server/dns/cache":    mechanism,
	"server/dns/wire":     mechanism,
	"server/dns/zone/...": mechanism,
	"udpflow/dispatch":    mechanism,
	"udpflow/flow":        mechanism,
	"udpflow/ring":        mechanism,
	"udpflow/table":       mechanism,
	"quicroute/cid":       mechanism,

	"server/netio":         backend,
	"server/stream":        backend,
	"server/tap":           backend,
	"server/dns/transport": backend,
	"dpdk/...":             backend,

	"server/config":  configured,
	"server/logging": configured,

	"server/dns/auth/...":    service,
	"server/dns/forward/...": service,
	"server/identify":        service,
	"udpflow/proxy/...":      service,
	"tcpproxy/...":           service,
	"quicroute":              service,

	"server/worker": worker,

	"server/backend/health": part,
	"server/control":        part,
	"server/metrics":        part,
	"server/reload":         part,
	"server/statefile":      part,
	"server/trace/pcap":     part,
	"server/zones":          part,

	"server": supervisor,

	"cmd/...": command,

	"bench/...":           testOnly,
	"internal/explore":    testOnly,
	"internal/layouttest": testOnly,
	"test/...":            testOnly,
}

// place returns the layer of a folder and the entry of layers that says so.
func place(dir string) (l layer, entry string) {
	if l, ok := layers[dir]; ok {
		return l, dir
	}
	for parent := dir; parent != ""; {
		if l, ok := layers[parent+"/..."]; ok {
			return l, parent + "/..."
		}
		i := strings.LastIndexByte(parent, '/')
		parent = parent[:max(i, 0)]
	}
	return "", ""
}

// oneWay: imports point one way, and services do not know each other. Tests
// may import what they like, except that nothing imports a command.
func oneWay(t *tree, report reporter) {
	for dir, p := range t.packages {
		from, fromEntry := place(dir)
		if from == "" {
			report(p.files[0].path, 1, fmt.Sprintf("the folder %s has no layer: give it one", dir))
			continue
		}
		for _, f := range p.files {
			for _, i := range f.imports {
				target, ok := i.inModule()
				if !ok {
					continue
				}
				to, toEntry := place(target)
				switch {
				case to == "" || toEntry == fromEntry:
				case f.test && to != command:
				case !slices.Contains(below[from], to):
					report(f.path, i.line, fmt.Sprintf("%s (%s) imports %s (%s)", dir, from, target, to))
				}
			}
		}
	}
}
