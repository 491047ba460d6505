package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dnsapp/dnsapp/server/shm"
)

// Layout is the layout number of a catalog. Raise it with every change of its
// form.
const Layout = 1

// Align is what the offsets of images in a region are multiples of, so that no
// two share a cache line.
const Align = 64

// FirstOffset is the offset of the first image of a region.
const FirstOffset = shm.HeaderSize

// The form of a catalog. All integers are little endian.
const (
	offVersion = shm.HeaderSize // u64
	offRegions = offVersion + 8 // u32
	offZones   = offRegions + 4 // u32
	offIDs     = offZones + 4   // [regions]u64; then [zones]place

	placeRegion  = 0 // u32 index in the ids
	placeCounter = 4 // u32
	placeOffset  = 8 // u64
	placeSize    = 16
)

// Place is where the image of one zone lies.
type Place struct {
	Region  uint64 // its id
	Offset  uint64 // in it, octets
	Counter uint32 // cell of the zone's counters
}

// Catalog is the content of a catalog region.
type Catalog struct {
	Version uint64
	Regions []uint64 // ids, each once
	Places  []Place  // in the order of the configuration
}

// New returns the catalog of places.
func New(version uint64, places []Place) *Catalog {
	c := &Catalog{Version: version, Places: places}
	last := uint64(0)
	for i := range places {
		if id := places[i].Region; i == 0 || id != last {
			c.Regions = append(c.Regions, id)
			last = id
		}
	}
	slices.Sort(c.Regions)
	c.Regions = slices.Compact(c.Regions)
	return c
}

// Region returns a new region that holds c, with its content sealed.
func (c *Catalog) Region() (*shm.Region, error) {
	if len(c.Places) > math.MaxUint32 || len(c.Regions) > math.MaxUint32 {
		return nil, errors.New("storing a catalog: too many zones")
	}
	at := offIDs + 8*len(c.Regions)
	r, err := shm.Create("catalog", at+placeSize*len(c.Places))
	if err != nil {
		return nil, fmt.Errorf("storing a catalog: %w", err)
	}
	r.Format(shm.KindCatalog, Layout)
	b, le := r.Bytes(), binary.LittleEndian
	le.PutUint64(b[offVersion:], c.Version)
	le.PutUint32(b[offRegions:], uint32(len(c.Regions)))
	le.PutUint32(b[offZones:], uint32(len(c.Places)))
	for i, id := range c.Regions {
		le.PutUint64(b[offIDs+8*i:], id)
	}
	index, last := 0, uint64(0)
	for i := range c.Places {
		p := &c.Places[i]
		if i == 0 || p.Region != last {
			var known bool
			if index, known = slices.BinarySearch(c.Regions, p.Region); !known {
				return nil, errors.Join(fmt.Errorf("storing a catalog: zone %d lies in region %d, which is not listed", i, p.Region), r.Close())
			}
			last = p.Region
		}
		e := b[at+placeSize*i:]
		le.PutUint32(e[placeRegion:], uint32(index))
		le.PutUint32(e[placeCounter:], p.Counter)
		le.PutUint64(e[placeOffset:], p.Offset)
	}
	r.Publish()
	if err := r.SealContent(); err != nil {
		return nil, errors.Join(fmt.Errorf("storing a catalog: %w", err), r.Close())
	}
	return r, nil
}

// Read returns the catalog in r. Its errors match shm.ErrLayout.
func Read(r *shm.Region) (*Catalog, error) {
	if err := r.Check(shm.KindCatalog, Layout); err != nil {
		return nil, fmt.Errorf("reading a catalog: %w", err)
	}
	b, le := r.Bytes(), binary.LittleEndian
	if len(b) < offIDs {
		return nil, fmt.Errorf("reading a catalog: %d bytes: %w", len(b), shm.ErrLayout)
	}
	regions, zones := uint64(le.Uint32(b[offRegions:])), uint64(le.Uint32(b[offZones:]))
	if need := offIDs + 8*regions + placeSize*zones; need > uint64(len(b)) {
		return nil, fmt.Errorf("reading a catalog: %d bytes, needs %d: %w", len(b), need, shm.ErrLayout)
	}
	c := &Catalog{Version: le.Uint64(b[offVersion:]), Regions: make([]uint64, regions), Places: make([]Place, zones)}
	for i := range c.Regions {
		c.Regions[i] = le.Uint64(b[offIDs+8*i:])
	}
	b = b[offIDs+8*regions:]
	for i := range c.Places {
		e := b[placeSize*i:]
		index := le.Uint32(e[placeRegion:])
		if uint64(index) >= regions {
			return nil, fmt.Errorf("reading a catalog: zone %d lies in region number %d of %d: %w", i, index, regions, shm.ErrLayout)
		}
		c.Places[i] = Place{Region: c.Regions[index], Offset: le.Uint64(e[placeOffset:]), Counter: le.Uint32(e[placeCounter:])}
	}
	return c, nil
}
