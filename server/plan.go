package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/zones"
)

// Plan implements control.Backend: T0 of a reload, of which nothing is kept.
func (s *Supervisor) Plan(ctx context.Context) (*control.Plan, error) {
	p := &control.Plan{ConfigFile: s.path}
	var old *config.Config
	if err := s.ask(ctx, func() { old = s.cfg }); err != nil {
		return nil, err
	}
	cfg, err := config.Load(s.path)
	if err != nil {
		p.Problems = problemsOf(err)
		return p, s.ask(ctx, func() { p.FromEpoch = s.state.Active.Epoch })
	}
	for _, c := range config.Diff(old, cfg) {
		p.Changes = append(p.Changes, control.Change(c))
	}
	p.Problems = append(p.Problems, problems(config.Refusals(old, cfg))...)
	if err := s.planZones(ctx, p, cfg); err != nil {
		return nil, err
	}
	if err := s.ask(ctx, func() {
		p.Problems = append(p.Problems, problemsOf(s.sockets.probe(cfg))...)
		s.planTurn(p)
		s.planDrain(p, cfg)
	}); err != nil {
		return nil, err
	}
	p.Accepted = len(p.Problems) == 0
	return p, nil
}

// planTurn says whether the machine would begin at once: it is asked, and what
// it would do is not done.
func (s *Supervisor) planTurn(p *control.Plan) {
	const id = firstOrder
	p.FromEpoch = s.state.Active.Epoch
	next, effects := reload.Step(s.state, s.reloadEvent(id))
	for _, f := range effects {
		if r, ok := f.(reload.Report); ok && r.ID == id && r.Outcome == reload.Refused {
			p.Problems = append(p.Problems, control.Problem{Message: r.Reason})
			return
		}
	}
	switch {
	case next.Request == id:
	case s.state.Phase == reload.PhaseSteady:
		p.After = "the oldest generation has finished"
	default:
		p.After = "the reload in progress"
	}
}

// planZones compiles what would be compiled. Its error is not about the zones.
func (s *Supervisor) planZones(ctx context.Context, p *control.Plan, cfg *config.Config) error {
	trials, err := s.zones.Try(ctx, cfg.Zones)
	if err != nil {
		return err
	}
	for _, t := range trials {
		if !t.Compiled {
			p.Kept++
			continue
		}
		p.Zones = append(p.Zones, zonePlan(t))
		p.Problems = append(p.Problems, problemsOf(t.Err)...)
		for _, w := range t.Report.Warnings {
			p.Warnings = append(p.Warnings, control.Problem{File: w.File, Line: w.Line, Message: w.Text})
		}
	}
	return nil
}

func zonePlan(t zones.Trial) control.ZonePlan {
	z := control.ZonePlan{
		Name: t.Zone.Name, File: t.Zone.File, New: t.Served == nil, Changed: t.Changed, Error: t.Err != nil,
		Serial: t.Report.Serial, Records: t.Report.Records,
	}
	if t.Served != nil {
		z.OldSerial, z.OldRecords = t.Served.Serial, t.Served.Records
	}
	return z
}

// planDrain forecasts the drain of the generation that serves now.
func (s *Supervisor) planDrain(p *control.Plan, cfg *config.Config) {
	g := s.generation(s.state.Active)
	if g == nil || cfg.Reload.Mode == config.Restart {
		return
	}
	d := &control.DrainPlan{UDPIdle: control.Millis(g.table.Idle())}
	load, newest := s.serving(g)
	d.Load, d.Idle = load, control.Millis(newest)
	d.Forecast(cfg.Reload.ShutdownTimeout)
	p.Drain = d
}

// probe returns an error for each address of cfg that cannot be bound, because
// another process has it.
func (ss *sockets) probe(cfg *config.Config) error {
	if cfg.Datapath == config.DPDK {
		return nil
	}
	var errs []error
	for _, l := range cfg.Listeners {
		for _, ap := range l.Address {
			for _, tcp := range []bool{false, true} {
				if tcp && !l.TCP || !tcp && !l.UDP {
					continue
				}
				k := socketKey{address: ap, tcp: tcp}
				if err := ss.look(k).err; err != nil {
					errs = append(errs, fmt.Errorf("listener %s: %w", l.Name, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}
