package server

import (
	"errors"
	"slices"

	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/server/zones"
)

// newZones is what T0 makes of the zones: their newest versions, which become
// those of every generation at the commit.
type newZones struct {
	turn    *zoneTurn
	update  *zones.Update
	catalog *zones.Catalog // of the new generation
}

// dropZones gives up what was made for a generation that does not come to be.
func (s *Supervisor) dropZones(n newZones) {
	s.zones.Release(n.catalog)
	s.settleZones(n.update, n.turn)
}

// settleZones ends an update, committed or not, and the turn it was made in.
func (s *Supervisor) settleZones(u *zones.Update, t *zoneTurn) {
	if u != nil {
		s.zones.Done(u)
	}
	if t != nil {
		s.endZoneTurn(t)
	}
}

// commitZones makes the zones of g, which has the wire now, those of all.
func (s *Supervisor) commitZones(g *generation) {
	if g.update == nil {
		return
	}
	s.spreadZones(s.zones.Commit(g.update))
	s.settleZones(g.update, g.turn)
	g.update, g.turn = nil, nil
}

// spreadZones gives every generation the zones that take the place of others,
// and returns what it waits for.
func (s *Supervisor) spreadZones(c zones.Change) []zoneWait {
	var waits []zoneWait
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		next, err := s.zones.Follow(g.catalog, c)
		if err != nil { // out of memory or descriptors
			s.log.Error("zones of a generation stay as they are", "epoch", g.Epoch, "error", err)
			waits = append(waits, zoneWait{gen: g, err: err})
			continue
		}
		if next == nil {
			continue
		}
		s.zones.Release(g.catalog)
		g.catalog = next
		for _, p := range g.workers {
			if p.proc != nil {
				waits = append(waits, zoneWait{gen: g, process: p, pid: p.proc.PID, version: next.Version})
				s.sendZones(g, p)
			}
		}
	}
	return waits
}

// sendZones tells a worker of the zones of its generation, unless an earlier
// catalog is on its way: then that is done once it has answered. So a worker that
// is stopped has one catalog to catch up with, not hundreds.
func (s *Supervisor) sendZones(g *generation, p *process) {
	if p.link == nil || p.zones.sent != nil || p.zones.has == g.catalog {
		return
	}
	c, had, link := g.catalog, p.zones.has, p.link
	p.zones.sent = c
	s.zones.Retain(c) // its descriptors, until they are sent
	go func() {
		err := sendCatalog(link, c, had)
		s.post(func() {
			s.zones.Release(c)
			if err != nil && p.link == link {
				s.log.Warn("telling a worker of new zones", "epoch", g.Epoch, "worker", p.index, "error", err)
			}
		})
	}()
}

// sendCatalog sends a catalog and the regions that the worker does not have. It
// blocks while the worker takes nothing.
func sendCatalog(link *worker.Link, c, had *zones.Catalog) error {
	fresh := slices.DeleteFunc(slices.Clone(c.Regions), func(r zones.Region) bool {
		return had != nil && slices.ContainsFunc(had.Regions, func(o zones.Region) bool { return o.ID == r.ID })
	})
	for chunk := range slices.Chunk(fresh, worker.MaxFDs) {
		m := worker.Message{Op: worker.OpRegions}
		var fds []int
		for _, r := range chunk {
			m.IDs = append(m.IDs, r.ID)
			fds = append(fds, r.FD)
		}
		if err := link.Send(m, fds...); err != nil {
			return err
		}
	}
	return link.Send(worker.Message{Op: worker.OpZones, Version: c.Version}, c.FD())
}

// zonesTaken notes that a worker answers from the catalog it was sent, or why it
// does not.
func (s *Supervisor) zonesTaken(g *generation, p *process, m worker.Message) {
	c := p.zones.sent
	if c == nil || c.Version != m.Version {
		s.log.Error("a worker answers for zones that it was not sent", "epoch", g.Epoch, "worker", p.index, "version", m.Version)
		return
	}
	p.zones.sent, p.zones.err = nil, nil
	if m.Error != "" {
		p.zones.err = errors.New(m.Error)
		s.log.Error("a worker keeps its zones", "epoch", g.Epoch, "worker", p.index, "version", m.Version, "error", m.Error)
	} else {
		p.zones.has = c
	}
	if c != g.catalog {
		s.sendZones(g, p)
	}
	s.checkZoneReloads()
}
