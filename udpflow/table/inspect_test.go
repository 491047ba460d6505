package table

import (
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

// Inspect sees what the owner, time and a removal make of a flow, and changes
// nothing of it.
func TestInspect(t *testing.T) {
	tb, err := Format(shm.Heap(RegionSize(1024)), 1024, time.Second, flow.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	const start = 1_000_000
	see := func(hash uint64, now uint32, want Sight, wantFound bool) {
		t.Helper()
		before := tb.at(hash, 0).entry()
		got, found := tb.Inspect(hash, now)
		if got != want || found != wantFound {
			t.Errorf("saw %+v, %v; want %+v, %v", got, found, want, wantFound)
		}
		if tb.at(hash, 0).entry() != before {
			t.Error("the entry has changed")
		}
	}
	one, two := home(7, 0), home(7, 1)
	see(one, start, Sight{}, false)

	tb.Record(one, 3, start)
	see(one, start, Sight{Worker: 3, Packets: 1, Alive: true}, true)
	see(one, start-1, Sight{Worker: 3, Packets: 1, Alive: true}, true) // a clock a millisecond behind
	see(two, start, Sight{}, false)
	tb.Record(one, 3, start+10)
	see(one, start+15, Sight{Worker: 3, Age: 5 * time.Millisecond, Packets: 2, Alive: true}, true)
	see(one, start+1010, Sight{Worker: 3, Age: time.Second, Packets: 2, Alive: true}, true)
	see(one, start+1011, Sight{Worker: 3, Age: 1001 * time.Millisecond, Packets: 2}, true)
	tb.Remove(one, 3)
	see(one, start+15, Sight{Worker: 3, Age: 5 * time.Millisecond, Packets: 2, Removed: true}, true)

	for range ManyPackets + 5 {
		tb.Record(two, 4, start)
	}
	see(two, start, Sight{Worker: 4, Packets: ManyPackets, Alive: true}, true)
}

// The entry that is alive counts, also behind one of the same flow that is not,
// and a claim in progress is passed over.
func TestInspectWhichEntry(t *testing.T) {
	tb, err := Format(shm.Heap(RegionSize(1024)), 1024, time.Second, flow.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	const now = 1_000_000
	h := home(9, 0)
	put := func(n uint64, e entry) {
		tb.at(h, n).Hash.Store(h)
		tb.at(h, n).Entry.Store(uint64(e))
	}
	put(0, newEntry(now-5000, 1))
	if got, _ := tb.Inspect(h, now); got.Worker != 1 || got.Alive {
		t.Errorf("alone, saw %+v", got)
	}
	put(1, newEntry(now, 2)|claimFlag)
	put(2, newEntry(now-7000, 3))
	if got, _ := tb.Inspect(h, now); got.Worker != 1 || got.Alive {
		t.Errorf("of the dead, saw %+v", got)
	}
	put(3, newEntry(now-10, 4))
	if got, _ := tb.Inspect(h, now); got.Worker != 4 || !got.Alive {
		t.Errorf("with one alive, saw %+v", got)
	}
}
