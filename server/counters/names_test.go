package counters

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/shm"
)

// Each counter has a name of its own.
func TestNames(t *testing.T) {
	seen := make(map[string]ID)
	for id := range numCounters {
		name := id.Name()
		if other, twice := seen[name]; twice || name == "" || strings.Contains(name, "unknown") {
			t.Errorf("counter %d is called %q, as is %d", id, name, other)
		}
		seen[name] = id
	}
	for id, want := range map[ID]string{
		Received: "received", Served: "served", Sibling: "sibling", Sent: "sent", Bursts: "bursts", KernelDrops: "kernel_drops",
		TakenBack: "taken_back", TCPAccepted: "tcp_accepted", TCPClosed: "tcp_closed", QueriesLogged: "queries_logged",
		ProxyFlows: "proxy_flows", ProxyEnded: "proxy_ended", ProxyErrors: "proxy_errors", ForwardedTo + 3: "forwarded_to/3", ForwardedFrom: "forwarded_from/0",
		Dropped + ID(DropLimit): "dropped/limit", DroppedTCP + ID(DropToServer): "dropped_tcp/to_server",
		QueryID(TCP, 28, 3):                "queries/tcp/AAAA/NXDOMAIN",
		LatencyNsID(UDP, ClassRefused):     "latency_ns/udp/REFUSED",
		LatencyID(TCP, ClassNoError, 1500): "latency/tcp/NOERROR/2000",
		LatencyID(UDP, ClassPlain, 1<<40):  "latency/udp/none/more",
	} {
		if got := id.Name(); got != want {
			t.Errorf("counter %d is called %q, want %q", id, got, want)
		}
	}
}

// A set goes on from the totals of another one, in generations and folds to come.
func TestRestore(t *testing.T) {
	set := func() *Set {
		s, err := Format(shm.Heap(RegionSize))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := set()
	for id := range numCounters {
		first.Block(1, 2).Add(id, uint64(id)+1)
	}
	// A ledger that adds up, and nothing open.
	b := first.Block(1, 2)
	before := new(Snapshot)
	live := []Live{{Slot: 1, Epoch: 1, Lanes: 3}}
	first.Read(before, live)
	b.Add(Received, uint64(-before.InHand()))
	b.Add(TCPClosed, 1)
	b.Add(ProxyEnded, 1)
	first.Read(before, live)

	second := set()
	totals := before.Totals()
	totals["of a release to come"] = 4
	second.Restore(totals)
	after := new(Snapshot)
	second.Read(after, nil)
	for id := range numCounters {
		want := before.Load(id)
		if got := after.Load(id); got != want && !(id == TCPClosed || id == ProxyEnded) {
			t.Errorf("%s: %d, want %d", id.Name(), got, want)
		}
	}
	second.Block(0, 0).Add(Sent, 5)
	second.Fold(0, 1, 1)
	second.Read(after, nil)
	if got, want := after.Load(Sent), before.Load(Sent)+5; got != want {
		t.Errorf("sent %d, want %d", got, want)
	}
}

// Totals that were read while lanes counted are made to add up, and what was open
// is closed: nobody is left who could close it.
func TestRestoreUnfinished(t *testing.T) {
	s, err := Format(shm.Heap(RegionSize))
	if err != nil {
		t.Fatal(err)
	}
	s.Restore(map[string]uint64{
		"received": 10, "served": 9, "dropped/short": 3, "tcp_accepted": 8, "tcp_closed": 5, "proxy_flows": 4, "proxy_ended": 1,
	})
	got := new(Snapshot)
	s.Read(got, nil)
	want := map[string]uint64{
		"received": 12, "served": 9, "dropped/short": 3, "tcp_accepted": 8, "tcp_closed": 8, "proxy_flows": 4, "proxy_ended": 4,
	}
	if diff := cmp.Diff(want, got.Totals()); diff != "" || got.InHand() != 0 {
		t.Errorf("in hand %d (-want +got):\n%s", got.InHand(), diff)
	}
}
