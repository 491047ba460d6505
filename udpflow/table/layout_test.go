package table

import (
	"testing"

	"github.com/dnsapp/dnsapp/internal/layouttest"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

func TestLayout(t *testing.T) {
	var d layouttest.Dump
	d.Struct("top", &top{})
	d.Struct("workerWord", &workerWord{})
	d.Struct("slot", &slot{})
	d.Value("topOffset", topOffset)
	d.Value("workersOffset", workersOffset)
	d.Value("slotsOffset", slotsOffset)
	d.Value("RegionSize(1024)", RegionSize(1024))
	d.Value("probes", probes)
	d.Value("claimFlag freeFlag", []entry{claimFlag, freeFlag})
	e := newEntry(0x01020304, 5)
	d.Value("newEntry(0x01020304, 5)", uint64(e))
	d.Value("refreshed(0x01020305)", uint64(e.refreshed(0x01020305)))
	for s := None; s <= Handed; s++ {
		d.Value("header("+s.String()+", 7)", uint64(header(s, 7)))
	}
	k := flow.Key{Proto: flow.UDP, Local: burst.Endpoint{Port: 53}, Remote: burst.Endpoint{Scope: 2, Port: 40000}}
	k.Local.IP[15], k.Remote.IP[0] = 1, 0xfe
	d.Value("hash under {1, 2}", k.Hash(&flow.Secret{1, 2}))
	layouttest.Check(t, Layout, &d)
}

// A generation has as many worker headers as it can have workers.
func TestWorkersOfDirectory(t *testing.T) {
	if MaxWorkers != directory.MaxWorkers {
		t.Fatalf("%d worker headers, %d workers", MaxWorkers, directory.MaxWorkers)
	}
}
