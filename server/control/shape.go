package control

import "slices"

// The answers hold empty lists and objects, never null ones, whatever the
// backend left out: a script may loop over them without asking first.

// filled returns a copy of s without nil lists or maps.
func (s *Status) filled() *Status {
	c := *s
	c.Generations = slices.Clone(orEmpty(c.Generations))
	for i := range c.Generations {
		c.Generations[i].Workers = orEmpty(c.Generations[i].Workers)
	}
	c.Listeners = slices.Clone(orEmpty(c.Listeners))
	for i := range c.Listeners {
		c.Listeners[i].Addresses = orEmpty(c.Listeners[i].Addresses)
		c.Listeners[i].Transport = orEmpty(c.Listeners[i].Transport)
	}
	c.LastReload = c.LastReload.filled()
	c.Ledger = c.Ledger.filled()
	return &c
}

// filled returns a copy of r without nil lists or maps; nil for nil.
func (r *ReloadReport) filled() *ReloadReport {
	if r == nil {
		return nil
	}
	c := *r
	c.Steps = orEmpty(c.Steps)
	c.Problems = orEmpty(c.Problems)
	c.Window = c.Window.filled()
	return &c
}

func (l Ledger) filled() Ledger {
	for _, m := range []*map[string]uint64{&l.Dropped, &l.RingDropped, &l.TCPDropped} {
		if *m == nil {
			*m = map[string]uint64{}
		}
	}
	return l
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
