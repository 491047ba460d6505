package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/shm"
)

// How long a worker waits after a message was lost until it asks for everything
// again: what the kernel was short of may be there then. Each time in a row it
// waits twice as long.
const (
	lostPauseMin = 100 * time.Millisecond
	lostPauseMax = 5 * time.Second
)

// obey carries out what the supervisor says. ctx ends with the worker.
func (w *Worker) obey(ctx context.Context, quit chan<- struct{}) {
	pause := lostPauseMin
	for {
		m, fds, err := w.link.Load().Receive()
		if err == nil {
			err = w.carryOut(ctx, m, fds)
		}
		switch {
		case err == nil:
			pause = lostPauseMin
		case errors.Is(err, ErrLost):
			w.log.Error("asking the supervisor to say everything again", "after", pause, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, lostPauseMax)
			if err := w.say(Message{Op: OpLost}); err != nil {
				w.log.Warn("asking the supervisor", "error", err)
			}
		case errors.Is(err, errQuit):
			close(quit)
			return
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, unix.ECONNRESET):
			w.log.Warn("the supervisor is gone: serving on without it")
			w.endTrace(ctx)
			if !w.nextSupervisor(ctx) {
				return
			}
		default:
			w.log.Error("the control socket fails: serving on without the supervisor", "error", err)
			w.endTrace(ctx)
			if !w.nextSupervisor(ctx) {
				return
			}
		}
	}
}

// errQuit is returned by carryOut for the order to quit.
var errQuit = errors.New("told to quit")

// carryOut does what one message says, and takes its descriptors over. An error is
// errQuit, or wraps ErrLost where something is missing for it.
func (w *Worker) carryOut(ctx context.Context, m Message, fds []int) error {
	defer func() { closeAll(fds) }()
	other := m.Producer >= 0 && m.Producer < directory.MaxSlots && m.Producer != w.slot
	switch m.Op {
	case OpWakes:
		if other {
			err := w.addWakes(m.Producer, m.Epoch, m.First, fds)
			fds = nil
			return err
		}
	case OpWindow:
		if other {
			err := w.openWindow(m.Producer, m.Epoch, fds)
			fds = nil
			return err
		}
	case OpDrain:
		for _, svc := range w.services {
			svc.drain()
		}
		w.streams.Drain()
		if w.endReports == nil {
			var reporting context.Context
			reporting, w.endReports = context.WithCancel(ctx)
			go w.reportDrain(reporting)
		}
		w.reportDue()
	case OpResume:
		for _, svc := range w.services {
			if r, ok := svc.(resumer); ok {
				r.resume()
			}
		}
		w.streams.Resume()
		if w.endReports != nil {
			w.endReports()
			w.endReports = nil
		}
	case OpRelease:
		w.rings.release.Store(m.Window)
		w.wakeLanes()
	case OpClosed:
		if other {
			if err := w.peers.set(m.Producer, nil); err != nil {
				w.log.Error("unmapping a generation that is gone", "slot", m.Producer, "error", err)
			}
			w.rings.remove(m.Producer)
			w.wakeLanes()
		}
	case OpRegions:
		if err := w.zones.addRegions(m.IDs, fds); err != nil {
			w.log.Error("taking zones", "error", err) // the catalog that lists them will be refused
		}
		fds = nil
	case OpZones:
		w.takeZones(ctx, m.Version, fds)
		fds = nil
	case OpTrace:
		if len(fds) == 1 {
			w.beginTrace(ctx, &TraceRef{FD: fds[0], Filter: m.Filter, Snap: m.Snap})
			fds = nil
		} else {
			w.endTrace(ctx)
		}
	case OpStop:
		w.stopping.Store(true)
		w.wakeLanes()
	case OpQuit:
		return errQuit
	default:
		w.log.Error("unknown control message", "op", m.Op)
	}
	return nil
}

// openWindow takes over what belongs to a newer generation: see SendWindow.
func (w *Worker) openWindow(slot int, epoch uint32, fds []int) error {
	if len(fds) != 3 {
		closeAll(fds)
		w.log.Error("bug: a window does not come with three descriptors", "descriptors", len(fds))
		return nil
	}
	if w.peers.has(slot, epoch) { // told again
		closeAll(fds)
		return nil
	}
	defer w.wakeLanes()
	p, err := w.newPeer(epoch, fds[1], fds[2])
	if err != nil {
		unix.Close(fds[0])
	} else if err = w.addInbox(slot, epoch, fds[0]); err != nil {
		err = errors.Join(err, p.unmap())
	} else {
		err = w.peers.set(slot, p)
	}
	switch {
	case errors.Is(err, shm.ErrLayout):
		w.log.Error("bug: a window that is none", "error", err)
	case err != nil:
		return fmt.Errorf("opening a window: %w: %w", ErrLost, err)
	}
	return nil
}

// drainInterval is how often a draining worker looks at what can end without
// an event.
const drainInterval = time.Second

// reportDue asks for a drain report now, if there are reports at all.
func (w *Worker) reportDue() {
	select {
	case w.due <- struct{}{}:
	default: // one is due already
	}
}

// reportDrain writes drain reports until ctx ends: whenever one is due or
// a connection has ended, and when the newest flow can have aged.
func (w *Worker) reportDrain(ctx context.Context) {
	timer := time.NewTimer(drainInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.due:
		case <-w.streams.Changed():
		}
		r := directory.Report{Asked: w.view.DrainAsked()}
		next := drainInterval
		conns, queries := w.streams.Open()
		r.TCP, r.Queries = uint32(conns), uint32(queries)
		if w.stopping.Load() {
			// With the wire given up no flow can go on. What is queued is in flight
			// until every lane has served it.
			r.Queries += uint32(len(w.lanes)) - uint32(w.stopped.Load())
		} else {
			flows, idle := w.table.Scan(w.index, mono.Millis())
			r.Flows, r.IdleMs = uint32(flows), idle
			if rest := w.proxies.count(&r); rest > 0 {
				next = min(next, rest+time.Millisecond)
			}
		}
		w.view.SetReport(r)
		if err := w.say(Message{Op: OpReport}); err != nil {
			w.log.Debug("drain report", "error", err)
		}
		if r.Flows > 0 {
			left := w.table.Idle() - time.Duration(r.IdleMs)*time.Millisecond
			next = min(next, max(left+time.Millisecond, time.Millisecond))
		}
		timer.Reset(next)
	}
}
