package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
)

// This file is how a supervisor comes by the workers of one that is gone. It
// knocks at the door of each, is told what the worker has, with all descriptors,
// and makes of that what a supervisor keeps: see inherit.go. The flock on the
// control directory is held; so there is nobody else.

// orphan is a worker without a supervisor that has opened its door.
type orphan struct {
	*worker.Estate
	conn *net.UnixConn // nil: the estate was told by the supervisor before
	door string
}

// close lets go of an orphan: it waits for the next supervisor.
func (o *orphan) close() {
	if o.conn != nil {
		_ = o.conn.Close()
	}
	o.Estate.Close()
}

// orphansError says that there are workers that this binary cannot adopt.
type orphansError struct {
	dir string
	err error
}

// Error names the reason and the remedies.
func (e *orphansError) Error() string {
	return fmt.Sprintf("workers of another supervisor serve on (control directory %s) and cannot be adopted: %v; start the binary that they are of, or end them with dnsapp serve --fresh", e.dir, e.err)
}

// Unwrap returns the reason.
func (e *orphansError) Unwrap() error { return e.err }

// ExitCode returns exit.Refused.
func (e *orphansError) ExitCode() int { return exit.Refused }

// dirPath is the control directory.
func (s *Supervisor) dirPath() string { return filepath.Dir(s.cfg.Control) }

// findOrphans knocks at every door of a worker. A worker that does not open in time
// is left out.
func (s *Supervisor) findOrphans() ([]*orphan, error) {
	doors, err := handover.Workers(s.dirPath())
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var found []*orphan
	var errs []error
	shut := 0
	var all sync.WaitGroup
	for _, d := range doors {
		all.Go(func() {
			o, err := s.knock(d)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				found = append(found, o)
			case errors.Is(err, handover.ErrNobody):
				if err := handover.Remove(s.dirPath(), d.Name); err != nil {
					s.log.Warn("removing a door", "error", err)
				}
			case errors.Is(err, os.ErrDeadlineExceeded): // it stands still; the others tell its pid
				s.log.Warn("a worker of another supervisor does not open", "epoch", d.Epoch, "worker", d.Index)
				shut++
			default:
				errs = append(errs, fmt.Errorf("worker %d of epoch %d: %w", d.Index, d.Epoch, err))
			}
		})
	}
	all.Wait()
	if shut > 0 && len(found) == 0 {
		errs = append(errs, fmt.Errorf("%d workers do not answer", shut))
	}
	if errs != nil {
		for _, o := range found {
			o.close()
		}
		return nil, &orphansError{dir: s.dirPath(), err: errors.Join(errs...)}
	}
	slices.SortFunc(found, func(a, b *orphan) int {
		if a.Manifest.Epoch != b.Manifest.Epoch {
			return int(a.Manifest.Epoch) - int(b.Manifest.Epoch)
		}
		return a.Manifest.Index - b.Manifest.Index
	})
	return found, nil
}

// knock takes one worker.
func (s *Supervisor) knock(d handover.Door) (*orphan, error) {
	c, err := handover.Knock(s.dirPath(), d.Name)
	if err != nil {
		return nil, err
	}
	e, err := worker.ReceiveEstate(c)
	if err == nil {
		err = handover.ShowSender(c, false)
	}
	if err != nil {
		_ = c.Close()
		if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) { // it has ended
			err = fmt.Errorf("%w: %w", handover.ErrNobody, err)
		}
		return nil, err
	}
	return &orphan{Estate: e, conn: c, door: d.Name}, nil
}

// adopt takes over what an earlier supervisor has left: its workers, sockets and
// regions. Without any it does nothing, and the boot makes everything new. With
// Fresh the workers are ended first.
func (s *Supervisor) adopt() error {
	if s.options.Fresh {
		if err := s.endUnknown(); err != nil {
			return err
		}
		s.takeStoredSockets()
		return nil
	}
	began := time.Now()
	orphans, err := s.findOrphans()
	if err != nil {
		return err
	}
	if s.taking != nil {
		for _, e := range s.taking.estates {
			orphans = append(orphans, &orphan{Estate: e})
		}
		s.taking.estates = nil
	}
	if len(orphans) == 0 {
		if err := s.adoptStored(); err != nil {
			return err
		}
		s.takeStoredSockets()
		return nil
	}
	defer func() {
		for _, o := range orphans {
			o.Estate.Close() // what nobody has taken
		}
	}()
	if err := s.adoptRegions(orphans); err != nil {
		for _, o := range orphans {
			o.close()
		}
		return &orphansError{dir: s.dirPath(), err: err}
	}
	e, ok := s.inherit(orphans)
	if !ok {
		if err := s.endOrphans(orphans); err != nil {
			return err
		}
		s.takeStoredSockets()
		return nil
	}
	for slot, g := range s.gens {
		if g == nil {
			if err := s.endSlot(slot); err != nil {
				return err
			}
		}
	}
	before := s.dir.Coordinator().PID
	s.feed(e)
	s.step()
	s.afterAdoption()
	s.log.Info("adopted", "from", before, "epoch", e.Owner, "workers", len(orphans), "elapsed", time.Since(began).Round(time.Microsecond))
	return nil
}

