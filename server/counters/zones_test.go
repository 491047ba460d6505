package counters

import (
	"errors"
	"sync"
	"testing"

	"github.com/dnsapp/dnsapp/server/shm"
)

// What many add is there, each in its own cell, and nothing outside the region.
func TestZones(t *testing.T) {
	r := shm.Heap(ZonesSize)
	if _, err := AttachZones(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("attached what is not formatted: %v", err)
	}
	z, err := FormatZones(r)
	if err != nil {
		t.Fatal(err)
	}
	var adders sync.WaitGroup
	for range 4 {
		adders.Go(func() {
			mine, err := AttachZones(r)
			if err != nil {
				t.Error(err)
				return
			}
			for range 1000 {
				for _, cell := range []uint32{0, 1, MaxZones - 1, MaxZones, 1<<32 - 1} {
					mine.Add(cell, ZoneTCP, 3)
				}
				mine.Add(7, NumZoneCounters-1, 0)
			}
		})
	}
	adders.Wait()
	for cell, want := range map[uint32]uint64{0: 3 * 12_000, 1: 12_000, 2: 0, 7: 0, MaxZones - 1: 12_000} {
		if got := z.Load(cell, ZoneTCP); got != want {
			t.Errorf("cell %d is %d, want %d", cell, got, want)
		}
		if got := z.Load(cell, ZoneUDP) + z.Load(cell, ZoneNXDomain) + z.Load(cell, ZoneTruncated); got != 0 {
			t.Errorf("other counters of cell %d are %d", cell, got)
		}
	}
	small := shm.Heap(ZonesSize - 8)
	small.Format(shm.KindZoneCounters, ZonesLayout)
	small.Publish()
	if _, err := AttachZones(small); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("attached a region that is too small: %v", err)
	}
}
