package directory

import (
	"testing"

	"github.com/dnsapp/dnsapp/internal/layouttest"
)

func TestLayout(t *testing.T) {
	var d layouttest.Dump
	d.Struct("top", &top{})
	d.Struct("slot", &slot{})
	d.Value("topOffset", topOffset)
	d.Value("slotsOffset", slotsOffset)
	d.Value("slotSize", slotSize)
	d.Value("RegionSize", RegionSize)
	for s := Free; s.String() != "unknown"; s++ {
		d.Value("state "+s.String(), uint32(s))
	}
	d.Value("Run(3)", uint64(Run(3)))
	d.Value("Parked(3, 5)", uint64(Parked(3, 5)))
	layouttest.Check(t, Layout, &d)
}