// adoptRegions maps the shared memory of the orphans in the place of the own. All
// of them have the same, or do not belong together.
func (s *Supervisor) adoptRegions(orphans []*orphan) error {
	first := orphans[0]
	for _, o := range orphans[1:] {
		for _, pair := range [][2]int{{first.Manifest.Directory, o.Manifest.Directory}, {first.Manifest.Counters, o.Manifest.Counters}} {
			if !sameFile(first.FDs[pair[0]-worker.FirstFD], o.FDs[pair[1]-worker.FirstFD]) {
				return fmt.Errorf("worker %d of epoch %d and worker %d of epoch %d are of two instances",
					first.Manifest.Index, first.Manifest.Epoch, o.Manifest.Index, o.Manifest.Epoch)
			}
		}
	}
	m := first.Manifest
	return s.adoptRegionsOf(regions{
		directory: first.FD(m.Directory), counters: first.FD(m.Counters), zoneCounters: first.FD(m.ZoneCounters), backends: first.FD(m.Backends),
	})
}

// regions is descriptors of the shared memory of an instance.
type regions struct {
	directory, counters, zoneCounters int
	backends                          int // 0: none
}

func (r *regions) close() {
	for _, fd := range []int{r.directory, r.counters, r.zoneCounters, r.backends} {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}

// adoptRegionsOf takes the descriptors over, and maps them in the place of the own
// memory: all, or none.
func (s *Supervisor) adoptRegionsOf(r regions) (err error) {
	var mapped []*shm.Region
	take := func(fd *int, what string) (*shm.Region, error) {
		region, err := mapOwned(*fd)
		*fd = 0
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		mapped = append(mapped, region)
		return region, nil
	}
	defer func() {
		r.close()
		if err != nil {
			for _, region := range mapped {
				err = errors.Join(err, region.Close())
			}
		}
	}()
	dirRegion, err := take(&r.directory, "directory")
	if err != nil {
		return err
	}
	dir, err := directory.Attach(dirRegion)
	if err != nil {
		return err
	}
	countersRegion, err := take(&r.counters, "counters")
	if err != nil {
		return err
	}
	set, err := counters.Attach(countersRegion)
	if err != nil {
		return err
	}
	zoneRegion, err := take(&r.zoneCounters, "zone counters")
	if err != nil {
		return err
	}
	zoneCounters, err := counters.AttachZones(zoneRegion)
	if err != nil {
		return err
	}
	if fd := r.backends; fd != 0 {
		r.backends = 0
		if err := s.backends.adoptRegion(fd); err != nil {
			return err
		}
	}
	mapped = []*shm.Region{s.dirRegion, s.countersRegion, s.zoneRegion}
	s.dirRegion, s.countersRegion, s.zoneRegion = dirRegion, countersRegion, zoneRegion
	s.dir, s.counters, s.zoneCounters = dir, set, zoneCounters
	if deadline, ok := dir.LastPark(); ok {
		s.lastDeadline = deadline
	}
	// A park that nobody names any more lay a lease ahead of its own time at most.
	if now := mono.Millis() + 2*uint32(directory.Lease/time.Millisecond); mono.Age(now, s.lastDeadline) > 0 {
		s.lastDeadline = now
	}
	s.readTallies()
	s.keeper.adopted = true
	for _, own := range mapped { // what they were before
		if err := own.Close(); err != nil {
			s.log.Error("closing a region", "error", err)
		}
	}
	return nil
}

// mapOwned is shm.Map, and closes fd where that fails.
func mapOwned(fd int) (*shm.Region, error) {
	r, err := shm.Map(fd)
	if err != nil && fd >= 0 {
		unix.Close(fd)
	}
	return r, err
}

// sameFile reports whether two descriptors are of one file.
func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// afterAdoption tells the workers what they may have missed.
func (s *Supervisor) afterAdoption() {
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		for _, p := range g.workers {
			if p.link == nil {
				continue
			}
			for slot, o := range s.gens {
				if o != nil {
					continue
				}
				if err := p.link.Send(worker.Message{Op: worker.OpClosed, Producer: slot}); err != nil {
					s.log.Debug("telling a worker that a generation is gone", "error", err)
				}
			}
			s.tellAll(g, p)
		}
	}
}

