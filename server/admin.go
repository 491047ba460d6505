package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"

	"github.com/dnsapp/dnsapp/server/config"
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
	var pids [][]int // by generation and worker; 0: none lives
	var cfg *config.Config
	if err := s.ask(ctx, func() { m, pids = s.sample(); cfg = s.cfg }); err != nil {
		return nil, err // the loop may still be writing m
	}
	m.PerZone, m.ConfigHash = s.zoneMetrics(), s.configHash.get(cfg)
	for i := range m.Generations {
		for worker, pid := range pids[i] {
			if p, ok := usage(worker, pid); ok && pid != 0 {
				m.Generations[i].Processes = append(m.Generations[i].Processes, p)
			}
		}
	}
	return m, nil
}

func (s *Supervisor) sample() (m *metrics.Sample, pids [][]int) {
	m = &metrics.Sample{
		Version: s.options.Version, StartedAt: s.started, ConfigLoadedAt: s.loadedAt,
		Counters: *s.snapshot(), Step: s.currentStep(), Reloads: maps.Clone(s.outcomes),
		LastReload: s.lastReport, Respawns: s.respawned, Zones: len(s.cfg.Zones), StaleZones: s.zones.Stale(), Standby: s.standby.ready(),
		Refusals: maps.Clone(s.refusals), Lapses: s.lapses, Fences: s.fenced,
		Backends: s.backendStatus(),
	}
	owner := s.dir.Owner().Epoch()
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		c := metrics.Generation{Epoch: g.Epoch, State: s.stateOf(g).String(), RxOwner: g.Epoch == owner, Workers: len(g.workers)}
		c.Slot, c.FlowSlots = int(g.Slot), g.table.Slots()
		for _, o := range s.gens {
			if o == nil || o.rings[int(g.Slot)] == nil {
				continue
			}
			for worker := range g.workers {
				c.RingFill = max(c.RingFill, o.rings[int(g.Slot)].rings.Fill(worker))
			}
		}
		if leaves(s.stateOf(g)) {
			left := s.drain(g).DeadlineLeft.Duration()
			c.DrainLeft = &left
		}
		live := make([]int, len(g.workers))
		c.Load, _ = s.serving(g)
		for i, p := range g.workers {
			if p.proc != nil {
				live[i] = p.proc.PID
			}
			if p.proc != nil && s.dir.Worker(int(g.Slot), i).IsReady(g.Epoch, p.proc.PID) {
				c.Ready++
			}
		}
		if c.RxOwner {
			m.ZoneRecords = g.catalog.Records
		}
		m.Generations, pids = append(m.Generations, c), append(pids, live)
	}
	return m, pids
}
