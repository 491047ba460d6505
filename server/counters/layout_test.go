package counters

import (
	"fmt"
	"testing"

	"github.com/dnsapp/dnsapp/internal/layouttest"
	"github.com/dnsapp/dnsapp/server/directory"
)

func TestLayout(t *testing.T) {
	var d layouttest.Dump
	d.Struct("head", &head{})
	d.Struct("Block", &Block{})
	d.Value("headOffset carryOffset blockOffset", []int{headOffset, carryOffset, blockOffset})
	d.Value("BlockSize", BlockSize)
	d.Value("RegionSize", RegionSize)
	d.Value("Received Served Sibling Sent", []ID{Received, Served, Sibling, Sent})
	d.Value("RxBytes TxBytes Bursts KernelDrops", []ID{RxBytes, TxBytes, Bursts, KernelDrops})
	d.Value("NotRecorded FromSibling ServedRing TakenBack", []ID{NotRecorded, FromSibling, ServedRing, TakenBack})
	d.Value("TCPAccepted TCPClosed TCPAcceptFailed TCPQueries TCPAnswers", []ID{TCPAccepted, TCPClosed, TCPAcceptFailed, TCPQueries, TCPAnswers})
	d.Value("QueriesLogged QueriesNotLogged", []ID{QueriesLogged, QueriesNotLogged})
	d.Value("ProxyFlows ProxyEnded ProxyOut ProxyIn", []ID{ProxyFlows, ProxyEnded, ProxyOut, ProxyIn})
	d.Value("ProxyLate ProxyUnsent ProxyHandoffs ProxyHandoffLost ProxyErrors", []ID{ProxyLate, ProxyUnsent, ProxyHandoffs, ProxyHandoffLost, ProxyErrors})
	d.Value("ForwardedTo ForwardedFrom", []ID{ForwardedTo, ForwardedFrom})
	d.Value("Dropped DroppedRing DroppedTCP", []ID{Dropped, DroppedRing, DroppedTCP})
	d.Value("Queries LatencyNs Latency", []ID{Queries, LatencyNs, Latency})
	d.Value("numCounters", numCounters)
	for r := range NumReasons {
		d.Value(fmt.Sprint("reason ", uint8(r)), r)
	}
	for i := range NumTypes {
		d.Value(fmt.Sprint("type bucket ", i), TypeName(i))
	}
	for i := range NumRcodes {
		d.Value(fmt.Sprint("rcode bucket ", i), RcodeName(i))
	}
	for c := range NumClasses {
		d.Value(fmt.Sprint("class ", uint8(c)), c.String())
	}
	d.Value("LatencyBound(0 19)", []int64{LatencyBound(0), LatencyBound(NumLatency - 1)})
	layouttest.Check(t, Layout, &d)
	if z := [...]ZoneCounter{ZoneUDP, ZoneTCP, ZoneNXDomain, ZoneTruncated, NumZoneCounters}; ZonesLayout != 1 || z != [...]ZoneCounter{0, 1, 2, 3, 4} || ZonesSize != 32<<20+64 {
		t.Errorf("zone counters %v in %d bytes: raise ZonesLayout", z, ZonesSize)
	}
	if MaxLanes != directory.MaxLanes || NumSlots != directory.MaxSlots {
		t.Errorf("blocks for %d slots of %d lanes, not those of the directory", NumSlots, MaxLanes)
	}
}
