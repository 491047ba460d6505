package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// preparation is T0 in progress, or done and not started yet.
type preparation struct {
	reload.Prepare
	cancel context.CancelFunc
	turn   *zoneTurn
	gen    *generation // once it is done
}

// prepare carries out Prepare. Reading and compiling happen beside the loop;
// what touches shared state happens in it, at the end, and all at once.
func (s *Supervisor) prepare(f reload.Prepare) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &preparation{Prepare: f, cancel: cancel}
	s.preparing[f.Order] = p
	boot := s.state.Active == (reload.Generation{})
	old, workers := s.cfg, len(s.livingWorkers()) > 0
	s.hasten(hastePreparing)
	p.turn = s.takeZoneTurn(func(t *zoneTurn) {
		go func() {
			w, err := s.read(ctx, old, boot, workers)
			w.zones.turn = t
			s.post(func() {
				defer cancel()
				if s.preparing[f.Order] != p { // cancelled
					s.abandon(w)
					return
				}
				if err == nil {
					err = s.assemble(p, w)
				}
				if err != nil {
					delete(s.preparing, f.Order)
					s.abandon(w)
					s.prepareFailed(f, err)
					return
				}
				s.feed(reload.Prepared{Order: f.Order, Epoch: p.gen.Epoch, Workers: w.cfg.Workers})
			})
		}()
	})
}

// groundwork is what T0 makes beside the loop.
type groundwork struct {
	cfg      *config.Config
	zones    newZones
	queryLog int          // descriptor, or noQueryLog
	macs     []header.MAC // of devices. Valid iff a TAP device is wanted
}

// read does the part of T0 that needs nothing of the loop. What it has made is
// there with an error, too.
func (s *Supervisor) read(ctx context.Context, old *config.Config, boot, workers bool) (w groundwork, err error) {
	w.cfg, w.queryLog = old, noQueryLog // at boot the configuration has just been read
	if !boot {
		if w.cfg, err = config.Load(s.path); err != nil {
			return w, err
		}
		if refused := config.Refusals(old, w.cfg); len(refused) > 0 {
			return w, config.Problems(refused)
		}
	}
	if err = s.ensurePrimary(ctx, w.cfg, workers); err != nil {
		return w, err
	}
	if w.macs, err = linkAddresses(ctx, w.cfg); err != nil {
		return w, err
	}
	if w.queryLog, err = openQueryLog(w.cfg); err != nil {
		return w, err
	}
	if w.zones.update, err = s.zones.Prepare(ctx, w.cfg.Zones); err != nil {
		return w, err
	}
	w.zones.catalog, err = s.zones.Catalog(w.zones.update)
	if len(w.cfg.Zones) > manyZones {
		debug.FreeOSMemory()
	}
	return w, err
}

// abandon gives up what read has made.
func (s *Supervisor) abandon(w groundwork) {
	s.dropZones(w.zones)
	s.closeQueryLog(w.queryLog)
}

// manyZones is from how many zones on what a configuration takes while it is read
// (about 3 KiB a zone) is worth a garbage collection.
const manyZones = 10_000

