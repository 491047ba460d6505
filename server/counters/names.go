package counters

import (
	"fmt"
	"sync"
)

// plainNames are the names of the counters before ForwardedTo, in their order.
var plainNames = [ForwardedTo]string{
	"received", "served", "sibling", "sent", "rx_bytes", "tx_bytes", "bursts", "kernel_drops", "not_recorded",
	"from_sibling", "served_ring", "taken_back", "tcp_accepted", "tcp_closed", "tcp_accept_failed", "tcp_queries",
	"tcp_answers", "queries_logged", "queries_not_logged", "proxy_flows", "proxy_ended", "proxy_out", "proxy_in",
	"proxy_late", "proxy_unsent", "proxy_handoffs", "proxy_handoff_lost", "proxy_errors",
}

// names returns the name of each counter. A name keeps its meaning over all layouts.
// Only a supervisor needs them: a worker is started without.
var names = sync.OnceValue(makeNames)

// byName returns the counter of each name.
var byName = sync.OnceValue(func() map[string]ID {
	m := make(map[string]ID, numCounters)
	for id, name := range names() {
		m[name] = ID(id)
	}
	return m
})

func makeNames() *[numCounters]string {
	all := new([numCounters]string)
	copy(all[:], plainNames[:])
	for i := range ID(NumSlots) {
		all[ForwardedTo+i] = fmt.Sprintf("forwarded_to/%d", i)
		all[ForwardedFrom+i] = fmt.Sprintf("forwarded_from/%d", i)
	}
	for r := range NumReasons {
		all[Dropped+ID(r)] = "dropped/" + r.String()
		all[DroppedRing+ID(r)] = "dropped_ring/" + r.String()
		all[DroppedTCP+ID(r)] = "dropped_tcp/" + r.String()
	}
	for t := range NumTransports {
		first := Queries + ID(t)*NumTypes*NumRcodes
		for i := range ID(NumTypes * NumRcodes) {
			all[first+i] = fmt.Sprintf("queries/%v/%s/%s", t, TypeName(int(i/NumRcodes)), RcodeName(int(i%NumRcodes)))
		}
		for c := range NumClasses {
			all[LatencyNsID(t, c)] = fmt.Sprintf("latency_ns/%v/%v", t, c)
			for i := range ID(NumLatency) {
				all[LatencyFirst(t, c)+i] = fmt.Sprintf("latency/%v/%v/%d", t, c, LatencyBound(int(i)))
			}
			all[LatencyFirst(t, c)+NumLatency] = fmt.Sprintf("latency/%v/%v/more", t, c)
		}
	}
	return all
}

// Name returns what the counter is called where it must be known to another release.
func (id ID) Name() string { return names()[id] }

// Totals returns the counters that are not zero, by Name.
func (s *Snapshot) Totals() map[string]uint64 {
	m := make(map[string]uint64)
	for id, n := range s {
		if n != 0 {
			m[names()[id]] = n
		}
	}
	return m
}

// Restore makes totals, of an instance that has ended, what s goes on from. Names
// that are not known here are ignored. No generation may have been opened yet.
//
// The totals may have been read while lanes counted, and whoever they count is gone:
// what was answered was received, and connections and flows have ended.
func (s *Set) Restore(totals map[string]uint64) {
	snap := new(Snapshot)
	for name, n := range totals {
		if id, ok := byName()[name]; ok {
			snap[id] = n
		}
	}
	if n := snap.InHand(); n < 0 {
		snap[Received] += uint64(-n)
	}
	snap[TCPClosed] = max(snap[TCPClosed], snap[TCPAccepted])
	snap[ProxyEnded] = max(snap[ProxyEnded], snap[ProxyFlows])
	carry := s.carry(s.head.Seq.Load())
	for id, n := range snap {
		carry.w[id].Store(n)
	}
}
