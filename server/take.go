package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/internal/hold"
	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// This file is the side of a hand-over that takes.

// Terms are the numbers of this binary that another one must have, too, for the
// two to hand over to each other.
func Terms() handover.Terms {
	return handover.Terms{
		"handover":      handover.Protocol,
		"worker":        worker.Protocol,
		"directory":     directory.Layout,
		"counters":      counters.Layout,
		"zone-counters": counters.ZonesLayout,
		"flow-table":    table.Layout,
		"rings":         ring.Layout,
		"backends":      backend.Layout,
		"catalog":       catalog.Layout,
		"zone":          zone.Layout,
	}
}

// taking is what another supervisor gives, or has given.
type taking struct {
	conn    *net.UnixConn // nil: it is this process that had it before
	lock    *os.File
	estates []*worker.Estate
	pid     int
	version string
	early   bool // it can be told to take everything back while its generation drains
}

// holdDirectory takes the control directory: from another supervisor, from the one
// that this process was before, or as the first.
func (s *Supervisor) holdDirectory() error {
	var err error
	switch o := &s.options; {
	case o.TakeOver != "" || o.from != nil:
		switch s.taking, err = s.take(); {
		case err == nil:
			err = s.control.TakeOver(s.cfg.Control, s.taking.lock)
		case handover.Gone(err): // its workers are orphans
			s.log.Warn("the supervisor to take over from has ended")
			err = s.control.Listen(s.cfg.Control)
		}
	case o.lock != nil:
		s.taking = &taking{estates: o.estates}
		err = s.control.TakeOver(s.cfg.Control, o.lock)
	default:
		err = s.control.Listen(s.cfg.Control)
	}
	if err != nil {
		return err
	}
	return s.openDoor()
}

// openDoor opens the door of the supervisor, and stands behind it.
func (s *Supervisor) openDoor() error {
	fd, err := handover.Open(s.dirPath(), handover.SupervisorDoor)
	if err != nil {
		return err
	}
	l, err := handover.Stand(fd)
	if err != nil {
		return err
	}
	s.door = l
	go s.attendDoor(l)
	return nil
}

// doorInterval is how often the supervisor looks whether its door is there.
const doorInterval = time.Second

// keepDoor opens the door anew when its file was removed, alone or with the control
// directory, until another supervisor has the instance. One of that name that is there
// is left alone.
func (s *Supervisor) keepDoor() {
	if s.away || s.door == nil { // it was closed at the end
		return
	}
	time.AfterFunc(doorInterval, func() { s.post(s.keepDoor) })
	_, err := os.Lstat(filepath.Join(s.dirPath(), handover.SupervisorDoor))
	if !errors.Is(err, os.ErrNotExist) || !s.control.InPlace() {
		return
	}
	_ = s.door.Close()
	if err := s.openDoor(); err != nil {
		s.log.Error("the door of the supervisor is gone and cannot be put back", "error", err)
		return
	}
	s.log.Warn("the door of the supervisor was gone and is put back", "directory", s.dirPath())
}

// closeDoor lets nobody in any more.
func (s *Supervisor) closeDoor() {
	if s.door == nil {
		return
	}
	_ = s.door.Close()
	s.door = nil
	if !s.away { // else another one may be behind its own by now
		if err := handover.Remove(s.dirPath(), handover.SupervisorDoor); err != nil {
			s.log.Warn("removing a door", "error", err)
		}
	}
}

// giveUp tells the other supervisor that this one cannot go on.
func (s *Supervisor) giveUp(err error) {
	if s.taking == nil || s.taking.conn == nil {
		return
	}
	if terr := handover.Tell(s.taking.conn, handover.Message{Kind: handover.Failed, Reason: err.Error()}); terr != nil {
		s.log.Debug("telling the supervisor before", "error", terr)
	}
	s.control.Leave()
	s.away = true
}

// take has the supervisor behind the door, or at the other end of a connection that
// there is, give the instance to this process.
func (s *Supervisor) take() (*taking, error) {
	c := s.options.from
	if c == nil {
		var err error
		if c, err = s.knockAtSupervisor(); err != nil {
			return nil, err
		}
	}
	k, err := s.hear(c)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return k, nil
}

// knockAtSupervisor waits, for upgrade.timeout at most, until a supervisor is
// there.
func (s *Supervisor) knockAtSupervisor() (*net.UnixConn, error) {
	path, err := filepath.Abs(s.options.TakeOver)
	if err != nil || path != s.cfg.Control {
		return nil, exit.With(exit.Refused, fmt.Errorf("--take-over %s: the configuration has control: %s; both must be the same socket", s.options.TakeOver, s.cfg.Control))
	}
	late := time.After(s.cfg.Upgrade.Timeout)
	tick := time.NewTicker(s.cfg.Upgrade.Retry)
	defer tick.Stop()
	for {
		c, err := handover.Knock(s.dirPath(), handover.SupervisorDoor)
		if errors.Is(err, unix.EACCES) {
			return nil, exit.With(exit.Refused, fmt.Errorf("%w: this process runs as user id %d; start it as the user of the supervisor to take over from", err, unix.Geteuid()))
		}
		if err == nil || !errors.Is(err, handover.ErrNobody) {
			return c, err
		}
		select {
		case <-tick.C:
		case <-late:
			return nil, exit.With(exit.Unreachable, fmt.Errorf("no supervisor to take over from in %v (upgrade.timeout): %w", s.cfg.Upgrade.Timeout, err))
		}
	}
}

