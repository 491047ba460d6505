package auth

import (
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// tally gathers what answers in a row add to the counters of one zone, so that a
// burst for one zone adds to words that all lanes share once.
type tally struct {
	cell uint32
	by   counters.ZoneCounter // ZoneUDP or ZoneTCP

	answers, nxdomain, truncated uint64
}

// countZone counts an answer from a zone, which may be nil.
func (l *Lane) countZone(z *zone.Zone, by counters.ZoneCounter, rcode wire.RCODE, answer []byte) {
	if z == nil || l.e.counts == nil {
		return
	}
	t := &l.tally
	if z.Cell != t.cell || by != t.by {
		t.flush(l.e.counts)
		t.cell, t.by = z.Cell, by
	}
	t.answers++
	if rcode == wire.NXDomain {
		t.nxdomain++
	}
	if wire.Header(answer).TC() {
		t.truncated++
	}
}

// flush adds what was gathered to the counters.
func (t *tally) flush(to *counters.Zones) {
	if t.answers == 0 {
		return
	}
	to.Add(t.cell, t.by, t.answers)
	to.Add(t.cell, counters.ZoneNXDomain, t.nxdomain)
	to.Add(t.cell, counters.ZoneTruncated, t.truncated)
	t.answers, t.nxdomain, t.truncated = 0, 0, 0
}