// killWait bounds how long a process that was killed may take to go.
const killWait = 10 * time.Second

// endOrphans ends workers that serve nothing that could go on, and folds what they
// have counted. The boot follows.
func (s *Supervisor) endOrphans(orphans []*orphan) error {
	s.log.Warn("ending the workers of another supervisor", "workers", len(orphans))
	s.forgetGenerations()
	for slot := range directory.MaxSlots {
		if err := s.endSlot(slot); err != nil {
			return err
		}
	}
	for _, o := range orphans {
		o.close()
		if err := handover.Remove(s.dirPath(), o.door); err != nil {
			s.log.Warn("removing a door", "error", err)
		}
	}
	if w := s.dir.Owner(); w.IsPark() {
		_ = s.dir.Unpark(w) // or a lapse was first
	}
	return nil
}

// endSlot ends the generation in a slot, if there is one, and folds what it has
// counted.
func (s *Supervisor) endSlot(slot int) error {
	g := s.dir.Generation(slot)
	if g.State == directory.Free {
		return nil
	}
	for i := range g.Workers {
		if err := s.killRecorded(slot, i); err != nil {
			return err
		}
	}
	s.counters.Fold(slot, g.Epoch, g.Workers*g.Lanes)
	s.backends.region.Close(slot)
	s.dir.SetWindow(slot, 0)
	s.dir.SetState(slot, directory.Free)
	return nil
}

// endUnknown ends whoever stands behind a door of a worker, whatever binary it is
// of: only its pid is asked for.
func (s *Supervisor) endUnknown() error {
	doors, err := handover.Workers(s.dirPath())
	if err != nil {
		return err
	}
	for _, d := range doors {
		if err := s.endBehind(d); err != nil && !errors.Is(err, handover.ErrNobody) {
			return fmt.Errorf("ending worker %d of epoch %d: %w", d.Index, d.Epoch, err)
		}
		if err := handover.Remove(s.dirPath(), d.Name); err != nil {
			s.log.Warn("removing a door", "error", err)
		}
	}
	return nil
}

// endBehind ends the worker behind one door.
func (s *Supervisor) endBehind(d handover.Door) error {
	c, err := handover.Knock(s.dirPath(), d.Name)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(killWait)); err != nil {
		return err
	}
	p, err := handover.Receive(c, killWait)
	if err != nil {
		return err
	}
	p.Close()
	s.log.Warn("ending a worker of another supervisor", "epoch", d.Epoch, "worker", d.Index, "pid", p.PID)
	proc, err := spawn.AdoptNow(p.PID)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	return end(proc)
}

// killRecorded kills the process that the directory names, and waits for its end.
func (s *Supervisor) killRecorded(slot, i int) error {
	v := s.dir.Worker(slot, i)
	pid, start := v.Process()
	if pid == 0 || v.IsGone() {
		return nil
	}
	p, err := spawn.Adopt(pid, start)
	if errors.Is(err, os.ErrProcessDone) {
		v.SetGone()
		return nil
	}
	if err != nil {
		return err
	}
	if err := end(p); err != nil {
		return err
	}
	v.SetGone()
	return nil
}

// end kills a process and waits until it has gone.
func end(p *spawn.Process) error {
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = p.Wait() // how it ended is known
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("process %d is still there %v after SIGKILL", p.PID, killWait)
	}
}

// stateFound is what the directory says of the generations now in s.gens.
func (s *Supervisor) stateFound() reload.Adopted {
	e := reload.Adopted{Owner: s.dir.Owner().Epoch()}
	for slot, g := range s.gens {
		if g == nil {
			continue
		}
		d := s.dir.Generation(slot)
		f := reload.Found{Epoch: d.Epoch, Mark: d.State, Window: d.Window != 0, Workers: len(g.workers)}
		for i, p := range g.workers {
			if p.ready {
				f.Up |= reload.OneWorker(i)
			}
		}
		e.Found[slot] = f
	}
	return e
}
