package zones

import (
	"context"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Trial is what Prepare would do about one zone.
type Trial struct {
	Zone     config.Zone
	Compiled bool         // its files look changed, or it is new: it would be read
	Changed  bool         // and what came of it is not what is served
	Report   zone.Report  // of the version that would be served
	Served   *zone.Report // of the version that is served; nil: none
	Err      error        // why the newest version would be refused, a *RefusedError; nil: it would not
}

// Try returns what Prepare would do about each zone, in their order. It compiles
// what Prepare would compile and keeps nothing. The error is that of ctx.
func (s *Store) Try(ctx context.Context, want []config.Zone) ([]Trial, error) {
	trials := make([]Trial, len(want))
	checked := make([]time.Time, len(want))
	s.mu.Lock()
	for i, z := range want {
		trials[i].Zone = z
		if served := s.have[identity{z.Name, z.File}]; served != nil {
			report := served.Report
			trials[i].Served, checked[i] = &report, served.checked
		}
	}
	s.mu.Unlock()

	var jobs []job
	var of []int // by job: index in want
	for i, z := range want {
		var deps []zone.Dep
		if served := trials[i].Served; served != nil {
			deps = served.Deps
			if fresh(deps, checked[i]) {
				trials[i].Report = *served
				continue
			}
		}
		jobs, of = append(jobs, job{Zone: z, Known: deps}), append(of, i)
	}
	err := compile(ctx, jobs, s.host, func(numbers []int, results []result, mem *shm.Region) {
		for n := range results {
			trials[of[numbers[n]]].fill(&results[n])
		}
		if mem != nil {
			if err := mem.Close(); err != nil {
				s.log.Error("closing a zone region", "error", err)
			}
		}
	})
	return trials, err
}

// fill fills in what a compiler says.
func (t *Trial) fill(r *result) {
	t.Compiled = true
	switch {
	case r.Errors != nil:
		t.Err = &RefusedError{Failures: []*Failure{{Zone: t.Zone, Problems: r.Errors}}}
	case r.Same:
		t.Report = *t.Served
	default:
		t.Report = r.Report
		t.Changed = t.Served == nil || t.Served.Key != r.Report.Key
	}
}
