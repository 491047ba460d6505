package server

import (
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/reload"
)

// scanMax is the most slots, over all workers, that are scanned for one
// question: about 6 ms of the loop.
const scanMax = 4 << 20

// serving counts what a generation serves now, from its flow table and its
// counters, and how long ago the newest of its flows had a packet. It returns
// nil where that would hold up a reload.
func (s *Supervisor) serving(g *generation) (load *control.Load, newest time.Duration) {
	if s.state.Phase != reload.PhaseSteady || g.table.Slots()*len(g.workers) > scanMax {
		return nil, 0
	}
	load = new(control.Load)
	now := mono.Millis()
	for i := range g.workers {
		flows, ms := g.table.Scan(i, now)
		age := time.Duration(ms) * time.Millisecond
		if flows > 0 && (load.Flows == 0 || age < newest) {
			newest = age
		}
		load.Flows += flows
	}
	for i := range g.workers {
		load.TCP += int(s.connections(g, i))
	}
	return load, newest
}
