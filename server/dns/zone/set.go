package zone

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// Set is an immutable set of zones that names are looked up in. The zero value
// and nil are empty sets.
type Set struct {
	zones []*Zone
	table []setEntry // open addressing; a power of two, at most half full
	// depths has bit n set iff a zone has an origin of n labels, so that only
	// suffixes that can be an origin are probed.
	depths [2]uint64
}

type setEntry struct {
	hash uint64
	zone *Zone
}

// NewSet returns the set of zones. It refuses two with one origin.
func NewSet(zones []*Zone) (*Set, error) {
	s := &Set{zones: zones, table: make([]setEntry, 1<<bits.Len(uint(2*len(zones))))}
	var n wire.Name
	for _, z := range zones {
		n.SetLower(z.origin)
		h := n.Hash(0)
		i := s.index(h)
		for ; s.table[i].zone != nil; i = (i + 1) & (len(s.table) - 1) {
			if bytes.Equal(s.table[i].zone.origin, z.origin) {
				return nil, fmt.Errorf("building zone set: zone %s is there twice", z.name)
			}
		}
		s.table[i] = setEntry{h, z}
		s.depths[z.labels/64] |= 1 << (z.labels % 64)
	}
	return s, nil
}

func (s *Set) index(hash uint64) int { return int(hash) & (len(s.table) - 1) }

// Zones returns the zones in the order they were given. The slice is the Set's.
func (s *Set) Zones() []*Zone {
	if s == nil {
		return nil
	}
	return s.zones
}

// Find returns the zone with the longest origin that name is at or below, or
// nil. Only origins of at most maxLabels labels count: name.Labels() for all,
// one less than a zone's for its parents.
func (s *Set) Find(name *wire.Name, maxLabels int) *Zone {
	if s == nil {
		return nil
	}
	for n := s.depth(maxLabels); n >= 0; n = s.depth(n - 1) {
		at := name.Labels() - n
		if at < 0 {
			continue
		}
		h := name.Hash(at)
		for i := s.index(h); s.table[i].zone != nil; i = (i + 1) & (len(s.table) - 1) {
			if s.table[i].hash == h && bytes.Equal(s.table[i].zone.origin, name.Suffix(at)) {
				return s.table[i].zone
			}
		}
	}
	return nil
}

// depth returns the largest number of labels up to most that an origin has, or
// -1.
func (s *Set) depth(most int) int {
	for w := most >> 6; w >= 0; w-- {
		m := s.depths[w&1]
		if w == most>>6 {
			m &= ^uint64(0) >> (63 - most&63)
		}
		if m != 0 {
			return w<<6 + 63 - bits.LeadingZeros64(m)
		}
	}
	return -1
}
