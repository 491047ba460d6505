package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"

	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/metrics"
)

// listenAdmin binds the address of metrics and health checks.
func (s *Supervisor) listenAdmin(ap netip.AddrPort) error {
	l, err := net.Listen("tcp", ap.String())
	if err != nil {
		return fmt.Errorf("admin: %w (choose another address, or \"off\")", err)
	}
	s.admin = metrics.NewServer(s, s.log)
	go func() {
		if err := s.admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("serving metrics", "error", err)
		}
	}()
	return nil
}

// Ready implements metrics.Source. It does not wait for the loop: the directory
// says whether a generation serves.
func (s *Supervisor) Ready(context.Context) error {
	owner := s.dir.Owner().Epoch()
	for slot := range directory.MaxSlots {
		g := s.dir.Generation(slot)
		if owner == 0 || g.Epoch != owner || g.State != directory.Active {
			continue
		}
		for i := range g.Workers {
			if w := s.dir.Worker(slot, i); w.IsReady(g.Epoch, w.PID()) && !w.IsGone() {
				return nil
			}
		}
	}
	return errors.New("no generation serves")
}

// Sample implements metrics.Source.
func (s *Supervisor) Sample(ctx context.Context) (*metrics.Sample, error) {
	var m *metrics.Sample
	if err := s.ask(ctx, func() { m = s.sample() }); err != nil {
		return nil, err // the loop may still be writing m
	}
	m.PerZone = s.zoneMetrics()
	return m, nil
}

func (s *Supervisor) sample() *metrics.Sample {
	m := &metrics.Sample{
		Version: s.options.Version, StartedAt: s.started, ConfigLoadedAt: s.loadedAt,
		Counters: *s.snapshot(), Step: s.currentStep(), Reloads: maps.Clone(s.outcomes),
		LastReload: s.lastReport, Respawns: s.respawned, Zones: len(s.cfg.Zones), StaleZones: s.zones.Stale(),
	}
	owner := s.dir.Owner().Epoch()
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		c := metrics.Generation{Epoch: g.Epoch, State: s.stateOf(g).String(), RxOwner: g.Epoch == owner, Workers: len(g.workers)}
		c.Load, _ = s.serving(g)
		for i, p := range g.workers {
			if p.proc != nil && s.dir.Worker(int(g.Slot), i).IsReady(g.Epoch, p.proc.PID) {
				c.Ready++
			}
		}
		if c.RxOwner {
			m.ZoneRecords = g.catalog.Records
		}
		m.Generations = append(m.Generations, c)
	}
	return m
}
