package zones

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Adopt returns the catalog of a generation whose supervisor is gone, with one
// user. Its files are not known, so that no change can follow them: Zones is
// empty. Its zones keep the cells in which they are counted. The descriptors are
// taken over.
func (s *Store) Adopt(fd int, regions []Region) (*Catalog, error) {
	drop := func() {
		for _, r := range regions {
			unix.Close(r.FD)
		}
	}
	mem, err := shm.MapReadOnly(fd)
	if err != nil {
		unix.Close(fd)
		drop()
		return nil, fmt.Errorf("adopting zones: %w", err)
	}
	form, err := catalog.Read(mem)
	if err != nil {
		_ = mem.Close()
		drop()
		return nil, fmt.Errorf("adopting zones: %w", err)
	}
	c := &Catalog{Version: form.Version, Regions: regions, mem: mem, users: 1, adopted: true}
	names := make(map[uint32]string)
	for _, r := range regions {
		s.readNames(form, r, names)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = max(s.versions, form.Version)
	for _, r := range regions {
		s.nextID = max(s.nextID, r.ID)
	}
	for cell, name := range names {
		s.reserve(cell, name)
	}
	return c, nil
}

// readNames adds the names of the zones in a region, by their cells. A region that
// is no good is left out: its workers serve from it as they may.
func (s *Store) readNames(form *catalog.Catalog, r Region, names map[uint32]string) {
	fd, err := unix.FcntlInt(uintptr(r.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		s.log.Error("reading the zones of another supervisor", "error", err)
		return
	}
	mem, err := shm.MapReadOnly(fd)
	if err != nil {
		unix.Close(fd)
		s.log.Error("reading the zones of another supervisor", "error", err)
		return
	}
	defer mem.Close()
	if err := mem.Check(shm.KindZones, zone.Layout); err != nil {
		s.log.Error("reading the zones of another supervisor", "error", err)
		return
	}
	for _, p := range form.Places {
		if p.Region != r.ID || p.Counter == 0 {
			continue
		}
		z, err := catalog.Open(mem, p.Offset)
		if err != nil {
			s.log.Error("reading the zones of another supervisor", "error", err)
			return
		}
		names[p.Counter] = z.Name()
	}
}
