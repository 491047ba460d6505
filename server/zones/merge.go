package zones

import (
	"slices"
)

// maxSmall is how many small regions there may be. More are merged, or zones that
// change one at a time would end with a region each.
const maxSmall = 8

// poor returns the regions whose images should move to others: those of which
// less than half is in use, and the small ones if there are too many. Store.mu is
// held.
func (s *Store) poor() map[*region]bool {
	list := make(map[*region]bool)
	var small []*region
	for r := range s.regions {
		size := r.mem.Size()
		switch {
		case size >= largeImage && 2*r.live < size:
			list[r] = true
		case r.live < largeImage:
			small = append(small, r)
		}
	}
	if len(small) > maxSmall {
		for _, r := range small {
			list[r] = true
		}
	}
	return list
}

// merge moves zones out of poor regions: the newest versions in u, and those that
// are served and that u leaves as they are.
func (s *Store) merge(u *Update) error {
	s.mu.Lock()
	poor := s.poor()
	if len(poor) == 0 {
		s.mu.Unlock()
		return nil
	}
	var move []*Zone
	newest := make(map[identity]bool)
	for _, z := range u.Zones {
		if z == nil {
			continue
		}
		if old := s.have[z.identity()]; old != z {
			newest[z.identity()] = true
		}
		if poor[z.region] {
			move = append(move, z)
			newest[z.identity()] = true
		}
	}
	for id, z := range s.have {
		if poor[z.region] && !newest[id] {
			move = append(move, z)
		}
	}
	for _, z := range move {
		z.users++ // nobody takes it away while it is copied
	}
	s.mu.Unlock()

	moved, err := s.copyOut(move)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.log.Debug("zone regions merged", "regions", len(poor), "zones", len(move))
		u.moved = moved
		for i, z := range u.Zones {
			if m := moved[z]; m != nil {
				m.users++
				u.Zones[i] = m
				s.release(z)
			}
		}
	}
	for _, z := range move {
		s.release(z)
	}
	return err
}

// copyOut copies the images of zones to new regions.
func (s *Store) copyOut(list []*Zone) (Change, error) {
	c := make(Change, len(list))
	for len(list) > 0 {
		var images []byte
		var offsets []uint64
		n := 0
		for ; n < len(list) && len(images) < packSize; n++ {
			var at uint64
			images, at = appendImage(images, list[n].image())
			offsets = append(offsets, at)
		}
		mem, err := pack("zones", images)
		s.mu.Lock()
		if err != nil {
			for _, z := range c {
				s.release(z)
			}
			s.mu.Unlock()
			return nil, err
		}
		r := s.addRegion(mem)
		for i, z := range list[:n] {
			m := *z
			m.region, m.offset, m.users = r, offsets[i], 1
			r.zones++
			r.live += m.Report.Size
			c[z] = &m
		}
		s.mu.Unlock()
		list = list[n:]
	}
	return c, nil
}

// image returns the image of z. It stays valid while z has a user.
func (z *Zone) image() []byte {
	from := int(z.offset)
	return slices.Clip(z.region.mem.Bytes()[from : from+z.Report.Size])
}
