package zones

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Catalog is the zones of one generation, as its workers are told of them. It is
// immutable, and has a use of each of its zones until nobody uses it any more.
type Catalog struct {
	Zones   []*Zone
	Version uint64 // higher than that of every earlier catalog
	Regions []Region
	Records int   // in all zones
	Bytes   int64 // of all images

	mem     *shm.Region
	users   int  // guarded by Store.mu
	adopted bool // its regions are its own
}

// Region is a region of zones. It is valid as long as the Catalog is used.
type Region struct {
	ID uint64
	FD int
}

// FD returns the descriptor of the region that holds the catalog. It stays the
// Catalog's.
func (c *Catalog) FD() int { return c.mem.Fd() }

// Catalog returns the catalog of the zones of an update, with one user.
func (s *Store) Catalog(u *Update) (*Catalog, error) { return s.newCatalog(slices.Clone(u.Zones)) }

// newCatalog returns the catalog of list, which it keeps. Somebody else must have
// uses of the zones until it returns.
func (s *Store) newCatalog(list []*Zone) (*Catalog, error) {
	c := &Catalog{Zones: list, users: 1}
	places := make([]catalog.Place, len(list))
	regions := make(map[uint64]int)
	for i, z := range list {
		places[i] = z.Place()
		regions[z.region.id] = z.region.mem.Fd()
		c.Records += z.Report.Records
		c.Bytes += int64(z.Report.Size)
	}
	s.mu.Lock()
	s.versions++
	c.Version = s.versions
	s.mu.Unlock()
	form := catalog.New(c.Version, places)
	for _, id := range form.Regions {
		c.Regions = append(c.Regions, Region{ID: id, FD: regions[id]})
	}
	var err error
	if c.mem, err = form.Region(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range list {
		z.users++
	}
	return c, nil
}

// Follow returns c as it is after a change, nil if nothing in it is another. The
// versions of the change must have users.
func (s *Store) Follow(c *Catalog, change Change) (*Catalog, error) {
	var next []*Zone
	for i, z := range c.Zones {
		if n := change[z]; n != nil {
			if next == nil {
				next = slices.Clone(c.Zones)
			}
			next[i] = n
		}
	}
	if next == nil {
		return nil, nil
	}
	return s.newCatalog(next)
}

// Retain adds a user.
func (s *Store) Retain(c *Catalog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users++
}

// Release gives up one use of c, which may be nil.
func (s *Store) Release(c *Catalog) {
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	for _, z := range c.Zones {
		s.release(z)
	}
	if c.adopted {
		for _, r := range c.Regions {
			if err := unix.Close(r.FD); err != nil {
				s.log.Error("closing a zone region", "region", r.ID, "error", err)
			}
		}
	}
	if err := c.mem.Close(); err != nil {
		s.log.Error("closing a catalog", "version", c.Version, "error", err)
	}
}
