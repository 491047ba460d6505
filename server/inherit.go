package server

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/server/zones"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// This file makes generations of what their workers tell. What they tell is
// input: each descriptor is checked before it is used.

// inherit fills the slots from the estates, and returns what the machine is to begin
// with. It returns false if nothing is known of the generation that owns the wire,
// or if that takes no new work any more.
func (s *Supervisor) inherit(orphans []*orphan) (e reload.Adopted, ok bool) {
	for slot := range directory.MaxSlots {
		if s.dir.Generation(slot).State == directory.Free {
			continue
		}
		g, err := s.inheritGeneration(slot, orphans)
		if err != nil {
			s.sockets.release(g.uses)
			if g.region != nil { // else it has nothing else either
				s.discard(g)
			}
			s.log.Error("a generation cannot be adopted", "slot", slot, "epoch", s.dir.Generation(slot).Epoch, "error", err)
			continue
		}
		s.gens[slot] = g
	}
	e = s.stateFound()
	for _, g := range s.gens {
		if g != nil && g.Epoch == e.Owner && s.stateOf(g).Live() && known(g.Epoch, orphans) && !stops(g.Epoch, orphans) {
			ok = true
			g.cfg = s.inheritConfig(g.cfg)
			s.cfg, s.secret = g.cfg, g.table.Secret()
			s.findPrimary()
		}
	}
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		for i, p := range g.workers {
			switch {
			case !ok:
			case p.proc != nil:
				s.attend(g, i)
			default:
				s.clearFlows(g, i)
				s.orphan(g, i)
			}
		}
	}
	return e, ok
}

// known reports whether somebody has told what the generation consists of.
func known(epoch uint32, orphans []*orphan) bool {
	return slices.ContainsFunc(orphans, func(o *orphan) bool { return o.Manifest.Epoch == epoch })
}

// stops reports whether a worker of the generation takes no new work, for good: a
// stop was under way.
func stops(epoch uint32, orphans []*orphan) bool {
	return slices.ContainsFunc(orphans, func(o *orphan) bool { return o.Manifest.Epoch == epoch && o.Stopping })
}

// inheritConfig is the configuration that the next reload is compared with: that
// of the generation, but for what this supervisor took from its own when it
// started.
func (s *Supervisor) inheritConfig(of *config.Config) *config.Config {
	c := *of
	c.File, c.Control, c.Admin, c.PIDFile, c.StateDir, c.User = s.cfg.File, s.cfg.Control, s.cfg.Admin, s.cfg.PIDFile, s.cfg.StateDir, s.cfg.User
	return &c
}

