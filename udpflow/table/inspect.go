package table

import (
	"time"

	"github.com/dnsapp/dnsapp/server/mono"
)

// Sight is what can be seen of a flow.
type Sight struct {
	Worker  int           // that serves it, or served it last
	Age     time.Duration // since its last packet, in milliseconds; 0 for one stamped ahead of now
	Packets int           // seen since it was recorded; ManyPackets stands for as many or more
	Alive   bool          // it is served there now
	Removed bool          // it was ended or swept. Valid iff not Alive
}

// ManyPackets is where the count of a flow's packets ends.
const ManyPackets = maxPackets

// Inspect returns what can be seen of the flow, for people: of the entry that
// counts if it is alive, else of one that is still legible. It changes nothing.
// An entry of a flow that is not alive may be reused at any moment.
func (t *Table) Inspect(hash uint64, now uint32) (sight Sight, found bool) {
	for n := range uint64(probes) {
		s := t.at(hash, n)
		e, same := s.stable(hash)
		if e == 0 {
			return sight, found
		}
		if !same || e.claimed() {
			continue
		}
		alive := e.alive(now, t.idle)
		if found && !alive {
			continue
		}
		sight = Sight{
			Worker: e.worker(), Age: time.Duration(max(mono.Age(now, e.last()), 0)) * time.Millisecond,
			Packets: int(e.packets()), Alive: alive, Removed: !alive && e.freed(),
		}
		found = true
		if alive {
			return sight, true
		}
	}
	return sight, found
}

// stable returns word 1 and whether word 0 was hash under it.
func (s *slot) stable(hash uint64) (e entry, same bool) {
	for range tries {
		e = s.entry()
		same = s.hash() == hash
		if s.entry() == e {
			return e, same
		}
	}
	return e, false
}