// hear says hello and receives what there is.
func (s *Supervisor) hear(c *net.UnixConn) (*taking, error) {
	if err := handover.ShowSender(c, false); err != nil {
		return nil, err
	}
	place, err := handover.Here()
	if err != nil {
		return nil, err
	}
	hello := handover.Message{Kind: handover.Hello, Protocol: handover.Protocol, Terms: Terms(), Place: place, Version: s.options.Version.Version}
	if err := handover.Tell(c, hello); err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(s.cfg.Upgrade.Timeout)); err != nil {
		return nil, err
	}
	m, fds, err := handover.Hear(c)
	if err != nil {
		return nil, err
	}
	if m.Kind != handover.Offer || len(fds) != 1 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		if m.Kind == handover.Refused {
			return nil, exit.With(exit.Refused, fmt.Errorf("the other supervisor refuses: %s", m.Reason))
		}
		return nil, fmt.Errorf("the other supervisor says %q with %d descriptors", m.Kind, len(fds))
	}
	k := &taking{conn: c, lock: os.NewFile(uintptr(fds[0]), control.LockName), version: m.Version, early: m.Early}
	if cred, err := handover.Peer(c); err == nil {
		k.pid = int(cred.Pid)
	}
	hold.At("offered")
	for range m.Estates {
		e, err := worker.ReceiveEstate(c)
		if err != nil {
			for _, e := range k.estates {
				e.Close()
			}
			k.lock.Close()
			return nil, err
		}
		e.PID = 0 // a supervisor sent it
		k.estates = append(k.estates, e)
	}
	return k, c.SetDeadline(time.Time{})
}

// taken tells the other supervisor that this one coordinates now, and returns what is
// known of that one, nil if there is none. One that does not hear it any more is not
// needed.
func (s *Supervisor) taken(k *taking) *standby {
	if k == nil || k.conn == nil {
		return nil
	}
	b := &standby{Standby: control.Standby{PID: k.pid, Version: k.version}, conn: k.conn, early: k.early}
	hold.At("before taken")
	if err := b.say(handover.Message{Kind: handover.Taken}); err != nil {
		s.log.Warn("the supervisor before is gone", "error", err)
	}
	hold.At("after taken")
	return b
}

// reportTo tells the other supervisor how the reload to a generation of this binary
// goes, and how it ends: then that one stands by, or takes everything back.
func (s *Supervisor) reportTo(b *standby, boot *request) {
	tell := func(kind handover.Kind, reason string, body any) {
		m := handover.Message{Kind: kind, Reason: reason}
		if b, err := json.Marshal(body); err == nil && body != nil {
			m.Body = b
		}
		if err := b.say(m); err != nil {
			s.log.Debug("telling the supervisor before", "what", kind, "error", err)
		}
	}
	go s.attendStandby(b) // before it stands by, too: it may end
	news := func(e control.Event) { tell(handover.News, "", e) }
	stands := func() { // in one step with what is said: from then on it can be told to go back
		b.Since = time.Now()
		s.notifyManager()
	}
	committed := boot.committed
	commit := func() {
		committed = nil
		s.post(func() {
			tell(handover.Committed, "", nil)
			if b.early {
				stands()
			}
		})
	}
	for ended := false; !ended; {
		select {
		case e := <-boot.news:
			news(e)
		case <-committed:
			commit()
		case <-s.done:
			return
		case <-boot.done:
			ended = true
		}
	}
	drainNews(boot.news, news)
	select {
	case <-committed:
		commit()
	default:
	}
	switch {
	case b.told(): // others decide
	case !boot.report.OK:
		tell(handover.Failed, boot.report.Reason, nil)
		s.post(func() {
			if !s.away {
				s.letGo()
				s.leaving <- &departure{code: exit.Failed, err: fmt.Errorf("the reload failed, and the supervisor before has the instance again: %s", boot.report.Reason)}
			}
		})
	default:
		report := boot.report
		report.ID = 0
		s.post(func() {
			tell(handover.Done, "", report)
			if !b.ready() {
				stands()
			}
		})
	}
}

// endOthers has whoever would go on with the instance know that it has been stopped.
func (s *Supervisor) endOthers(ctx context.Context) {
	switch {
	case s.upgrade != nil:
		s.failUpgrade(s.upgrade, errStopped)
	case s.standby != nil:
		if err := s.standby.end(ctx, ""); err != nil {
			s.log.Warn("ending the supervisor that stands by", "pid", s.standby.PID, "error", err)
		}
	}
}

// notifyManager tells the service manager who is the main process now, once nobody
// else could say otherwise.
func (s *Supervisor) notifyManager() {
	if s.state.Phase == reload.PhaseSteady {
		s.manager.ready(s.statusText())
	}
}
