package server

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/reload"
)

// This file is what the supervisor owes to whoever started it: signals, the pid
// file, and what the service manager is told.

// Signals returns the signals that Run obeys.
func Signals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGHUP, unix.SIGQUIT, unix.SIGTERM, unix.SIGINT, unix.SIGUSR2, unix.SIGWINCH)
	return c
}

func pid() int { return os.Getpid() }

// writePIDFile writes the pid file, by rename, once.
func (s *Supervisor) writePIDFile() {
	if s.pidFile != "" || s.cfg.PIDFile == "" {
		return
	}
	if err := renameio.WriteFile(s.cfg.PIDFile, []byte(strconv.Itoa(pid())+"\n"), 0o644); err != nil {
		s.log.Error("writing the pid file", "error", err)
		return
	}
	s.pidFile = s.cfg.PIDFile
}

// removePIDFile removes the pid file, unless another instance has replaced it.
func (s *Supervisor) removePIDFile() {
	if s.pidFile == "" || s.away {
		return
	}
	b, err := os.ReadFile(s.pidFile)
	if err != nil || string(b) != strconv.Itoa(pid())+"\n" {
		return
	}
	if err := os.Remove(s.pidFile); err != nil {
		s.log.Error("removing the pid file", "error", err)
	}
}

// How long before it speaks again, and how much time it asks for, a process has
// that takes long to start, to reload or to stop.
const (
	patienceInterval = 5 * time.Second
	patience         = 3 * patienceInterval
)

// notify carries out Notify.
func (s *Supervisor) notify(st reload.Status) {
	switch st {
	case reload.NotifyReady:
		s.calm()
		s.busy(false)
		s.manager.ready(s.statusText())
		if s.options.Ready != nil {
			s.options.Ready()
			s.options.Ready = nil
		}
	case reload.NotifyReloading:
		s.manager.reloading(s.statusText())
		s.busy(true)
	case reload.NotifyStopping:
		s.manager.stopping(s.statusText())
		s.busy(true)
	}
}

// busy begins or ends the time in which the service manager waits, and is asked
// for patience now and then.
func (s *Supervisor) busy(yes bool) {
	if s.patience != nil {
		s.patience.Stop()
		s.patience = nil
	}
	if !yes || s.manager == nil {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(patienceInterval, func() {
		s.post(func() {
			if s.patience == t { // else it was over meanwhile
				s.manager.extend(patience, s.statusText())
				t.Reset(patienceInterval)
			}
		})
	})
	s.patience = t
}

// statusText says in a line what the supervisor does: for "systemctl status".
func (s *Supervisor) statusText() string {
	var parts []string
	active := s.generation(s.state.Active)
	switch {
	case s.state.Phase == reload.PhaseStopping:
		parts = append(parts, "stopping")
	case active == nil:
		parts = append(parts, "starting")
	default:
		parts = append(parts, fmt.Sprintf("epoch %d serves", active.Epoch))
		if step := s.state.Phase.Step(); step != "" {
			parts = append(parts, fmt.Sprintf("reloading: %s %s", step, control.Step(step).Word()))
		} else if r := s.lastReport; r != nil && !r.OK && r.ToEpoch == 0 {
			parts = append(parts, fmt.Sprintf("reload %d %s: %s", r.ID, r.Outcome, brief(r.Reason)))
		}
	}
	for _, g := range s.gens {
		if g != nil && leaves(s.stateOf(g)) {
			parts = append(parts, fmt.Sprintf("epoch %d waits for %s", g.Epoch, s.drain(g).Reason))
		}
	}
	return strings.Join(parts, "; ")
}
