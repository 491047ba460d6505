package counters

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/shm"
)

func newSet(tb testing.TB) *Set {
	tb.Helper()
	s, err := Format(shm.Heap(RegionSize))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestAttachRefuses(t *testing.T) {
	if _, err := Attach(shm.Heap(4096)); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("unformatted region: error %v", err)
	}
	if _, err := Format(shm.Heap(RegionSize - 64)); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("region too small: error %v", err)
	}
	r := shm.Heap(RegionSize)
	r.Format(shm.KindCounters, Layout+1)
	r.Publish()
	if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("another layout: error %v", err)
	}
}

func TestBlockOutsidePanics(t *testing.T) {
	s := newSet(t)
	for _, c := range [][2]int{{-1, 0}, {NumSlots, 0}, {0, -1}, {0, MaxLanes}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("slot %d, lane %d: no panic", c[0], c[1])
				}
			}()
			s.Block(c[0], c[1])
		}()
	}
}

// ranges are all counters that are several, with how many they are.
var ranges = map[string]struct {
	first ID
	n     int
}{
	"ForwardedTo":   {ForwardedTo, NumSlots},
	"ForwardedFrom": {ForwardedFrom, NumSlots},
	"Dropped":       {Dropped, int(NumReasons)},
	"DroppedRing":   {DroppedRing, int(NumReasons)},
	"DroppedTCP":    {DroppedTCP, int(NumReasons)},
	"Queries":       {Queries, int(NumTransports) * NumTypes * NumRcodes},
	"LatencyNs":     {LatencyNs, int(NumTransports) * int(NumClasses)},
	"Latency":       {Latency, int(NumTransports) * int(NumClasses) * (NumLatency + 1)},
}

// singles are the counters that are one.
var singles = []ID{
	Received, Served, Sibling, Sent, RxBytes, TxBytes, Bursts, KernelDrops, NotRecorded, FromSibling, ServedRing,
	TakenBack, TCPAccepted, TCPClosed, TCPAcceptFailed, TCPQueries, TCPAnswers, QueriesLogged, QueriesNotLogged, ProxyFlows, ProxyEnded, ProxyOut, ProxyIn, ProxyLate, ProxyUnsent, ProxyHandoffs, ProxyHandoffLost, ProxyErrors,
}

// No two counters of a block are one, none is left over, and they fit.
func TestCountersAreApart(t *testing.T) {
	owner := make(map[ID]string)
	take := func(name string, id ID) {
		if other, ok := owner[id]; ok || id >= numCounters {
			t.Errorf("%s is counter %d, as is %q", name, id, other)
		}
		owner[id] = name
	}
	for _, id := range singles {
		take("a single", id)
	}
	for name, r := range ranges {
		for i := range r.n {
			take(name, r.first+ID(i))
		}
	}
	if len(owner) != int(numCounters) {
		t.Errorf("%d of %d counters have a name", len(owner), numCounters)
	}
	if int(numCounters) > blockWords || BlockSize%4096 != 0 {
		t.Errorf("%d counters in a block of %d bytes", numCounters, BlockSize)
	}
}

// Labels tell their values apart: metrics of one name and label would be added up.
func TestLabelsAreUnique(t *testing.T) {
	labels := map[string][]string{}
	for r := range NumReasons {
		labels["reason"] = append(labels["reason"], r.String())
	}
	for i := range NumTypes {
		labels["type"] = append(labels["type"], TypeName(i))
	}
	for i := range NumRcodes {
		labels["rcode"] = append(labels["rcode"], RcodeName(i))
	}
	for tr := range NumTransports {
		labels["transport"] = append(labels["transport"], tr.String())
	}
	for label, values := range labels {
		seen := map[string]bool{}
		for i, v := range values {
			if v == "" || v == "unknown" || seen[v] {
				t.Errorf("value %d of label %s is %q", i, label, v)
			}
			seen[v] = true
		}
	}
	if got := NumReasons.String(); got != "unknown" {
		t.Errorf("a reason that does not exist is %q", got)
	}
}

