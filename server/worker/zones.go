package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/shm"
)

// zoneKeeper holds the zones of a worker and gives them to its engines. After
// the start it belongs to the control goroutine.
type zoneKeeper struct {
	log     *slog.Logger
	view    *catalog.View
	set     *zone.Set
	list    *shm.Region // the catalog of set
	version uint64      // of that
	counts  *counters.Zones
	engines []*auth.Engine
	users   *grace.Domain // the lanes, and whoever answers for streams
}

// newZoneKeeper maps the zones of a manifest.
func newZoneKeeper(m *Manifest, users *grace.Domain, log *slog.Logger) (*zoneKeeper, error) {
	k := &zoneKeeper{log: log, view: catalog.NewView(), users: users}
	for _, ref := range m.ZoneRegions {
		if err := k.view.Map(ref.ID, ref.FD); err != nil {
			return nil, err
		}
	}
	r, err := shm.Map(m.ZoneCounters)
	if err != nil {
		return nil, fmt.Errorf("zone counters: %w", err)
	}
	if k.counts, err = counters.AttachZones(r); err != nil {
		return nil, err
	}
	if k.set, _, err = k.open(m.Catalog); err != nil {
		return nil, err
	}
	return k, nil
}

// lists returns the descriptors of the present catalog and of its regions.
func (k *zoneKeeper) lists() (fd int, regions []ZoneRef) {
	for id, fd := range k.view.Regions() {
		regions = append(regions, ZoneRef{ID: id, FD: fd})
	}
	return k.list.Fd(), regions
}

// serve makes an engine answer from the zones, now and from now on.
func (k *zoneKeeper) serve(e *auth.Engine) {
	e.CountZones(k.counts)
	e.SetZones(k.set)
	k.engines = append(k.engines, e)
}

// addRegions maps regions for the next catalog. The descriptors are taken over.
func (k *zoneKeeper) addRegions(ids []uint64, fds []int) error {
	if len(ids) != len(fds) {
		closeAll(fds)
		return fmt.Errorf("%d zone regions came with %d descriptors", len(ids), len(fds))
	}
	for i, fd := range fds {
		if err := k.view.Map(ids[i], fd); err != nil {
			closeAll(fds[i+1:])
			return err
		}
	}
	return nil
}

// swap makes every lane answer from the zones of the catalog behind fd, which is
// taken over, from its next burst on. The regions that are no longer needed are
// closed when no lane and no stream can have anything in them. On error the
// zones are what they were.
func (k *zoneKeeper) swap(ctx context.Context, fd int) error {
	set, unused, err := k.open(fd)
	if err != nil {
		k.close(k.view.Prune()) // of them no set was made
		return err
	}
	k.set = set
	for _, e := range k.engines {
		e.SetZones(set)
	}
	go func() {
		if k.users.Wait(ctx) == nil { // else the process ends, and its mappings with it
			k.close(unused)
		}
	}()
	return nil
}

// open makes a set of the zones of the catalog behind fd, which is taken over.
func (k *zoneKeeper) open(fd int) (*zone.Set, []*shm.Region, error) {
	r, err := shm.MapReadOnly(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, fmt.Errorf("catalog: %w", err)
	}
	c, err := catalog.Read(r)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	set, unused, err := k.view.Switch(c)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	if k.list != nil {
		k.close([]*shm.Region{k.list})
	}
	k.list, k.version = r, c.Version
	return set, unused, nil
}

func (k *zoneKeeper) close(regions []*shm.Region) {
	for _, r := range regions {
		if err := r.Close(); err != nil {
			k.log.Error("closing a zone region", "error", err)
		}
	}
}

// takeZones carries out OpZones and says how it went.
func (w *Worker) takeZones(ctx context.Context, version uint64, fds []int) {
	said := Message{Op: OpZoned, Version: version}
	err := errors.New("a catalog without its descriptor")
	if len(fds) == 1 {
		err = w.zones.swap(ctx, fds[0])
	} else {
		closeAll(fds)
	}
	if err != nil {
		w.log.Error("taking zones", "version", version, "error", err)
		said.Error = err.Error()
		said.Error = said.Error[:min(len(said.Error), maxMessage/2)]
	}
	if err := w.say(said); err != nil {
		w.log.Debug("answering the supervisor", "error", err)
	}
}