// assemble makes the generation. On error it leaves nothing behind, but for the
// groundwork, which stays the caller's.
func (s *Supervisor) assemble(p *preparation, w groundwork) error {
	cfg := w.cfg
	share := p.Mode == reload.Graceful
	if err := s.ensureFiles(cfg); err != nil {
		return err
	}
	servers, err := s.backends.claim(cfg)
	if err != nil {
		return err
	}
	bound, err := s.sockets.bind(cfg, share)
	if err != nil {
		s.backends.release(cfg, servers)
		return &bindError{err}
	}
	for _, ap := range bound.short {
		s.log.Warn("the receive buffer is smaller than wanted: raise net.core.rmem_max, or give CAP_NET_ADMIN", "address", ap)
	}
	g := &generation{cfg: cfg, uses: bound.uses, newZones: w.zones, queryLog: w.queryLog, servers: servers, started: time.Now(), rings: make(map[int]*ringRegion)}
	g.Slot = p.Slot
	undo := func(err error) error {
		s.closeTAPs(g)
		err = errors.Join(err, s.closeRings(g))
		for _, fd := range g.wakes {
			unix.Close(fd)
		}
		if g.region != nil {
			err = errors.Join(err, g.region.Close())
		}
		s.sockets.release(g.uses)
		s.backends.release(cfg, servers)
		return err
	}
	if err = s.openTAPs(g, w.macs); err != nil {
		return undo(err)
	}
	if g.region, err = shm.Create(fmt.Sprintf("flows:%d", p.Slot), table.RegionSize(cfg.Reload.FlowTable)); err != nil {
		return undo(err)
	}
	if g.table, err = table.Format(g.region, cfg.Reload.FlowTable, cfg.Reload.UDPIdle, s.secret); err != nil {
		return undo(err)
	}
	for range g.lanes() {
		fd, err := netio.NewWake()
		if err != nil {
			return undo(err)
		}
		g.wakes = append(g.wakes, fd)
	}
	if cfg.Workers > 1 { // for siblings
		if err := s.makeRings(g, g); err != nil {
			return undo(err)
		}
	}
	for _, o := range s.gens {
		if o == nil || !share {
			continue
		}
		// From it, and to it should the wire come back.
		if err := errors.Join(s.makeRings(g, o), s.makeRings(o, g)); err != nil {
			return undo(err)
		}
	}
	g.bursts = make([]uint64, g.lanes())
	for i := range cfg.Workers {
		g.workers = append(g.workers, &process{index: i})
	}
	ids := make([]uint32, 0, len(g.uses))
	for _, u := range g.uses {
		ids = append(ids, u.id)
	}
	g.Epoch = s.dir.NewEpoch()
	if err := s.dir.Open(int(p.Slot), g.Epoch, cfg.Workers, cfg.Lanes, ids); err != nil {
		return undo(err)
	}
	s.backends.region.Open(int(p.Slot), g.lanes())
	p.gen = g
	s.gens[p.Slot] = g
	return nil
}

// makeRings makes the rings from the lanes of g to the workers of o.
func (s *Supervisor) makeRings(g, o *generation) error {
	lanes, workers := g.lanes(), o.cfg.Workers
	bytes := worker.RingBytes(lanes, workers)
	r, err := shm.Create(fmt.Sprintf("rings:%d:%d", g.Slot, o.Slot), ring.RegionSize(lanes, workers, bytes))
	if err != nil {
		return err
	}
	rings, err := ring.Format(r, lanes, workers, bytes)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	g.rings[int(o.Slot)] = &ringRegion{region: r, rings: rings}
	return nil
}

// prepareFailed tells why T0 failed: to the log here, to whoever asked through
// the report.
func (s *Supervisor) prepareFailed(f reload.Prepare, err error) {
	if r := s.requests[f.Request]; r != nil {
		r.problems, r.refusal = problemsOf(err), refusalOf(err)
	}
	s.feed(reload.PrepareFailed{Order: f.Order, Reason: err.Error()})
}

// cancelPrepare carries out CancelPrepare.
func (s *Supervisor) cancelPrepare(order uint32) {
	p := s.preparing[order]
	if p == nil {
		return
	}
	delete(s.preparing, order)
	p.cancel()
	if !s.begun(p.turn) {
		s.endZoneTurn(p.turn)
	}
	if g := p.gen; g != nil {
		s.dir.SetState(int(g.Slot), directory.Free)
		s.sockets.release(g.uses)
		s.gens[g.Slot] = nil
		s.discard(g)
	}
}

// spawnAll carries out SpawnWorkers.
func (s *Supervisor) spawnAll(f reload.SpawnWorkers) {
	g := s.generation(f.Gen)
	if g == nil {
		return
	}
	for order, p := range s.preparing {
		if p.gen == g {
			delete(s.preparing, order)
		}
	}
	if f.Mode == reload.Restart {
		// The plain way: it reads as soon as it runs, whoever else does.
		if old := s.generation(s.state.Active); old != nil {
			s.replaces(old)
		}
		s.dir.SetState(int(g.Slot), directory.Active)
		if err := s.sockets.listen(g.uses); err != nil {
			s.log.Error("listening", "epoch", g.Epoch, "error", err)
		}
	}
	s.hasten(hasteHandover)
	for i := range g.workers {
		s.spawnWorker(g, i)
	}
}
