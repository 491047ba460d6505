package server

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// PrimaryOrder returns what a DPDK primary for cfg is to make, and where: in the
// folder of the control socket, so one supervisor after the other finds it.
func PrimaryOrder(cfg *config.Config) primary.Order {
	d := &cfg.DPDK
	o := primary.Order{
		Dir: filepath.Dir(cfg.Control),
		Spec: primary.Spec{
			Mbufs: d.Mbufs, MbufSize: d.MbufSize, MaxWorkers: d.MaxWorkers, RingSize: d.RingSize, Memory: d.Memory,
			Hugepages: d.Hugepages, FilePrefix: d.FilePrefix,
		},
	}
	for _, dev := range d.Devices {
		o.Spec.Devices = append(o.Spec.Devices, primary.Device{
			Name: dev.Name, Device: dev.Device, Queues: dev.Queues, Descriptors: dev.Descriptors, MTU: dev.MTU,
		})
	}
	return o
}

// primaryTimeout is how long a primary may take to start: devices come up meanwhile.
const primaryTimeout = time.Minute

// primaryWatch is what the supervisor knows of the primary. It belongs to the loop.
type primaryWatch struct {
	pid      int // of the one that is watched; 0: none
	starting bool
}

// errPrimaryDead refuses a reload where the primary has died: a new one needs the
// devices, which the workers of the dead one have.
var errPrimaryDead = errors.New("the primary has died: its workers serve on, and no other can join them; " +
	"end them (kill), and they are started again on a new primary, with a gap in service")

// ensurePrimary sees to it that there is a primary for cfg: the one that lives, or,
// unless there are workers of a dead one, a new one. Without DPDK it does nothing.
func (s *Supervisor) ensurePrimary(ctx context.Context, cfg *config.Config, workers bool) error {
	if cfg.Datapath != config.DPDK {
		return nil
	}
	o := PrimaryOrder(cfg)
	o.LogLevel, o.LogFormat = cfg.Log.Level, cfg.Log.Format
	if workers && !primaryLives(o.Dir) {
		return exit.With(exit.Refused, errPrimaryDead)
	}
	ctx, cancel := context.WithTimeout(ctx, primaryTimeout)
	defer cancel()
	state, reused, err := primary.Ensure(ctx, o, "primary", "--ordered")
	if err != nil {
		return err
	}
	s.log.Info("the primary has the devices", "pid", state.PID, "prefix", state.Prefix, "reused", reused)
	s.post(func() { s.watchPrimary(state) })
	return nil
}

// primaryLives reports whether the primary of a control folder lives.
func primaryLives(dir string) bool {
	state, err := primary.ReadState(dir)
	return err == nil && state.Alive()
}

// watchPrimary says so when the primary dies. Within the loop.
func (s *Supervisor) watchPrimary(state *primary.State) {
	if s.primary.pid == state.PID {
		return
	}
	p, err := spawn.Adopt(state.PID, state.Start)
	if err != nil {
		s.log.Error("watching the primary", "pid", state.PID, "error", err)
		return
	}
	s.primary.pid = state.PID
	go func() {
		_, _ = p.Wait() // how it ended is told to whoever started it
		s.post(func() {
			s.primary.pid = 0
			if n := len(s.livingWorkers()); n > 0 {
				s.log.Error("the primary has died: its workers serve on. Until a new one has taken its place reloads are refused, "+
					"and when a worker ends all are started again", "pid", state.PID, "workers", n)
			}
		})
	}()
}

// findPrimary watches the primary that an earlier supervisor had. Within the loop.
func (s *Supervisor) findPrimary() {
	if s.cfg.Datapath != config.DPDK {
		return
	}
	if state, err := primary.ReadState(filepath.Dir(s.cfg.Control)); err == nil && state.Alive() {
		s.watchPrimary(state)
	}
}

// livingWorkers returns the workers that live, of all generations.
func (s *Supervisor) livingWorkers() (all []*process) {
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		for _, p := range g.workers {
			if p.proc != nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// primaryFor returns an error where a worker of g cannot be started now, because
// there is no primary. It then sees to a new one: the workers of the dead one have the
// devices, and end first. Within the loop.
func (s *Supervisor) primaryFor(g *generation) error {
	if g.cfg.Datapath != config.DPDK || primaryLives(filepath.Dir(g.cfg.Control)) {
		return nil
	}
	if left := s.livingWorkers(); len(left) > 0 {
		s.log.Error("the workers of the dead primary end, to give a new one the devices", "workers", len(left))
		for _, p := range left {
			s.signal(p, unix.SIGKILL)
		}
		return errors.New("the workers of the dead primary have the devices")
	}
	if !s.primary.starting {
		s.primary.starting = true
		go func() {
			err := s.ensurePrimary(s.background, g.cfg, false)
			s.post(func() {
				s.primary.starting = false
				if err != nil {
					s.log.Error("starting a new primary", "error", err)
					return
				}
				s.respawnNow()
			})
		}()
	}
	return errors.New("the new primary is starting")
}

// respawnNow starts the workers that wait to be started again.
func (s *Supervisor) respawnNow() {
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		for i, p := range g.workers {
			if !p.wanted || p.proc != nil {
				continue
			}
			if p.retry != nil {
				p.retry.Stop()
				p.retry = nil
			}
			p.failures = 0
			s.respawn(g, i)
		}
	}
}

// attaching is who workers are while they join the devices, whose memory is root's:
// root without its rights, but for that to become who they are to be.
var attaching = spawn.Identity{Change: true, Keep: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}}
