package catalog

import (
	"fmt"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
)

// View is what one process has mapped. It is for one goroutine at a time.
type View struct {
	regions map[uint64]*shm.Region
	present *Catalog
	zones   []*zone.Zone // of present
}

// NewView returns a view of nothing.
func NewView() *View { return &View{regions: make(map[uint64]*shm.Region), present: &Catalog{}} }

// Map maps the region behind fd, which is taken over, for later catalogs. One
// that is mapped already stays.
func (v *View) Map(id uint64, fd int) error {
	r, err := shm.MapReadOnly(fd)
	if err != nil {
		_ = unix.Close(fd) // of no use, whatever comes of closing it
		return fmt.Errorf("zone region %d: %w", id, err)
	}
	if err := r.Check(shm.KindZones, zone.Layout); err != nil {
		_ = r.Close()
		return fmt.Errorf("zone region %d: %w", id, err)
	}
	if v.regions[id] != nil {
		return r.Close()
	}
	v.regions[id] = r
	return nil
}

// Switch makes c the present catalog and returns its zones. On error nothing
// has changed. Zones that lie where they lay are the same as before. The caller
// closes unused, the regions that c does not list, when nobody uses the zones
// of the former catalog any more.
func (v *View) Switch(c *Catalog) (set *zone.Set, unused []*shm.Region, err error) {
	zones := make([]*zone.Zone, len(c.Places))
	for i, p := range c.Places {
		if i < len(v.zones) && v.present.Places[i] == p {
			zones[i] = v.zones[i]
			continue
		}
		if zones[i], err = v.open(p); err != nil {
			return nil, nil, fmt.Errorf("catalog %d: zone %d: %w", c.Version, i, err)
		}
	}
	if set, err = zone.NewSet(zones); err != nil {
		return nil, nil, fmt.Errorf("catalog %d: %w", c.Version, err)
	}
	v.present, v.zones = c, zones
	return set, v.Prune(), nil
}

// Prune forgets the regions that the present catalog does not list and returns
// them: after a failed Switch, what was mapped for it.
func (v *View) Prune() []*shm.Region {
	listed := make(map[uint64]bool, len(v.present.Regions))
	for _, id := range v.present.Regions {
		listed[id] = true
	}
	var unused []*shm.Region
	for id, r := range v.regions {
		if !listed[id] {
			unused = append(unused, r)
			delete(v.regions, id)
		}
	}
	return unused
}

// Regions iterates over the ids and descriptors of the regions that the present
// catalog lists. The descriptors stay the view's.
func (v *View) Regions() iter.Seq2[uint64, int] {
	return func(yield func(uint64, int) bool) {
		for _, id := range v.present.Regions {
			if r := v.regions[id]; r != nil && !yield(id, r.Fd()) {
				return
			}
		}
	}
}

// open opens the image at p.
func (v *View) open(p Place) (*zone.Zone, error) {
	r := v.regions[p.Region]
	if r == nil {
		return nil, fmt.Errorf("region %d is not mapped", p.Region)
	}
	z, err := Open(r, p.Offset)
	if err == nil {
		z.Cell = p.Counter
	}
	return z, err
}

// Open opens the image at an offset of a zone region. Its errors match
// zone.ErrImage.
func Open(r *shm.Region, offset uint64) (*zone.Zone, error) {
	b := r.Bytes()
	if offset < FirstOffset || offset%Align != 0 || offset > uint64(len(b)) {
		return nil, fmt.Errorf("an image at offset %d of a region of %d bytes: %w", offset, len(b), zone.ErrImage)
	}
	return zone.Open(b[offset:])
}
