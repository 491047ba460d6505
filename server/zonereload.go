package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/zones"
)

// zoneReload is one reload of zones, from its request to its report.
type zoneReload struct {
	names    []string // none: all
	began    time.Time
	compiled time.Time // when the files had been read and compiled
	report   control.ZoneReport
	waits    []zoneWait // workers that do not answer from the new zones yet
	failed   bool       // not every worker has the new zones

	news chan control.Event // what does not fit is dropped
	done chan struct{}      // closed with the report
}

// zoneWait is a worker that was told of new zones.
type zoneWait struct {
	gen     *generation
	process *process
	pid     int
	version uint64
	err     error // it cannot be told
}

// ReloadZones implements control.Backend.
func (s *Supervisor) ReloadZones(ctx context.Context, names []string, emit func(control.Event)) (*control.ZoneReport, error) {
	var r *zoneReload
	var refused error
	if err := s.ask(ctx, func() { r, refused = s.requestZones(names) }); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	for {
		select {
		case e := <-r.news:
			emit(e)
		case <-r.done:
			drainNews(r.news, emit)
			return &r.report, r.err()
		case <-s.done:
			return nil, errors.New("dnsapp has stopped")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// requestZones begins a reload of zones, or refuses it.
func (s *Supervisor) requestZones(names []string) (*zoneReload, error) {
	if s.generation(s.state.Active) == nil {
		return nil, control.Refuse("no generation serves yet")
	}
	canonical := make([]string, len(names))
	for i, name := range names {
		c, err := canonicalName(name)
		if err != nil {
			return nil, err
		}
		canonical[i] = c
	}
	if err := s.checkServed(canonical); err != nil {
		return nil, err
	}
	s.nextZoneReload++
	r := &zoneReload{names: canonical, began: time.Now(), news: make(chan control.Event, newsSize), done: make(chan struct{})}
	r.report = control.ZoneReport{ID: s.nextZoneReload, StartedAt: r.began}
	what := "all zones"
	if len(names) > 0 {
		what = countOf(len(names), "zone", "zones")
	}
	s.record(happening{kind: control.KindZones, text: fmt.Sprintf("zone reload %d is wanted (%s)", r.report.ID, what)})
	if t := s.takeZoneTurn(func(t *zoneTurn) { s.beginZones(r, t) }); !s.begun(t) {
		r.tell(s, "waits for another reload, which has not committed yet")
	}
	return r, nil
}

// canonicalName returns a zone's name as the configuration has it.
func canonicalName(name string) (string, error) {
	b, err := wire.AppendName(nil, []byte(name), []byte{0})
	if err != nil {
		return "", &control.Error{Code: control.CodeUsage, Message: fmt.Sprintf("%q is no domain name: %v", name, err)}
	}
	var n wire.Name
	n.SetLower(b)
	return wire.Text(n.Bytes()), nil
}

// checkServed refuses names of which no generation has a zone.
func (s *Supervisor) checkServed(names []string) error {
	if len(names) == 0 {
		return nil
	}
	served := make(map[string]bool)
	for _, z := range s.served(names) {
		served[z.Name] = true
	}
	e := control.Refuse("no zone was looked at")
	for _, name := range names {
		if !served[name] {
			e.Problems = append(e.Problems, control.Problem{Key: name, Message: "is not served", Want: "dnsappctl zone list says which are"})
		}
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// served returns the zones with these names, all if there are none, of all live
// generations, each version once.
func (s *Supervisor) served(names []string) []*zones.Zone {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	newest := s.generation(s.state.Active)
	list := newest.catalog.Zones
	if len(names) > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(z *zones.Zone) bool { return !wanted[z.Name] })
	}
	have := map[*zones.Zone]bool(nil)
	for _, g := range s.gens {
		if g == nil || g == newest {
			continue
		}
		if have == nil {
			list = slices.Clone(list)
			have = make(map[*zones.Zone]bool, len(list))
			for _, z := range list {
				have[z] = true
			}
		}
		for _, z := range g.catalog.Zones {
			if (len(names) == 0 || wanted[z.Name]) && !have[z] {
				have[z] = true
				list = append(list, z)
			}
		}
	}
	return list
}

// beginZones reads and compiles, beside the loop.
func (s *Supervisor) beginZones(r *zoneReload, t *zoneTurn) {
	if s.generation(s.state.Active) == nil { // everything has ended meanwhile
		s.endZoneTurn(t)
		return
	}
	list := s.served(r.names)
	r.report.Checked = len(list)
	r.tell(s, "looking at the files of "+countOf(len(list), "zone", "zones"))
	progress := func(done, of int) {
		if done == 0 {
			r.tell(s, "reading "+countOf(of, "zone", "zones")+" that may have changed")
		} else {
			r.tell(s, fmt.Sprintf("%d of %d read", done, of))
		}
	}
	s.jobs.Go(func() {
		u, err := s.zones.Refresh(s.background, list, progress)
		go s.post(func() { // the end of the loop waits for jobs, so they cannot wait for it
			s.swapZones(r, u, err)
			s.endZoneTurn(t)
		})
	})
}

// swapZones gives what was compiled to every worker.
func (s *Supervisor) swapZones(r *zoneReload, u *zones.Update, err error) {
	r.compiled = time.Now()
	r.report.Compile = control.Millis(r.compiled.Sub(r.began))
	if err != nil {
		r.failed = true
		r.report.Reason = err.Error()
		s.finishZones(r)
		return
	}
	r.report.Changed, r.report.Same, r.report.Failed = u.Compiled, u.Same, len(u.Failures)
	for _, f := range u.Failures {
		r.report.Problems = append(r.report.Problems, zoneProblems(f)...)
	}
	c := s.zones.Commit(u)
	for old, z := range c {
		if old.Report.Key != z.Report.Key && len(r.report.Zones) < control.MaxZoneChanges {
			r.report.Zones = append(r.report.Zones, control.ZoneChange{
				Name: z.Name, OldSerial: old.Report.Serial, Serial: z.Report.Serial, OldRecords: old.Report.Records, Records: z.Report.Records,
			})
		}
	}
	slices.SortFunc(r.report.Zones, func(a, b control.ZoneChange) int { return strings.Compare(a.Name, b.Name) })
	r.waits = s.spreadZones(c)
	s.zones.Done(u)
	r.report.Workers = len(r.waits)
	if len(r.waits) > 0 {
		r.tell(s, "new versions for "+countOf(len(r.waits), "worker", "workers"))
	}
	if n := len(s.zoneReloads); n > 0 {
		r.await(s.zoneReloads[n-1].waits)
	}
	s.zoneReloads = append(s.zoneReloads, r)
	s.checkZoneReloads()
}

// await adds what the reload before r still waits for: that may have read what r
// found unchanged, and when r has ended every worker is to serve it.
func (r *zoneReload) await(earlier []zoneWait) {
	for _, w := range earlier {
		if !slices.ContainsFunc(r.waits, func(o zoneWait) bool { return o.process == w.process && o.pid == w.pid && o.version >= w.version }) {
			r.waits = append(r.waits, w)
		}
	}
}

// checkZoneReloads ends the reloads that no worker is left to wait for.
func (s *Supervisor) checkZoneReloads() {
	s.zoneReloads = slices.DeleteFunc(s.zoneReloads, func(r *zoneReload) bool {
		r.waits = slices.DeleteFunc(r.waits, func(w zoneWait) bool { return w.over(r) })
		if len(r.waits) > 0 {
			return false
		}
		s.finishZones(r)
		return true
	})
}

// over reports whether w need not be waited for any more.
func (w *zoneWait) over(r *zoneReload) bool {
	fail := func(err error) bool {
		r.failed = true
		if r.report.Reason == "" {
			r.report.Reason = fmt.Sprintf("epoch %d keeps older zones: %v", w.gen.Epoch, err)
		}
		return true
	}
	if w.err != nil {
		return fail(w.err)
	}
	p := w.process
	switch {
	case p.proc == nil || p.proc.PID != w.pid:
		return true // whoever comes after it begins with the new zones
	case p.zones.has != nil && p.zones.has.Version >= w.version:
		return true
	case p.zones.err != nil && p.zones.sent == nil:
		return fail(p.zones.err)
	}
	return false
}

// finishZones completes the report.
func (s *Supervisor) finishZones(r *zoneReload) {
	now := time.Now()
	p := &r.report
	p.Elapsed = control.Millis(now.Sub(r.began))
	p.Swap = control.Millis(now.Sub(r.compiled))
	p.OK = !r.failed && p.Failed == 0
	if p.Reason == "" && p.Failed > 0 {
		p.Reason = "the last good version of " + countOf(p.Failed, "zone", "zones") + " is served on"
	}
	s.record(happening{kind: control.KindZones, text: fmt.Sprintf("zone reload %d has ended: %s", p.ID, p.Describe())})
	args := []any{"reload", p.ID, "checked", p.Checked, "changed", p.Changed, "failed", p.Failed,
		"elapsed", p.Elapsed.Duration().Round(time.Microsecond), "swap", p.Swap.Duration().Round(time.Microsecond)}
	if p.OK {
		s.log.Info("zones reloaded", args...)
	} else {
		s.log.Error("zones reloaded in part", append(args, "reason", p.Reason)...)
	}
	close(r.done)
}

// err is what the sender of a finished request is told.
func (r *zoneReload) err() error {
	if r.report.OK {
		return nil
	}
	return &control.Error{Code: control.CodeFailed, Message: r.report.Reason, Problems: r.report.Problems}
}

// tell sends news to whoever waits for r. It never blocks, and may be called
// beside the loop.
func (r *zoneReload) tell(s *Supervisor, text string) {
	now := time.Now()
	e := control.Event{Time: now, Elapsed: control.Millis(now.Sub(r.began)), Step: control.StepSteady, Text: text, Kind: control.KindZones}
	select {
	case r.news <- e:
	default:
	}
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
