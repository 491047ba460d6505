package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
)

// This file is the side of a hand-over that gives. A supervisor lets go of all it
// has only when the other one has said who it is and is fit; it keeps descriptors
// of everything until the other one is done, and until then takes everything back
// should the other fail.

// The times of a hand-over that are no configuration.
const (
	helloTime = 5 * time.Second  // from the connection to the hello
	takenTime = 30 * time.Second // from the offer to the word that it is taken
)

// attendDoor meets whoever comes to take over, until the door is closed.
func (s *Supervisor) attendDoor(l *handover.Listener) {
	for {
		c, err := l.Accept(context.Background(), uint32(unix.Geteuid()))
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Error("the door of the supervisor", "error", err)
			return
		}
		go s.meet(c)
	}
}

// meet hears who has come.
func (s *Supervisor) meet(c *net.UnixConn) {
	cred, err := handover.Peer(c)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(helloTime))
	}
	var m handover.Message
	if err == nil {
		m, err = handover.HearOne(c, handover.Hello)
	}
	if err != nil {
		s.log.Warn("somebody at the door says nothing", "error", err)
		_ = c.Close()
		return
	}
	s.giveTo(c, m, int(cred.Pid))
}

// giveTo gives the instance to the process that has said hello on c.
func (s *Supervisor) giveTo(c *net.UnixConn, hello handover.Message, pid int) {
	_ = c.SetDeadline(time.Time{})
	unfit := s.fit(hello)
	var u *upgrade
	var err error
	if aerr := s.ask(context.Background(), func() { u, err = s.admit(c, pid, hello.Version, unfit) }); aerr != nil {
		err = aerr
	}
	if err != nil {
		_ = handover.Tell(c, handover.Message{Kind: handover.Refused, Reason: err.Error()})
		_ = c.Close()
		return
	}
	select {
	case <-u.ready:
	case <-u.done:
		return
	case <-s.done:
		return
	}
	next, report, err := s.handTo(u, c)
	s.post(func() {
		switch {
		case u.closing() || s.upgrade != u:
		case next == handover.TakeBack:
			s.failUpgrade(u, err)
		default:
			if err == nil {
				s.log.Info("the instance has changed hands", "pid", pid, "version", hello.Version)
			}
			u.next, u.report, u.err = next, report, err
			s.endUpgrade(u)
		}
	})
}

// fit checks what the other supervisor says of itself.
func (s *Supervisor) fit(m handover.Message) error {
	if m.Protocol != handover.Protocol {
		return fmt.Errorf("the other supervisor speaks hand-over protocol %d, this one %d", m.Protocol, handover.Protocol)
	}
	here, err := handover.Here()
	if err != nil {
		return err
	}
	return errors.Join(here.Agree(m.Place), Terms().Agree(m.Terms))
}

// admit lets the process with this pid have the instance, or says why not. unfit is
// why it is not fit, which whoever has asked for the upgrade is told. Within the
// loop.
func (s *Supervisor) admit(c *net.UnixConn, pid int, version string, unfit error) (*upgrade, error) {
	u := s.upgrade
	if u != nil && (u.conn != nil || u.reexec != nil || u.taker != nil && u.taker.PID != pid) {
		return nil, errors.New("another supervisor is taking over")
	}
	if u == nil {
		if err := s.refuseUpgrade(control.UpgradeStart); err != nil {
			return nil, err
		}
		if unfit != nil {
			s.log.Warn("refusing to give the instance away", "pid", pid, "version", version, "reason", unfit)
			return nil, unfit
		}
		u = s.newUpgrade(control.UpgradeStart)
	}
	if unfit != nil {
		s.failUpgrade(u, control.Refuse("upgrade refused; nothing was changed: %v", unfit))
		return nil, unfit
	}
	if u.taker == nil {
		p, err := spawn.AdoptNow(pid)
		if err != nil {
			s.failUpgrade(u, err)
			return nil, err
		}
		u.taker = p
	}
	u.conn = c
	s.log.Info("giving the instance away", "pid", pid, "version", version)
	u.say("pid %d, %s, takes over", pid, version)
	return u, nil
}

// letGoWhenQuiet lets go of everything once nothing is under way that another
// supervisor could not go on with. Within the loop.
func (s *Supervisor) letGoWhenQuiet() {
	u := s.upgrade
	if u == nil || u.conn == nil && u.reexec == nil || u.gone || u.closing() ||
		s.state.Phase != reload.PhaseSteady || len(s.zoneTurns) > 0 || len(s.fences) > 0 || len(s.events) > 0 {
		return
	}
	estates, err := s.estates()
	if err == nil {
		u.lock, err = s.control.Lock()
	}
	if err != nil {
		for _, e := range estates {
			e.Close()
		}
		s.failUpgrade(u, err)
		return
	}
	u.estates, u.gone = estates, true
	s.letGo()
	close(u.ready)
	if u.reexec != nil {
		u.report = u.committedReport()
		s.endUpgrade(u)
	}
}

// estates returns what each generation consists of, with descriptors of its own.
func (s *Supervisor) estates() (list []*worker.Estate, err error) {
	for _, g := range s.gens {
		if g == nil {
			continue
		}
		m, files := s.manifest(g, 0)
		e := &worker.Estate{Manifest: m, Version: g.catalog.Version}
		list = append(list, e)
		for _, fd := range files {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return list, fmt.Errorf("duplicating a descriptor: %w", err)
			}
			e.FDs = append(e.FDs, dup)
		}
	}
	return list, nil
}

