package control

import (
	"maps"

	"github.com/dnsapp/dnsapp/server/counters"
)

// Ledger says what became of every packet. While no lane is in the middle of a
// burst,
//
//	received = served + sibling + forwarded + sum(dropped) + in_hand
//	ring_taken = ring_served + sum(ring_dropped)
type Ledger struct {
	Received  uint64            `json:"received"`  // datagrams read from the wire
	Served    uint64            `json:"served"`    // by the worker that read them
	Sibling   uint64            `json:"sibling"`   // handed to another worker of the generation
	Forwarded uint64            `json:"forwarded"` // handed to a draining generation
	Dropped   map[string]uint64 `json:"dropped"`   // by reason; only what is not zero
	InHand    int64             `json:"in_hand"`   // read and not accounted for

	RingTaken   uint64            `json:"ring_taken"`  // datagrams taken from rings, by siblings and draining generations
	RingServed  uint64            `json:"ring_served"` // of them, answered or consumed
	RingDropped map[string]uint64 `json:"ring_dropped"`

	KernelDropped uint64 `json:"kernel_dropped"` // datagrams lost in socket buffers: full, or of nobody who lives

	TCPAccepted uint64            `json:"tcp_accepted"` // connections
	TCPClosed   uint64            `json:"tcp_closed"`
	TCPQueries  uint64            `json:"tcp_queries"` // messages read from connections
	TCPAnswers  uint64            `json:"tcp_answers"`
	TCPDropped  map[string]uint64 `json:"tcp_dropped"` // messages without an answer, by reason
}

// LedgerOf returns the ledger in a snapshot of the counters.
func LedgerOf(s *counters.Snapshot) Ledger {
	l := Ledger{
		Received:      s.Load(counters.Received),
		Served:        s.Load(counters.Served),
		Sibling:       s.Load(counters.Sibling),
		Dropped:       reasons(s, counters.Dropped),
		InHand:        s.InHand(),
		RingTaken:     s.Load(counters.FromSibling) + s.Load(counters.TakenBack),
		RingServed:    s.Load(counters.ServedRing),
		RingDropped:   reasons(s, counters.DroppedRing),
		KernelDropped: s.Load(counters.KernelDrops),
		TCPAccepted:   s.Load(counters.TCPAccepted),
		TCPClosed:     s.Load(counters.TCPClosed),
		TCPQueries:    s.Load(counters.TCPQueries),
		TCPAnswers:    s.Load(counters.TCPAnswers),
		TCPDropped:    reasons(s, counters.DroppedTCP),
	}
	for i := range counters.ID(counters.NumSlots) {
		l.Forwarded += s.Load(counters.ForwardedTo + i)
		l.RingTaken += s.Load(counters.ForwardedFrom + i)
	}
	return l
}

// reasons returns the non-zero counters of a range indexed by Reason.
func reasons(s *counters.Snapshot, first counters.ID) map[string]uint64 {
	m := map[string]uint64{}
	for r := range counters.NumReasons {
		if n := s.Load(first + counters.ID(r)); n != 0 {
			m[r.String()] = n
		}
	}
	return m
}

// Since returns what l counted after o, an earlier ledger of the same
// counters.
func (l Ledger) Since(o Ledger) Ledger {
	l.Received -= o.Received
	l.Served -= o.Served
	l.Sibling -= o.Sibling
	l.Forwarded -= o.Forwarded
	l.Dropped = since(l.Dropped, o.Dropped)
	l.InHand -= o.InHand
	l.RingTaken -= o.RingTaken
	l.RingServed -= o.RingServed
	l.RingDropped = since(l.RingDropped, o.RingDropped)
	l.KernelDropped -= o.KernelDropped
	l.TCPAccepted -= o.TCPAccepted
	l.TCPClosed -= o.TCPClosed
	l.TCPQueries -= o.TCPQueries
	l.TCPAnswers -= o.TCPAnswers
	l.TCPDropped = since(l.TCPDropped, o.TCPDropped)
	return l
}

func since(now, then map[string]uint64) map[string]uint64 {
	d := make(map[string]uint64, len(now))
	maps.Copy(d, now)
	for r, n := range then {
		d[r] -= n
	}
	maps.DeleteFunc(d, func(_ string, n uint64) bool { return n == 0 })
	return d
}
