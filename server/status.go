package server

import (
	"context"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/reload"
)

// Version implements control.Backend.
func (s *Supervisor) Version() control.Version { return s.options.Version }

// Status implements control.Backend.
func (s *Supervisor) Status(ctx context.Context) (*control.Status, error) {
	var st *control.Status
	if err := s.ask(ctx, func() { st = s.status() }); err != nil {
		return nil, err // the loop may still be writing st
	}
	return st, nil
}

func (s *Supervisor) status() *control.Status {
	st := &control.Status{
		Name: s.cfg.Name, Version: s.options.Version.Version, PID: pid(), StartedAt: s.started,
		Uptime:     control.Millis(time.Since(s.started)),
		ConfigFile: s.path, ConfigLoadedAt: s.loadedAt,
		Step: s.currentStep(), Zones: len(s.cfg.Zones),
		LastReload: s.lastReport, Ledger: s.ledger(),
		Generations: []control.Generation{}, Listeners: []control.Listener{},
	}
	if r := s.underway(); r != nil && r.id != bootRequest {
		st.Reload, st.Elapsed = r.id, control.Millis(time.Since(r.began))
	}
	if s.cfg.StateFile != "" {
		st.StateFile = &control.StateFile{Path: s.cfg.StateFile, SavedAt: s.keeper.savedAt, Error: s.keeper.failed}
	}
	if s.standby.ready() {
		st.Standby = &s.standby.Standby
	}
	if s.cfg.Admin.IsValid() {
		st.Admin = s.cfg.Admin.String()
	}
	for _, g := range s.gens {
		if g != nil {
			st.Generations = append(st.Generations, s.generationStatus(g))
		}
	}
	slices.SortFunc(st.Generations, func(a, b control.Generation) int { return int(b.Epoch) - int(a.Epoch) })
	for _, l := range s.cfg.Listeners {
		c := control.Listener{Name: l.Name, Addresses: l.Address, Service: string(l.Service), Affinity: string(l.Affinity)}
		if l.UDP {
			c.Transport = append(c.Transport, "udp")
		}
		if l.TCP {
			c.Transport = append(c.Transport, "tcp")
		}
		st.Listeners = append(st.Listeners, c)
	}
	return st
}

func (s *Supervisor) generationStatus(g *generation) control.Generation {
	state := s.stateOf(g)
	c := control.Generation{
		Epoch: g.Epoch, Slot: int(g.Slot), State: state.String(), RxOwner: s.dir.Owner().Epoch() == g.Epoch,
		Lanes: g.cfg.Lanes, StartedAt: g.started,
	}
	for i, p := range g.workers {
		w := control.Worker{Index: i, Gone: p.proc == nil, Respawns: p.respawns}
		if p.proc != nil {
			w.PID = p.proc.PID
			w.Ready = s.dir.Worker(int(g.Slot), i).IsReady(g.Epoch, p.proc.PID)
			w.Uptime = control.Millis(time.Since(p.started))
			if leaves(state) {
				w.Drain = s.drainOf(g, p)
			}
		}
		c.Workers = append(c.Workers, w)
	}
	if leaves(state) {
		c.Drain = s.drain(g)
	}
	c.Load, _ = s.serving(g)
	return c
}

// leaves reports whether a generation in this state has a drain to tell of.
func leaves(state directory.State) bool {
	return state == directory.Draining || state == directory.Leaving || state == directory.Left
}

// drain says what a generation still has to finish.
func (s *Supervisor) drain(g *generation) *control.Drain { return s.drainOf(g, g.workers...) }

// drainOf says what some workers of a generation still have to finish.
func (s *Supervisor) drainOf(g *generation, workers ...*process) *control.Drain {
	d := &control.Drain{}
	idle := time.Duration(-1)
	for _, p := range workers {
		if p.proc == nil {
			continue
		}
		r := s.dir.Worker(int(g.Slot), p.index).Report()
		d.Flows += int(r.Flows)
		d.TCP += int(r.TCP)
		d.HalfOpen += int(r.HalfOpen)
		d.Queries += int(r.Queries)
		d.QUIC += int(r.QUIC)
		d.Unsent += r.Unsent
		if age := time.Duration(r.IdleMs) * time.Millisecond; r.Flows > 0 && (idle < 0 || age < idle) {
			idle = age
		}
	}
	d.Idle = control.Millis(max(idle, 0))
	deadline := g.deadline
	if t := s.stopDeadline; !t.IsZero() && (deadline.IsZero() || t.Before(deadline)) {
		deadline = t
	}
	d.DeadlineLeft = control.Millis(max(time.Until(deadline), 0))
	d.Reason = d.Describe()
	return d
}

// currentStep is the step that the machine is in, as people name it.
func (s *Supervisor) currentStep() control.Step {
	if step := s.state.Phase.Step(); step != "" {
		return control.Step(step)
	}
	for i := range s.state.Slots {
		if step := s.state.Slots[i].Stage.Step(); step != "" && s.state.Phase != reload.PhaseAborting {
			return control.Step(step)
		}
	}
	return control.StepSteady
}
