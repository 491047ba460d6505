package zones

import (
	"log/slog"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// Store is the compiled zones of all live generations. Its methods are safe for
// concurrent use, but for this: from an Update to its end (Done) there is no
// other one.
type Store struct {
	log  *slog.Logger
	host host

	mu      sync.Mutex
	have    map[identity]*Zone    // what the live generations serve; guarded by mu
	failed  map[identity]*Failure // why the newest files are not that; guarded by mu
	regions map[*region]struct{}  // guarded by mu

	cells    map[string]uint32 // of the counters, by the name of the zone; guarded by mu
	names    []string          // by cell; append only; guarded by mu
	nextID   uint64            // of regions; guarded by mu
	versions uint64            // of catalogs; guarded by mu
}

// NewStore returns an empty store. Its compilers run with env and nice, as somebody
// else; files that only this process can read are lent to them.
func NewStore(env []string, as spawn.Identity, nice int, log *slog.Logger) *Store {
	return &Store{
		log: log, host: host{env, as, nice},
		cells: make(map[string]uint32), names: make([]string, 1),
		have: make(map[identity]*Zone), failed: make(map[identity]*Failure), regions: make(map[*region]struct{}),
	}
}

// Change says which versions take the place of which in every generation.
type Change map[*Zone]*Zone

// Failure returns why the newest files of z are not what is served, nil if they
// are.
func (s *Store) Failure(z *Zone) *Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[z.identity()]
}

// Stale returns of how many zones the newest files are not what is served.
func (s *Store) Stale() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed)
}

// Deps returns the files that z was built from, as they were when they were
// looked at last.
func (s *Store) Deps(z *Zone) []zone.Dep {
	s.mu.Lock()
	defer s.mu.Unlock()
	return z.Report.Deps
}

// addRegion takes over a region of images.
func (s *Store) addRegion(mem *shm.Region) *region {
	s.nextID++
	r := &region{id: s.nextID, mem: mem}
	s.regions[r] = struct{}{}
	return r
}

// addZone returns a version with one user.
func (s *Store) addZone(z config.Zone, report zone.Report, r *region, offset uint64, checked time.Time) *Zone {
	report.Name = z.Name // one string for all
	if len(report.Deps) > 0 {
		report.Deps[0].Path = z.File
	}
	r.zones++
	r.live += report.Size
	return &Zone{
		Name: z.Name, File: z.File, Loaded: time.Now(), Report: report, cell: s.cellOf(z.Name),
		checked: checked, region: r, offset: offset, users: 1,
	}
}

// CellOf returns the cell of a zone's counters, which it gets if it has none; 0 if
// there are no more.
func (s *Store) CellOf(name string) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cellOf(name)
}

// cellOf returns the cell of a zone's counters, which it has for ever: they do not
// fall when the zone is taken away and comes back. Store.mu is held.
func (s *Store) cellOf(name string) uint32 {
	if c, ok := s.cells[name]; ok {
		return c
	}
	c := uint32(len(s.names))
	if c >= counters.MaxZones {
		return 0
	}
	s.cells[name], s.names = c, append(s.names, name)
	return c
}

// reserve gives a zone the cell that it had under another supervisor. Store.mu is
// held.
func (s *Store) reserve(cell uint32, name string) {
	if _, ok := s.cells[name]; ok || cell >= counters.MaxZones {
		return
	}
	for uint32(len(s.names)) <= cell {
		s.names = append(s.names, "")
	}
	s.cells[name], s.names[cell] = cell, name
}

// Cells returns the number of cells, and the names of the zones that have the
// first ones, limit at most; cell 0 has none, nor has that of a zone that an earlier
// supervisor has ceased to serve. The list must not be written to.
func (s *Store) Cells(limit int) (names []string, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[:min(len(s.names), limit)], len(s.names)
}

// release gives up one use of z. Store.mu is held.
func (s *Store) release(z *Zone) {
	if z.users--; z.users > 0 {
		return
	}
	if id := z.identity(); s.have[id] == z {
		delete(s.have, id)
		delete(s.failed, id)
	}
	r := z.region
	r.live -= z.Report.Size
	if r.zones--; r.zones == 0 {
		s.drop(r)
	}
}

func (s *Store) drop(r *region) {
	delete(s.regions, r)
	if err := r.mem.Close(); err != nil {
		s.log.Error("closing a zone region", "region", r.id, "error", err)
	}
}