// Every type, rcode and latency has a bucket, and those counted by name their own.
func TestBuckets(t *testing.T) {
	named := map[uint16]string{1: "A", 28: "AAAA", 2: "NS", 15: "MX", 64: "SVCB", 65: "HTTPS", 255: "ANY", 257: "CAA", 0: "other", 3: "other", 258: "other", 65535: "other"}
	for qtype := range 1 << 16 {
		b := TypeBucket(uint16(qtype))
		if b < 0 || b >= NumTypes {
			t.Fatalf("type %d is in bucket %d", qtype, b)
		}
		if want, ok := named[uint16(qtype)]; ok && TypeName(b) != want {
			t.Errorf("type %d is counted as %s", qtype, TypeName(b))
		}
		for _, rcode := range []uint16{0, 3, 10, 11, 15, 16, 17, 4095, math.MaxUint16} {
			for tr := range NumTransports {
				id := QueryID(tr, uint16(qtype), rcode)
				if at := int(id - Queries); id < Queries || at/NumRcodes%NumTypes != b || at%NumRcodes != RcodeBucket(rcode) || at/NumRcodes/NumTypes != int(tr) {
					t.Fatalf("%v query of type %d with rcode %d is counter %d", tr, qtype, rcode, id)
				}
			}
		}
	}
	for rcode, want := range map[uint16]string{0: "NOERROR", 3: "NXDOMAIN", 5: "REFUSED", 10: "NOTZONE", 11: "other", 16: "BADVERS", 23: "other"} {
		if got := RcodeName(RcodeBucket(rcode)); got != want {
			t.Errorf("rcode %d is counted as %s", rcode, got)
		}
	}
	for rcode, want := range map[uint16]string{0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED", 1: "other", 16: "other", math.MaxUint16: "other"} {
		if got := ClassOf(rcode).String(); got != want {
			t.Errorf("rcode %d is of the class %s", rcode, got)
		}
	}
	for i := range NumLatency {
		bound := LatencyBound(i)
		for tr := range NumTransports {
			for c := range NumClasses {
				first := Latency + (ID(tr)*ID(NumClasses)+ID(c))*(NumLatency+1)
				if LatencyID(tr, c, bound) != first+ID(i) || LatencyID(tr, c, bound+1) != first+ID(i)+1 || LatencyFirst(tr, c) != first {
					t.Errorf("%v %v: the bound of bucket %d, %d ns, is not in it, or the next is", tr, c, i, bound)
				}
			}
		}
	}
	for _, ns := range []int64{math.MinInt64, -1, 0, 1} {
		if got := LatencyID(UDP, 0, ns); got != Latency {
			t.Errorf("%d ns is counter %d", ns, got)
		}
	}
	if got := LatencyID(UDP, 0, math.MaxInt64); got != Latency+NumLatency {
		t.Errorf("an age is counter %d", got)
	}
}

// What is added to one counter of one lane shows nowhere else.
func TestBlocksAreApart(t *testing.T) {
	s := newSet(t)
	places := [][2]int{{0, 0}, {0, 1}, {0, MaxLanes - 1}, {1, 0}, {NumSlots - 1, MaxLanes - 1}}
	ids := []ID{0, Received, Dropped, numCounters - 1}
	for i, p := range places {
		for j, id := range ids {
			s.Block(p[0], p[1]).Add(id, uint64(1+i*len(ids)+j))
		}
	}
	for i, p := range places {
		for j, id := range ids[1:] { // 0 is Received, and was added to twice
			if got := s.Block(p[0], p[1]).Load(id); id != Received && got != uint64(2+i*len(ids)+j) {
				t.Errorf("slot %d lane %d counter %d is %d", p[0], p[1], id, got)
			}
		}
	}
	var snap Snapshot
	s.Read(&snap, nil)
	if snap != (Snapshot{}) {
		t.Error("blocks of no live generation are counted")
	}
}

// in_hand is what was read and has come to no end.
func TestInHand(t *testing.T) {
	var s Snapshot
	s[Received] = 100
	if got := s.InHand(); got != 100 {
		t.Errorf("in hand: %d", got)
	}
	s[Served] = 40
	s[Sibling] = 7
	for i := range ID(NumSlots) {
		s[ForwardedTo+i] = uint64(i)
	}
	for i := range ID(NumReasons) {
		s[Dropped+i] = 1
	}
	s[ServedRing], s[FromSibling], s[DroppedRing+1], s[TakenBack] = 50, 60, 70, 80 // of others' reading
	if got, want := s.InHand(), int64(100-40-7-6-int(NumReasons)); got != want {
		t.Errorf("in hand: %d, want %d", got, want)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	b := newSet(t).Block(0, 0)
	if n := testing.AllocsPerRun(100, func() {
		b.Add(Received, 64)
		b.Add(QueryID(UDP, 28, 3), 1)
		b.Add(LatencyID(UDP, ClassNoError, 12345), 1)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// The totals are what was counted, over generations that come and go in the slots, and
// never go back.
func TestFoldAgainstModel(t *testing.T) {
	s := newSet(t)
	var epoch uint32
	var want Snapshot
	rapid.Check(t, func(t *rapid.T) {
		var gens [NumSlots]*Live
		fold := func(slot int) {
			if g := gens[slot]; g != nil {
				s.Fold(slot, g.Epoch, g.Lanes)
				gens[slot] = nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				slot := rapid.IntRange(0, NumSlots-1).Draw(t, "slot")
				fold(slot)
				epoch++
				gens[slot] = &Live{slot, epoch, rapid.IntRange(1, 3).Draw(t, "lanes")}
			},
			"count": func(t *rapid.T) {
				slot := rapid.IntRange(0, NumSlots-1).Draw(t, "slot")
				if g := gens[slot]; g != nil {
					id, n := ID(rapid.IntRange(0, int(numCounters)-1).Draw(t, "id")), rapid.Uint64Range(1, 1<<40).Draw(t, "n")
					s.Block(slot, rapid.IntRange(0, g.Lanes-1).Draw(t, "lane")).Add(id, n)
					want[id] += n
				}
			},
			"fold": func(t *rapid.T) { fold(rapid.IntRange(0, NumSlots-1).Draw(t, "slot")) },
			"": func(t *rapid.T) {
				var got Snapshot
				s.Read(&got, live(gens[:]))
				if got != want {
					t.Fatal("the totals are not what was counted")
				}
			},
		})
		for slot := range gens {
			fold(slot)
		}
	})
}

func live(gens []*Live) (l []Live) {
	for _, g := range gens {
		if g != nil {
			l = append(l, *g)
		}
	}
	return l
}