// letGo has this supervisor do nothing any more: its workers are anybody's. Within
// the loop.
func (s *Supervisor) letGo() {
	s.away = true
	s.tracing.end("another supervisor has taken over: trace again")
	for _, t := range s.timers {
		t.Stop()
	}
	for _, cancel := range s.watches {
		cancel()
	}
	for _, r := range s.requests {
		r.report.Reason = "another supervisor has taken over; dnsappctl status tells how it goes on"
		r.outcome = reload.Failed
		close(r.done)
	}
	clear(s.requests)
	for slot, g := range s.gens {
		if g == nil {
			continue
		}
		for _, p := range g.workers {
			p.stopRespawn()
			if p.link != nil {
				_ = p.link.Close()
			}
		}
		s.kept = append(s.kept, g)
		s.gens[slot] = nil
	}
	s.control.Leave()
	s.closeDoor()
	if s.admin != nil {
		_ = s.admin.Close()
	}
	s.busy(false)
}

// passOn has the supervisor that is taking over obey a signal to stop. WINCH ends this
// one, if the other has committed.
func (s *Supervisor) passOn(sig interface{ String() string }) {
	u := s.upgrade
	switch sig {
	case unix.SIGWINCH:
		if u != nil && !u.closing() && u.hasCommitted() {
			u.next, u.report = handover.End, u.committedReport()
			s.endUpgrade(u)
			return
		}
	case unix.SIGQUIT, unix.SIGTERM, unix.SIGINT:
		if u == nil || u.taker == nil {
			break
		}
		if err := u.taker.Signal(sig.(unix.Signal)); err != nil {
			s.log.Error("passing a signal on", "error", err)
		}
		return
	}
	s.log.Warn("this signal does nothing here: another supervisor is taking over", "signal", sig.String())
}

// depart ends what is left of this supervisor when it has let go.
func (s *Supervisor) depart() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	s.endJobs()
	s.jobs.Wait()
	s.endControl(ctx)
	s.manager.close()
}

// closeKept closes what this supervisor had: others have it.
func (s *Supervisor) closeKept() {
	regions := []*shm.Region{s.dirRegion, s.countersRegion, s.zoneRegion}
	for _, g := range s.kept {
		regions = append(regions, g.region)
		for _, r := range g.rings {
			regions = append(regions, r.region)
		}
		for _, fd := range g.wakes {
			unix.Close(fd)
		}
		s.dropZones(g.newZones)
		s.closeQueryLog(g.queryLog)
		s.closeTAPs(g)
	}
	for _, r := range regions {
		if err := r.Close(); err != nil {
			s.log.Error("closing a region", "error", err)
		}
	}
	if err := s.backends.close(); err != nil {
		s.log.Error("closing a region", "error", err)
	}
	for _, k := range s.sockets.byID {
		if k.fd >= 0 {
			unix.Close(k.fd)
		}
	}
}

// handTo moves everything over c, and follows the other supervisor until it is done,
// or has another word for this one. It returns what this one does next, and an error
// unless the instance has changed hands.
func (s *Supervisor) handTo(u *upgrade, c *net.UnixConn) (handover.Next, *control.ReloadReport, error) {
	offer := handover.Message{Kind: handover.Offer, Estates: len(u.estates), Version: s.options.Version.Version, Early: true}
	if err := handover.Tell(c, offer, int(u.lock.Fd())); err != nil {
		return handover.TakeBack, nil, err
	}
	for _, e := range u.estates {
		if err := worker.SendEstate(c, e); err != nil {
			return handover.TakeBack, nil, err
		}
	}
	if err := c.SetDeadline(time.Now().Add(takenTime)); err != nil {
		return handover.TakeBack, nil, err
	}
	defer c.SetDeadline(time.Time{}) //nolint:errcheck // it is closed, or usable
	for giver := (handover.Giver{Ends: u.action == control.UpgradeRollback}); ; {
		m, err := handover.HearOne(c, giver.Due()...)
		if errors.Is(err, io.EOF) {
			err = errors.New("the other supervisor has ended")
		}
		if err != nil {
			return giver.Lost(), nil, err
		}
		hurried := giver.Hurries()
		next := giver.Hear(m.Kind)
		if hurried && !giver.Hurries() {
			s.othersCommit(u)
		}
		switch m.Kind {
		case handover.Taken:
			u.say("it has adopted every generation")
			if err := c.SetDeadline(time.Time{}); err != nil { // until the commit upgrade.timeout counts
				return handover.TakeBack, nil, err
			}
		case handover.News:
			var e control.Event
			if err := json.Unmarshal(m.Body, &e); err != nil {
				return handover.TakeBack, nil, fmt.Errorf("news of the other supervisor: %w", err)
			}
			u.tell(e)
		case handover.Done:
			report := new(control.ReloadReport)
			if m.Body != nil {
				if err := json.Unmarshal(m.Body, report); err != nil {
					return handover.TakeBack, nil, fmt.Errorf("report of the other supervisor: %w", err)
				}
			}
			return next, report, nil
		case handover.Failed:
			return next, nil, errors.New(m.Reason)
		case handover.Leave:
			if m.Reason == "" {
				return next, nil, control.Refuse("dnsapp was stopped meanwhile")
			}
			u.say("there is no way back any more: %s", m.Reason)
			return next, u.committedReport(), nil
		case handover.Return:
			u.say("it gives the instance back")
			return next, u.committedReport(), nil
		}
	}
}

// othersCommit notes that the other supervisor's generation has the wire.
func (s *Supervisor) othersCommit(u *upgrade) {
	s.post(func() {
		u.timer.Stop()
		s.manager.main(u.taker.PID, "another supervisor has taken over")
	})
	close(u.committed)
}
