package server

import (
	"context"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/zones"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// releasing returns a running loop with an old generation in slot 0 whose only
// worker is dead, and the reader in slot 1, in whose ring to it a record is left.
func releasing(t *testing.T) (s *Supervisor, left *ringRegion) {
	t.Helper()
	s = looping(t)
	done := make(chan struct{})
	s.post(func() {
		defer close(done)
		s.watches = make(map[uint32]context.CancelFunc)
		s.zones = zones.NewStore(nil, spawn.Identity{}, 0, s.log)
		var err error
		if s.dir, err = directory.Format(shm.Heap(directory.RegionSize)); err != nil {
			t.Error(err)
			return
		}
		if s.backends, err = newBackends(s.log); err != nil {
			t.Error(err)
			return
		}
		cfg := &config.Config{Workers: 1, Lanes: 1, Reload: config.Reload{HeartbeatTimeout: 1 << 40}}
		s.cfg = cfg
		for slot := range 2 {
			g := &generation{cfg: cfg, workers: []*process{{}}, rings: make(map[int]*ringRegion)}
			g.Slot, g.Epoch = uint8(slot), uint32(slot+1)
			if g.region, err = shm.Create("flows", table.RegionSize(1024)); err != nil {
				t.Error(err)
				return
			}
			s.gens[slot] = g
			if err := s.dir.Open(slot, g.Epoch, 1, 1, nil); err != nil {
				t.Error(err)
			}
		}
		old := s.gens[0]
		old.window = 5
		s.state.Active = s.gens[1].Generation
		if err := s.makeRings(s.gens[1], old); err != nil {
			t.Error(err)
			return
		}
		left = s.gens[1].rings[0]
		p := left.rings.Producer(0, 0)
		p.Push(&burst.Packet{Payload: []byte("left")}, 0, 0)
		p.Publish()
		s.dir.Worker(0, 0).SetGone()
		s.release(reload.Release{Order: 77, Gen: old.Generation})
	})
	<-done
	t.Cleanup(func() { // what is still mapped
		for _, g := range s.gens {
			if g != nil {
				s.post(func() { s.gens[g.Slot] = nil; s.discard(g) })
			}
		}
		if err := s.ask(t.Context(), func() {}); err != nil {
			t.Log(err)
		}
	})
	return s, left
}

// waiting says whether the release is still waited for.
func waiting(t *testing.T, s *Supervisor) (yes bool) {
	t.Helper()
	done := make(chan struct{})
	s.post(func() { yes = s.watches[77] != nil; close(done) })
	<-done
	return yes
}

// A release waits until the readers have taken back what the dead have left.
func TestReleaseWaitsForTheDead(t *testing.T) {
	s, left := releasing(t)
	for range 3 {
		if !waiting(t, s) {
			t.Fatal("released over a record")
		}
	}
	c := left.rings.Consumer(0, 0)
	var p burst.Packet
	var m ring.Meta
	if !c.Next(c.Tail(), &p, &m) {
		t.Fatal("no record")
	}
	c.Release()
	until(t, "released", func() bool { return !waiting(t, s) })
}

// The old generation, or the reader, may end under a release that waits: a stop
// that became a faster one. Nothing looks at their memory any more when that is
// given back.
func TestReleaseEndsWithAGeneration(t *testing.T) {
	for slot := range 2 {
		s, _ := releasing(t)
		if !waiting(t, s) {
			t.Fatal("nothing is waited for")
		}
		s.post(func() {
			g := s.gens[slot]
			s.gens[slot] = nil
			s.discard(g)
		})
		until(t, "the release is given up", func() bool { return !waiting(t, s) })
	}
}
