package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/shm"
)

// The answers from each zone are counted in its cell, whatever the order in which
// they come in a burst; answers from no zone, and drops, in none. The cells are
// the same as those of the answers one by one.
func TestZoneCounters(t *testing.T) {
	long := strings.Repeat("big TXT \""+strings.Repeat("x", 200)+"\"\n", 1)
	for i := range 5 {
		long += fmt.Sprintf("big TXT \"%d%s\"\n", i, strings.Repeat("y", 200))
	}
	s := serve(t, Options{}, "z.", apex+"a A 192.0.2.1\n"+long, "y.z.", strings.ReplaceAll(apex, "$ORIGIN z.", "$ORIGIN y.z.")+"a A 192.0.2.1\n")
	for i, z := range s.e.Zones().Zones() {
		z.Cell = uint32(1 + i)
	}
	cells, err := counters.FormatZones(shm.Heap(counters.ZonesSize))
	if err != nil {
		t.Fatal(err)
	}
	s.e.CountZones(cells)
	s.lane = s.e.NewLane(s.block)

	type query struct {
		name  string
		qtype uint16
	}
	queries := []query{
		{"a.z.", dns.TypeA}, {"a.y.z.", dns.TypeA}, {"a.z.", dns.TypeMX}, {"b.z.", dns.TypeA}, {"b.z.", dns.TypeA}, {"elsewhere.", dns.TypeA},
		{"big.z.", dns.TypeTXT}, {"a.y.z.", dns.TypeA}, {"nx.y.z.", dns.TypeA}, {"a.z.", dns.TypeA},
	}
	want := [3][counters.NumZoneCounters]uint64{1: {6, 0, 2, 1}, 2: {3, 0, 1, 0}}
	check := func(what string) {
		t.Helper()
		for cell := range want {
			for c := range counters.NumZoneCounters {
				if got := cells.Load(uint32(cell), c); got != want[cell][c] {
					t.Errorf("%s: counter %d of cell %d is %d, want %d", what, c, cell, got, want[cell][c])
				}
			}
		}
	}
	b := &burst.Burst{}
	add := func(m []byte) {
		b.Packets[b.N].Payload, b.Packets[b.N].Reply = m, make([]byte, 0, 4096)
		b.N++
	}
	for _, q := range queries {
		m, err := question(q.name, q.qtype).Pack()
		if err != nil {
			t.Fatal(err)
		}
		add(m)
	}
	add([]byte{1, 2, 3}) // short: dropped
	s.lane.ServeBurst(b)
	check("a burst")

	for _, q := range queries {
		s.exchange(question(q.name, q.qtype), counters.TCP)
	}
	want[1] = [...]uint64{6, 6, 4, 1} // nothing is cut short over TCP
	want[2] = [...]uint64{3, 3, 2, 0}
	check("one by one over TCP")
	for _, q := range queries {
		s.ask(q.name, q.qtype)
	}
	want[1] = [...]uint64{12, 6, 6, 2}
	want[2] = [...]uint64{6, 3, 3, 0}
	check("one by one over UDP")
}
