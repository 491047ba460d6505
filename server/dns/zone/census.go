package zone

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// Census counts the records of the zone by type. It takes time in proportion to
// the zone. Its errors match ErrImage.
func (z *Zone) Census() (types map[wire.Type]int, err error) {
	defer func() {
		if r := recover(); r != nil { // a slice bound: a length points outside
			err = fmt.Errorf("counting the records of %s: %v: %w", z.Name(), r, ErrImage)
		}
	}()
	types = make(map[wire.Type]int)
	for i := range z.slotMask + 1 {
		s := u64(z.slots, int(i)*slotSize)
		if s == 0 {
			continue
		}
		n := z.node(Ref(s))
		if n.RRsets() == 0 {
			continue
		}
		set, ok := n.First(), true
		for k := 0; ok; k++ {
			types[set.Type] += set.Count
			set, ok = n.Next(set, k)
		}
	}
	return types, nil
}
