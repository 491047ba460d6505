package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/fdstore"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
)

// This file is the life of a process over the times in which it has the instance,
// and those in which it stands by.

// departure is how a process goes on whose supervisor has let go of the instance.
type departure struct {
	conn     *net.UnixConn    // to the supervisor that has it, while this one stands by; nil: the process ends
	taker    *spawn.Process   // that supervisor, if it is known
	patience time.Duration    // that it has to end by itself, if it must
	back     bool             // take the instance back: the other one has failed
	again    bool             // take it again: the other one gives it back
	giver    handover.Giver   // of the hand-over, while this one stands by
	estates  []*worker.Estate // valid iff back
	lock     *os.File         // of the control directory; nil: the process ends
	config   *config.Config
	reexec   []string // the file and the arguments of what the process becomes; nil: it does not
	code     int      // exit code, if it ends
	err      error
}

// outlive is how long a supervisor that has failed may take to end by itself.
const outlive = 2 * time.Second

// Serve is the life of the process: it runs an instance until that is told to stop,
// stands by when another supervisor has taken the instance over, and runs it again
// when it is to have it back. It returns the exit code. signals are those of the
// process; see Signals.
func Serve(cfg *config.Config, o Options, signals <-chan os.Signal) (int, error) {
	if pid() == 1 {
		go reapStrangers()
	}
	var err error
	if o.stored, err = fdstore.Take(); err != nil {
		o.Log.Warn("nothing of what the service manager has kept is used", "error", err)
	}
	for {
		s, err := New(cfg, o)
		if err != nil {
			return exit.Of(err), err
		}
		code, err := s.Run(signals)
		d := s.departed
		if d == nil {
			return code, err
		}
		s.closeKept()
		if d.reexec != nil {
			err := syscall.Exec(d.reexec[0], d.reexec[1:], os.Environ())
			o.Log.Error("upgrade failed: going on as before", "binary", d.reexec[0], "error", err)
			d.back = true
		}
		if err := d.standBy(signals, o.Log); err != nil || d.lock == nil {
			return d.code, errors.Join(d.err, err)
		}
		cfg, o = d.next(o)
	}
}

// next returns with what the process runs an instance again.
func (d *departure) next(o Options) (*config.Config, Options) {
	o.Fresh, o.TakeOver, o.Ready = false, "", nil
	o.from, o.lock, o.estates, o.stored = d.conn, d.lock, d.estates, nil
	if d.conn != nil { // the other one gives its own
		d.lock.Close()
		o.lock = nil
	}
	// Should no worker be left to adopt, it starts with the newest that is good.
	if c, err := config.Load(d.config.File); err == nil && c.Control == d.config.Control {
		return c, o
	}
	return d.config, o
}

// end has the process end.
func (d *departure) end() {
	if d.conn != nil {
		_ = d.conn.Close()
	}
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
}

// standBy waits until this process has to run the instance again. If it has to end
// instead, d.lock is nil.
func (d *departure) standBy(signals <-chan os.Signal, log *slog.Logger) error {
	switch {
	case d.back:
		return d.fenceTaker(log)
	case d.again:
		return nil
	case d.conn == nil:
		d.end()
		return nil
	}
	log.Info("standing by", "pid", pid(), "for", d.taker.PID)
	type word struct {
		m   handover.Message
		err error
	}
	heard := make(chan word, 1)
	go func() {
		m, err := handover.HearOne(d.conn, d.giver.Due()...)
		heard <- word{m, err}
	}()
	for {
		select {
		case sig := <-signals:
			switch sig {
			case unix.SIGWINCH, unix.SIGQUIT, unix.SIGTERM, unix.SIGINT:
				log.Info("standing by no longer", "signal", sig.String())
				d.end()
				return nil
			}
			log.Warn("this signal does nothing here: another supervisor has the instance", "signal", sig.String(), "pid", d.taker.PID)
		case w := <-heard:
			next := d.giver.Lost()
			if w.err == nil {
				next = d.giver.Hear(w.m.Kind)
			}
			switch next {
			case handover.TakeAgain:
				return nil
			case handover.End:
				log.Info("standing by no longer")
				d.end()
				return nil
			}
			log.Warn("the supervisor that took over is gone: taking the instance back", "reason", w.err)
			_ = d.conn.Close()
			d.conn = nil
			return d.fenceTaker(log)
		}
	}
}

// fenceTaker makes certain that the other supervisor is gone: it must never step
// the machine beside this one.
func (d *departure) fenceTaker(log *slog.Logger) error {
	if d.taker == nil {
		return nil
	}
	gone := make(chan struct{})
	go func() {
		_, _ = d.taker.Wait() // an error says that it is gone, too
		close(gone)
	}()
	if d.patience > 0 {
		select {
		case <-gone:
			return nil
		case <-time.After(d.patience):
		}
	}
	log.Warn("killing the other supervisor", "pid", d.taker.PID)
	if err := d.taker.Signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("process %d is still there %v after SIGKILL", d.taker.PID, killWait)
	}
}
