package server

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/mono"
)

// Backends implements control.Backend.
func (s *Supervisor) Backends(ctx context.Context) ([]control.BackendStatus, error) {
	var all []control.BackendStatus
	if err := s.ask(ctx, func() { all = s.backendStatus() }); err != nil {
		return nil, err // the loop may still be writing all
	}
	return all, nil
}

func (s *Supervisor) backendStatus() []control.BackendStatus {
	all := make([]control.BackendStatus, 0, len(s.cfg.Backends))
	for i := range s.cfg.Backends {
		b := &s.cfg.Backends[i]
		status := control.BackendStatus{Name: b.Name, Policy: string(b.Policy), Check: string(b.Health.Check)}
		for j := range b.Servers {
			if one := s.serverStatus(b, &b.Servers[j]); one != nil {
				status.Servers = append(status.Servers, *one)
			}
		}
		all = append(all, status)
	}
	return all
}

// serverStatus returns nil while no generation has the server.
func (s *Supervisor) serverStatus(b *config.Backend, c *config.Server) *control.ServerStatus {
	key := serverKey{b.Name, c.Name, c.Address}
	k := s.backends.byKey[key]
	if k == nil {
		return nil
	}
	w := s.backends.region.Server(k.id)
	n := w.Counts()
	status := &control.ServerStatus{
		Name: c.Name, Address: c.Address, State: w.Order().String(), Health: "up",
		Weight: w.Weight(), FileWeight: c.Weight, Backup: c.Backup, MaxFlows: c.MaxFlows,
		Flows: s.backends.region.Flows(k.id), Begun: n.Flows, Refused: n.Refused, Silent: n.Silent, Sent: n.To, Received: n.From,
	}
	switch {
	case w.Down():
		status.Health = "down"
		if check := s.backends.checks[key]; check != nil {
			status.Why = check.why
		}
	case w.Out(mono.Millis()):
		status.Health = "out"
	}
	return status
}

// serverStates are the states that an operator can give a server.
var serverStates = map[string]backend.Order{
	backend.Enabled.String():  backend.Enabled,
	backend.Draining.String(): backend.Draining,
	backend.Disabled.String(): backend.Disabled,
}

// OrderServer implements control.Backend.
func (s *Supervisor) OrderServer(ctx context.Context, req control.ServerRequest) (*control.ServerStatus, error) {
	var status *control.ServerStatus
	var failed error
	if err := s.ask(ctx, func() { status, failed = s.orderServer(req) }); err != nil {
		return nil, err
	}
	return status, failed
}

func (s *Supervisor) orderServer(req control.ServerRequest) (*control.ServerStatus, error) {
	for i := range s.cfg.Backends {
		b := &s.cfg.Backends[i]
		if b.Name != req.Backend {
			continue
		}
		for j := range b.Servers {
			c := &b.Servers[j]
			k := s.backends.byKey[serverKey{b.Name, c.Name, c.Address}]
			if c.Name != req.Server || k == nil {
				continue
			}
			w := s.backends.region.Server(k.id)
			if req.State != "" {
				w.SetOrder(serverStates[req.State])
			}
			if req.Weight != nil {
				w.SetWeight(*req.Weight)
			}
			status := s.serverStatus(b, c)
			s.save()
			s.log.Info("server ordered", "backend", b.Name, "server", c.Name, "state", status.State, "weight", status.Weight)
			return status, nil
		}
		return nil, control.Refuse("backend %s has no server %q", b.Name, req.Server)
	}
	return nil, control.Refuse("there is no backend %q", req.Backend)
}

// Diff implements control.Backend.
func (s *Supervisor) Diff(ctx context.Context) (*control.Diff, error) {
	d := &control.Diff{ConfigFile: s.path}
	var running *config.Config
	var orders []control.Change
	if err := s.ask(ctx, func() { running, orders = s.cfg, s.ordersBesideFile() }); err != nil {
		return nil, err
	}
	d.Orders = orders
	file, err := config.Load(s.path)
	if err != nil {
		d.Problems = problemsOf(err)
		return d, nil
	}
	for _, c := range config.Diff(running, file) {
		d.Changes = append(d.Changes, control.Change(c))
	}
	return d, nil
}

// ordersBesideFile returns what operators have ordered that the running
// configuration does not say.
func (s *Supervisor) ordersBesideFile() (all []control.Change) {
	for _, b := range s.backendStatus() {
		for _, one := range b.Servers {
			key := fmt.Sprintf("backends[%s].servers[%s]", b.Name, one.Name)
			if enabled := backend.Enabled.String(); one.State != enabled {
				all = append(all, control.Change{Key: key + ".state", Old: enabled, New: one.State})
			}
			if one.Weight != one.FileWeight {
				all = append(all, control.Change{Key: key + ".weight", Old: strconv.Itoa(one.FileWeight), New: strconv.Itoa(one.Weight)})
			}
		}
	}
	return all
}