// inheritGeneration makes the generation in a slot. Without any estate of it, it
// has no sockets of its own and no rings, and ends soon. With an error the
// generation has what was taken before.
func (s *Supervisor) inheritGeneration(slot int, orphans []*orphan) (*generation, error) {
	d := s.dir.Generation(slot)
	var own []*orphan
	for _, o := range orphans {
		if o.Manifest.Slot == slot && o.Manifest.Epoch == d.Epoch && o.Manifest.Index < d.Workers {
			own = append(own, o)
		}
	}
	// The one that has the newest zones tells for all.
	slices.SortStableFunc(own, func(a, b *orphan) int { return int(int64(b.Version) - int64(a.Version)) })
	g := &generation{started: time.Now(), rings: make(map[int]*ringRegion), queryLog: noQueryLog, window: d.Window}
	g.Slot, g.Epoch = uint8(slot), d.Epoch
	if d.State == directory.Draining {
		g.drainEnd = d.Deadline
	}
	g.workers = make([]*process, d.Workers)
	for i := range g.workers {
		g.workers[i] = &process{index: i}
	}
	if len(own) == 0 {
		return g, s.inheritDead(g, d, orphans)
	}
	first := own[0]
	m := first.Manifest
	if m.Config.Workers != d.Workers || m.Config.Lanes != d.Lanes || len(m.Wakes[slot]) != d.Workers*d.Lanes {
		return g, fmt.Errorf("it has %d workers of %d lanes, and its configuration %d of %d", d.Workers, d.Lanes, m.Config.Workers, m.Config.Lanes)
	}
	g.cfg = m.Config
	g.bursts = make([]uint64, g.lanes())
	var err error
	if g.region, g.table, err = takeTable(first.FD(m.Tables[slot])); err != nil {
		return g, err
	}
	for _, fd := range m.Wakes[slot] {
		g.wakes = append(g.wakes, first.FD(fd))
	}
	for _, r := range m.Rings {
		c := s.dir.Generation(r.Consumer)
		if r.Producer != slot || c.State == directory.Free || m.Epochs[r.Consumer] != c.Epoch || g.rings[r.Consumer] != nil {
			continue
		}
		if g.rings[r.Consumer], err = takeRings(first.FD(r.FD), g.lanes(), c.Workers); err != nil {
			delete(g.rings, r.Consumer)
			return g, fmt.Errorf("rings to slot %d: %w", r.Consumer, err)
		}
	}
	if err := s.inheritSockets(g, first); err != nil {
		return g, err
	}
	s.sockets.inheritQueues(g, m.Queues)
	if err := s.backends.adopt(g.cfg, m.Servers); err != nil {
		return g, err
	}
	g.servers = m.Servers
	if fd := first.FD(m.QueryLog); fd >= 0 {
		g.queryLog = fd
	}
	for _, fd := range m.TAPs {
		g.taps = append(g.taps, first.FD(fd)) // noTAP for 0
	}
	var regions []zones.Region
	for _, z := range m.ZoneRegions {
		regions = append(regions, zones.Region{ID: z.ID, FD: first.FD(z.FD)})
	}
	if g.catalog, err = s.zones.Adopt(first.FD(m.Catalog), regions); err != nil {
		return g, err
	}
	return g, s.inheritWorkers(g, own)
}

// inheritDead completes a generation of which no worker is left. What is needed of
// it is who its workers were, and its flow table, which others look into.
func (s *Supervisor) inheritDead(g *generation, d directory.Generation, orphans []*orphan) (err error) {
	g.cfg = &config.Config{Workers: d.Workers, Lanes: d.Lanes, Reload: s.cfg.Reload}
	g.bursts = make([]uint64, g.lanes())
	for _, o := range orphans {
		if o.Manifest.Epochs[g.Slot] != g.Epoch || o.Manifest.Tables[g.Slot] == 0 {
			continue
		}
		if fd := o.FD(o.Manifest.Tables[g.Slot]); fd >= 0 {
			if g.region, g.table, err = takeTable(fd); err != nil {
				return err
			}
			break
		}
	}
	if g.table == nil { // nobody has seen it: nothing was forwarded to it
		if g.region, err = shm.Create(fmt.Sprintf("flows:%d", g.Slot), table.RegionSize(s.cfg.Reload.FlowTable)); err != nil {
			return err
		}
		if g.table, err = table.Format(g.region, s.cfg.Reload.FlowTable, s.cfg.Reload.UDPIdle, s.secret); err != nil {
			return err
		}
		g.window = 0
		s.dir.SetWindow(int(g.Slot), 0)
	}
	if g.catalog, err = s.zones.Catalog(new(zones.Update)); err != nil {
		return err
	}
	return s.inheritWorkers(g, nil)
}

// inheritWorkers takes the processes of g: those that have told their estate. Others
// are ended, if there are any: nobody could tell them anything.
func (s *Supervisor) inheritWorkers(g *generation, own []*orphan) error {
	for i, p := range g.workers {
		v := s.dir.Worker(int(g.Slot), i)
		pid, start := v.Process()
		at := slices.IndexFunc(own, func(o *orphan) bool { return o.Manifest.Index == i && o.PID == pid })
		if at < 0 {
			if err := s.killRecorded(int(g.Slot), i); err != nil {
				return err
			}
			v.SetGone()
			continue
		}
		proc, err := spawn.Adopt(pid, start)
		if errors.Is(err, os.ErrProcessDone) {
			v.SetGone()
			continue
		}
		if err != nil {
			return err
		}
		o := own[at]
		p.proc, p.link, p.started = proc, worker.LinkOf(o.conn), time.Now()
		p.ready = v.IsReady(g.Epoch, pid)
		p.zones = zonesOf{has: g.catalog}
		if o.Version != g.catalog.Version {
			p.zones.has = nil
			s.sendZones(g, p)
		}
		o.conn = nil
	}
	return nil
}

