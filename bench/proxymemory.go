package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// memoryFlows is how many flows live at once when their memory is measured: as
// many as nginx has connections for, two for each.
const memoryFlows = 8000

// measureMemory returns what a flow takes of a proxy's memory, in octets: what all
// its processes take when every flow has had its first answer, over what they took
// before.
func measureMemory(p peer, dir string, queries []load.Query) (perFlow float64, err error) {
	r, err := start(p, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	before, err := r.pss()
	if err != nil {
		return 0, err
	}
	protocol, err := load.NewDNS(queries)
	if err != nil {
		return 0, err
	}
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{target}, Flows: memoryFlows, Rate: 4000, Protocol: protocol, Once: true})
	if err != nil {
		return 0, err
	}
	defer g.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(8 * time.Second); g.Report().Answered < memoryFlows; <-tick.C {
		if time.Now().After(deadline) { // the first flows are about to end
			return 0, fmt.Errorf("not every flow was answered: %v", g.Report())
		}
	}
	after, err := r.pss()
	return (after - before) * (1 << 20) / memoryFlows, err
}

// memoryTable returns what flows take as Markdown, by the name of the proxy.
func memoryTable(perFlow map[string][]float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Memory of a flow, of %d\n\n| proxy | octets | of nginx's |\n|---|---|---|\n", memoryFlows)
	base, _, _ := spread(perFlow["nginx"])
	for _, name := range []string{"nginx", "dnsapp"} {
		mid, low, high := spread(perFlow[name])
		fmt.Fprintf(&b, "| %s | %.0f (%.0f to %.0f) | %.3f |\n", name, mid, low, high, mid/base)
	}
	b.WriteString("\nThe kernel's part, a socket of a few KiB, is the same for both and not in it.\n")
	return b.String()
}
