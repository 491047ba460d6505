package zones

import (
	"context"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// Trial is what Prepare would do about one zone.
type Trial struct {
	Zone     config.Zone
	Compiled bool         // its files look changed, or it is new: it would be compiled
	Changed  bool         // and what came of it is not what is served
	Report   zone.Report  // of the version that would be served
	Served   *zone.Report // of the version that is served; nil: none
	Err      error        // why the compiled version would be refused; nil: it would not
}

// Try returns what Prepare would do about each zone, in their order. It compiles
// what Prepare would compile and keeps nothing.
func (s *Store) Try(ctx context.Context, want []config.Zone) []Trial {
	trials := make([]Trial, len(want))
	var missing []int
	s.mu.Lock()
	for i, z := range want {
		trials[i].Zone = z
		r := s.have[identity{z.Name, z.File}]
		if r != nil {
			served := r.Report
			trials[i].Served = &served
		}
		if r != nil && r.fresh() {
			trials[i].Report = r.Report
			continue
		}
		missing = append(missing, i)
	}
	s.mu.Unlock()

	s.compile(ctx, want, missing, func(i int, r *Region, err error) {
		t := &trials[i]
		t.Compiled = true
		if t.Err = err; err != nil {
			return
		}
		t.Report = r.Report
		t.Changed = t.Served == nil || t.Served.Key != r.Report.Key
		s.Release([]*Region{r})
	})
	return trials
}