// takeTable maps a flow table.
func takeTable(fd int) (*shm.Region, *table.Table, error) {
	r, err := mapOwned(fd)
	if err != nil {
		return nil, nil, fmt.Errorf("flow table: %w", err)
	}
	t, err := table.Attach(r)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("flow table: %w", err), r.Close())
	}
	return r, t, nil
}

// takeRings maps the rings from lanes to the workers of another generation.
func takeRings(fd, lanes, workers int) (*ringRegion, error) {
	r, err := mapOwned(fd)
	if err != nil {
		return nil, err
	}
	rings, err := ring.Attach(r)
	if err == nil && (rings.Lanes() < lanes || rings.Workers() < workers) {
		err = fmt.Errorf("they are of %d lanes to %d workers, not of %d to %d", rings.Lanes(), rings.Workers(), lanes, workers)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &ringRegion{region: r, rings: rings}, nil
}

// inheritSockets takes the sockets that g lists.
func (s *Supervisor) inheritSockets(g *generation, o *orphan) error {
	for _, ref := range o.Manifest.Sockets {
		have := s.sockets.byID[ref.ID]
		if have == nil {
			var err error
			if have, err = inheritSocket(ref, o.FD(ref.FD)); err != nil {
				return fmt.Errorf("socket %d: %w", ref.ID, err)
			}
			s.sockets.adopt(have)
		}
		if have.address != ref.Address || have.tcp != ref.TCP {
			return fmt.Errorf("socket %d is of %v and of %v", ref.ID, have.address, ref.Address)
		}
		have.users++
		g.uses = append(g.uses, use{socket: have, listener: ref.Listener})
	}
	return nil
}

// inheritSocket checks that a descriptor is the socket that it is said to be.
func inheritSocket(ref worker.SocketRef, fd int) (*socket, error) {
	s := &socket{socketKey: socketKey{address: ref.Address, tcp: ref.TCP, lane: ref.Lane}, id: ref.ID, fd: fd}
	if fd < 0 { // closed in a stop
		s.bound = true
		return s, nil
	}
	fail := func(err error) (*socket, error) {
		unix.Close(fd)
		return nil, err
	}
	want := unix.SOCK_DGRAM
	if ref.TCP {
		want = unix.SOCK_STREAM
	}
	if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || got != want {
		return fail(fmt.Errorf("its type is %d, not %d (%w)", got, want, errOr(err)))
	}
	at, err := netio.LocalAddr(fd)
	if err != nil {
		return fail(err)
	}
	s.bound = at.Port() != 0
	wanted := netip.AddrPortFrom(ref.Address.Addr().Unmap().WithZone(""), ref.Address.Port())
	if s.bound && at != wanted {
		return fail(fmt.Errorf("it is bound to %v, not to %v", at, ref.Address))
	}
	if !ref.TCP {
		if n, err := netio.Drops(fd); err == nil {
			s.count(uint32(n))
		}
		return s, nil
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return fail(err)
	}
	s.listening = listens != 0
	return s, nil
}

// errOr is err, or that there was none.
func errOr(err error) error {
	if err == nil {
		return errors.New("not a socket of this listener")
	}
	return err
}

// forgetGenerations gives back what inherit has made, when nothing comes of it.
func (s *Supervisor) forgetGenerations() {
	for slot, g := range s.gens {
		if g == nil {
			continue
		}
		for _, p := range g.workers {
			if p.link != nil {
				_ = p.link.Close()
			}
			if p.proc != nil {
				p.proc.Release()
			}
		}
		s.sockets.release(g.uses)
		s.gens[slot] = nil
		s.discard(g)
	}
}
