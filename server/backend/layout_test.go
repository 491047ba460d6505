package backend

import (
	"net/netip"
	"testing"

	"github.com/dnsapp/dnsapp/internal/layouttest"
	"github.com/dnsapp/dnsapp/server/directory"
)

func TestLayout(t *testing.T) {
	var d layouttest.Dump
	d.Struct("head", &head{})
	d.Struct("Server", &Server{})
	d.Value("rowSize", rowSize)
	d.Value("headOffset serverOffset rowOffset portOffset", []int{headOffset, serverOffset, rowOffset, portOffset})
	d.Value("portPlanes numPorts", []int{portPlanes, numPorts})
	d.Value("tag of 192.0.2.1", tagOf(netip.MustParseAddr("192.0.2.1")))
	d.Value("RegionSize", RegionSize)
	d.Value("Enabled Draining Disabled", []uint32{uint32(Enabled), uint32(Draining), uint32(Disabled)})
	layouttest.Check(t, Layout, &d)
	if numSlots != directory.MaxSlots || maxLanes != directory.MaxLanes {
		t.Errorf("rows for %d slots of %d lanes, not those of the directory", numSlots, maxLanes)
	}
}
