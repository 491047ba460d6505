package zones

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Region is one compiled zone.
type Region struct {
	Name   string
	File   string
	Report zone.Report // of the compiler; Deps is guarded by Store.mu
	Loaded time.Time
	region *shm.Region
	users  int // guarded by Store.mu
}

// FD returns the descriptor of the region. It stays the Region's.
func (r *Region) FD() int { return r.region.Fd() }

// Size returns the bytes of the region.
func (r *Region) Size() int { return r.region.Size() }

// Store is the compiled zones of all live generations. Its methods are safe for
// concurrent use.
type Store struct {
	log *slog.Logger
	env []string

	mu   sync.Mutex
	have map[identity]*Region // guarded by mu
}

// identity is what a zone is asked for by. Its content may change.
type identity struct{ name, file string }

// NewStore returns an empty store. Its compilers run with env.
func NewStore(env []string, log *slog.Logger) *Store {
	return &Store{log: log, env: env, have: make(map[identity]*Region)}
}

// Prepare returns a region for each zone, in their order: the one there is if
// its files are unchanged, else a newly compiled one. The caller owes one
// Release. The error joins one for each thing that is wrong with any zone; then
// there is nothing to release.
func (s *Store) Prepare(ctx context.Context, want []config.Zone) ([]*Region, error) {
	got := make([]*Region, len(want))
	var missing []int
	s.mu.Lock()
	for i, z := range want {
		if r := s.have[identity{z.Name, z.File}]; r != nil && r.fresh() {
			r.users++
			got[i] = r
			continue
		}
		missing = append(missing, i)
	}
	s.mu.Unlock()

	errs := make([]error, len(want))
	began := time.Now()
	s.compile(ctx, want, missing, func(i int, r *Region, err error) { got[i], errs[i] = r, err })
	if len(missing) > 0 {
		s.log.Info("zones compiled", "zones", len(missing), "unchanged", len(want)-len(missing), "elapsed", time.Since(began).Round(time.Microsecond))
	}
	if err := errors.Join(errs...); err != nil {
		s.Release(got)
		return nil, err
	}
	s.mu.Lock()
	var twins []*Region
	for _, i := range missing {
		id := identity{want[i].Name, want[i].File}
		if old := s.have[id]; old != nil && old.Report.Key == got[i].Report.Key {
			// Touched, not changed: the region that is mapped already will do.
			twins = append(twins, got[i])
			old.Report.Deps = got[i].Report.Deps
			old.users++
			got[i] = old
			continue
		}
		s.have[id] = got[i]
	}
	s.mu.Unlock()
	s.Release(twins)
	return got, nil
}

// fresh reports whether the zone's files are, by their status, still those it
// was built from.
func (r *Region) fresh() bool {
	for i := range r.Report.Deps {
		if !r.Report.Deps[i].Fresh() {
			return false
		}
	}
	return len(r.Report.Deps) > 0
}

// compile compiles want[i] for each i in todo, and calls done for each, never
// two at a time.
func (s *Store) compile(ctx context.Context, want []config.Zone, todo []int, done func(i int, r *Region, err error)) {
	if len(todo) == 0 {
		return
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	jobs := min(runtime.NumCPU(), len(todo))
	for job := range jobs {
		// Zones of neighbouring lines tend to be of like size: deal them out.
		var mine []int
		for at := job; at < len(todo); at += jobs {
			mine = append(mine, todo[at])
		}
		wg.Go(func() {
			var part []config.Zone
			for _, i := range mine {
				part = append(part, want[i])
			}
			results, err := compileAll(ctx, part, s.env)
			mu.Lock()
			defer mu.Unlock()
			for n, i := range mine {
				switch {
				case n < len(results):
					r := results[n]
					for _, w := range r.Report.Warnings {
						s.log.Warn("zone", "zone", want[i].Name, "warning", w.String())
					}
					if r.err != nil {
						done(i, nil, r.err)
						continue
					}
					done(i, &Region{Name: want[i].Name, File: want[i].File, Report: r.Report, Loaded: time.Now(), region: r.region, users: 1}, nil)
				case err != nil:
					done(i, nil, fmt.Errorf("zone %s: %w", want[i].Name, err))
				default:
					done(i, nil, fmt.Errorf("zone %s: the compiler gave no answer", want[i].Name))
				}
			}
		})
	}
	wg.Wait()
}

// Release gives up one use of each region that is not nil.
func (s *Store) Release(regions []*Region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range regions {
		if r == nil {
			continue
		}
		if r.users--; r.users > 0 {
			continue
		}
		if id := (identity{r.Name, r.File}); s.have[id] == r {
			delete(s.have, id)
		}
		if err := r.region.Close(); err != nil {
			s.log.Error("closing a zone region", "zone", r.Name, "error", err)
		}
	}
}
