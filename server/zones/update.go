package zones

import (
	"context"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Update is the newest versions of some zones, before the generations have them.
// It ends with Done, and has one use of each of its versions until then.
type Update struct {
	Zones    []*Zone    // in the order they were asked for; nil: none can be loaded
	Failures []*Failure // of those that are nil
	Compiled int        // zones whose content has changed
	Same     int        // zones whose files were read and have not changed

	// moved are the versions whose image was copied to another region.
	moved Change
}

// Progress is told how many of how many zones are done. It is never called twice
// at the same time.
type Progress func(done, of int)

// Prepare returns the newest versions of zones for a new generation: the one
// that is served where the files are unchanged, else a newly compiled one. The
// error is a *RefusedError if any zone cannot be loaded, or that of ctx.
func (s *Store) Prepare(ctx context.Context, want []config.Zone) (*Update, error) {
	u, err := s.update(ctx, want, func(int, int) {})
	if err != nil {
		return nil, err
	}
	if len(u.Failures) > 0 {
		s.Done(u)
		return nil, &RefusedError{Failures: u.Failures}
	}
	return u, nil
}

// Refresh returns the newest versions of zones that are served; others are left
// out. The error is that of ctx.
func (s *Store) Refresh(ctx context.Context, zones []*Zone, p Progress) (*Update, error) {
	want := make([]config.Zone, len(zones))
	for i, z := range zones {
		want[i] = config.Zone{Name: z.Name, File: z.File}
	}
	return s.update(ctx, want, p)
}

// Commit makes the versions of u those that are served, and returns what they
// replace: every live generation is to follow.
func (s *Store) Commit(u *Update) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(Change)
	for _, z := range u.Zones {
		if z == nil {
			continue
		}
		id := z.identity()
		if old := s.have[id]; old != z {
			if old != nil {
				c[old] = z
			}
			s.have[id] = z
		}
	}
	for old, z := range u.moved {
		if id := old.identity(); s.have[id] == old {
			c[old] = z
			s.have[id] = z
		}
	}
	return c
}

// Done gives up the uses of an update, whether it was committed or not. What
// nobody else uses is gone.
func (s *Store) Done(u *Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range u.Zones {
		if z != nil {
			s.release(z)
		}
	}
	for _, z := range u.moved {
		s.release(z)
	}
	u.Zones, u.moved = nil, nil
}

// known is what is known of a zone before an update looks at its files.
type known struct {
	zone    *Zone // what is served, nil: nothing
	deps    []zone.Dep
	checked time.Time
	failed  *Failure // why that is not the newest, nil: it was
}

// update brings want up to date. Its error is that of ctx, or of this machine.
func (s *Store) update(ctx context.Context, want []config.Zone, p Progress) (*Update, error) {
	u := &Update{Zones: make([]*Zone, len(want))}
	had := make([]known, len(want))
	s.mu.Lock()
	for i, z := range want {
		id := identity{z.Name, z.File}
		if old := s.have[id]; old != nil {
			old.users++
			u.Zones[i] = old
			had[i] = known{old, old.Report.Deps, old.checked, s.failed[id]}
		}
	}
	s.mu.Unlock()

	r := &round{s: s, u: u, want: want, had: had, began: time.Now(), progress: p}
	for i, z := range want {
		k := &had[i]
		switch {
		case k.zone != nil && fresh(k.deps, k.checked):
			if k.failed != nil { // the files that are served are back
				s.mu.Lock()
				r.good(i)
				s.mu.Unlock()
			}
		case k.failed != nil && fresh(k.failed.deps, k.failed.checked):
			u.Failures = append(u.Failures, k.failed)
		default:
			r.jobs, r.of = append(r.jobs, job{Zone: z, Known: k.deps}), append(r.of, i)
		}
	}
	err := r.compile(ctx)
	if err == nil {
		err = s.merge(u)
	}
	if err != nil {
		s.Done(u)
		return nil, err
	}
	return u, nil
}

// round is the part of an update that reads files.
type round struct {
	s        *Store
	u        *Update
	want     []config.Zone
	had      []known
	began    time.Time
	progress Progress

	jobs     []job
	of       []int // by job: index in want
	finished int   // jobs
	warnings int
}

// compile does the jobs.
func (r *round) compile(ctx context.Context) error {
	if len(r.jobs) == 0 {
		return nil
	}
	r.progress(0, len(r.jobs))
	err := compile(ctx, r.jobs, r.s.host, r.take)
	if more := r.warnings - maxWarnings; more > 0 {
		r.s.log.Warn("more warnings about zones: see dnsappctl zone show", "warnings", more)
	}
	r.s.log.Info("zones compiled", "changed", r.u.Compiled, "same", r.u.Same, "failed", len(r.u.Failures),
		"untouched", len(r.want)-len(r.jobs), "elapsed", time.Since(r.began).Round(time.Microsecond))
	return err
}

// take takes over the results of some jobs.
func (r *round) take(jobs []int, results []result, mem *shm.Region) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var in *region
	if mem != nil {
		in = r.s.addRegion(mem)
	}
	for n := range results {
		i, res := r.of[jobs[n]], &results[n]
		r.warn(i, res.Report.Warnings)
		old := r.had[i].zone
		switch {
		case res.Errors != nil:
			r.bad(i, &Failure{Zone: r.want[i], Problems: res.Errors, deps: res.Report.Deps, checked: r.began})
		case old != nil && (res.Same || res.Report.Key == old.Report.Key):
			old.Report.Deps, old.checked = res.Report.Deps, r.began
			r.u.Same++
			r.good(i)
		default:
			if old != nil {
				r.s.release(old)
			}
			r.u.Zones[i] = r.s.addZone(r.want[i], res.Report, in, res.Offset, r.began)
			r.u.Compiled++
			r.good(i)
		}
	}
	if in != nil && in.zones == 0 {
		r.s.drop(in)
	}
	r.finished += len(results)
	r.progress(r.finished, len(r.jobs))
}

// good notes that the newest version of zone i is in the update. Store.mu is
// held.
func (r *round) good(i int) {
	if f := r.had[i].failed; f != nil {
		delete(r.s.failed, identity{f.Zone.Name, f.Zone.File})
		r.s.log.Info("zone is good again", "zone", f.Zone.Name)
	}
}

// bad notes why it is not. Store.mu is held.
func (r *round) bad(i int, f *Failure) {
	r.u.Failures = append(r.u.Failures, f)
	if old := r.had[i].zone; old != nil {
		r.s.failed[old.identity()] = f
		r.s.log.Error("zone refused: the last good version is served", "zone", f.Zone.Name, "serial", old.Report.Serial, "reason", f.String())
	}
}

// maxWarnings bounds the warnings about zones that are logged for one update.
const maxWarnings = 100

func (r *round) warn(i int, list []zone.Warning) {
	for _, w := range list {
		if r.warnings++; r.warnings <= maxWarnings {
			r.s.log.Warn("zone", "zone", r.want[i].Name, "warning", w.String())
		}
	}
}
