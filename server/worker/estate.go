package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/handover"
)

// openTime is how long a worker may take to open its door, and estateTime the
// transfer of an estate from then on.
const (
	openTime   = 3 * time.Second
	estateTime = 10 * time.Second
)

// Estate is what a worker, or a supervisor for it, tells the next supervisor of
// its generation: what it was started with, as that is now, with the descriptors.
type Estate struct {
	Protocol int
	// Stopping says that it takes no new work any more, for good.
	Stopping bool
	// Version is that of the zone catalog.
	Version  uint64
	Manifest *Manifest // its descriptors are numbered from FirstFD, in the order of FDs

	FDs []int `json:"-"`
	PID int   `json:"-"` // of the worker, as the kernel says. Valid iff a worker sent it
}

// SendEstate sends e over c; its descriptors stay the caller's.
func SendEstate(c *net.UnixConn, e *Estate) error {
	e.Protocol = Protocol
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an estate: %w", err)
	}
	return handover.Send(c, b, e.FDs, estateTime)
}

// ReceiveEstate waits for an estate. Its descriptors are the caller's.
func ReceiveEstate(c *net.UnixConn) (*Estate, error) {
	if err := c.SetDeadline(time.Now().Add(openTime)); err != nil {
		return nil, err
	}
	p, err := handover.Receive(c, estateTime)
	if err != nil {
		return nil, err
	}
	e, err := readEstate(p.Data, p.FDs)
	if err != nil {
		p.Close()
		return nil, err
	}
	e.PID = p.PID
	return e, nil
}

// readEstate checks an estate: it is input.
func readEstate(b []byte, fds []int) (*Estate, error) {
	var version struct{ Protocol int }
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, fmt.Errorf("reading an estate: %w", err)
	}
	if version.Protocol != Protocol {
		return nil, fmt.Errorf("reading an estate: its worker speaks protocol %d, this binary %d: start the binary that it is of", version.Protocol, Protocol)
	}
	e := new(Estate)
	if err := json.Unmarshal(b, e); err != nil {
		return nil, fmt.Errorf("reading an estate: %w", err)
	}
	if e.Manifest == nil {
		return nil, fmt.Errorf("reading an estate: it has no manifest")
	}
	if err := e.Manifest.check(); err != nil {
		return nil, fmt.Errorf("reading an estate: %w", err)
	}
	for fd := range e.Manifest.descriptors() {
		if *fd != 0 && (*fd < FirstFD || *fd >= FirstFD+len(fds)) {
			return nil, fmt.Errorf("reading an estate: descriptor %d of %d", *fd, len(fds))
		}
	}
	e.FDs = fds
	return e, nil
}

// FD returns the descriptor that the manifest numbers n, which becomes the
// caller's: whoever asks again gets -1, as for 0.
func (e *Estate) FD(n int) int {
	if n == 0 {
		return -1
	}
	fd := e.FDs[n-FirstFD]
	e.FDs[n-FirstFD] = -1
	return fd
}

// Close closes the descriptors that nobody has taken.
func (e *Estate) Close() {
	for _, fd := range e.FDs {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	e.FDs = nil
}

// descriptors iterates over the descriptor numbers of a manifest.
func (m *Manifest) descriptors() func(yield func(*int) bool) {
	return func(yield func(*int) bool) {
		list := []*int{&m.Directory, &m.Counters, &m.Catalog, &m.ZoneCounters, &m.QueryLog, &m.Door, &m.Backends, &m.ICMP4, &m.ICMP6}
		for i := range m.TAPs {
			list = append(list, &m.TAPs[i])
		}
		if m.Trace != nil {
			list = append(list, &m.Trace.FD)
		}
		for i := range m.Tables {
			list = append(list, &m.Tables[i])
		}
		for i := range m.Wakes {
			for j := range m.Wakes[i] {
				list = append(list, &m.Wakes[i][j])
			}
		}
		for i := range m.Rings {
			list = append(list, &m.Rings[i].FD)
		}
		for i := range m.Sockets {
			list = append(list, &m.Sockets[i].FD)
		}
		for i := range m.ZoneRegions {
			list = append(list, &m.ZoneRegions[i].FD)
		}
		for _, fd := range list {
			if !yield(fd) {
				return
			}
		}
	}
}

// peerFDs is what a worker has of another generation.
type peerFDs struct {
	epoch        uint32
	table, rings int // descriptors of its flow table, and of the rings to it
}

// lists returns what there is of other generations, by slot. It is valid until the
// next message of the supervisor.
func (ps *peers) lists() map[int]peerFDs {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := make(map[int]peerFDs)
	for slot, p := range ps.bySlot {
		if p != nil {
			all[slot] = peerFDs{epoch: p.epoch, table: p.regions[0].Fd(), rings: p.regions[1].Fd()}
		}
	}
	return all
}

// estate returns what this worker has to tell: of its own generation all, and of
// others their flow tables, and the rings to them.
func (w *Worker) estate() *Estate {
	m := *w.m
	m.Wakes = [directory.MaxSlots][]int{}
	m.Wakes[w.slot] = slices.Clone(w.m.Wakes[w.slot])
	m.Rings = slices.DeleteFunc(slices.Clone(w.m.Rings), func(r RingRef) bool {
		return r.Producer != w.slot || r.Consumer != w.slot
	})
	m.Epochs, m.Tables = [directory.MaxSlots]uint32{}, [directory.MaxSlots]int{}
	m.Epochs[w.slot], m.Tables[w.slot] = w.epoch, w.m.Tables[w.slot]
	for slot, fds := range w.peers.lists() {
		m.Epochs[slot], m.Tables[slot] = fds.epoch, fds.table
		m.Rings = append(m.Rings, RingRef{Producer: w.slot, Consumer: slot, FD: fds.rings})
	}
	m.Sockets = slices.Clone(w.m.Sockets)
	for i, s := range m.Sockets {
		if !s.TCP && w.sockets[s.ID].FD < 0 {
			m.Sockets[i].FD = 0
		}
	}
	m.TAPs = slices.Clone(w.m.TAPs)
	m.Door, m.Trace = 0, nil // nobody watches any more
	m.Catalog, m.ZoneRegions = w.zones.lists()
	e := &Estate{Manifest: &m, Stopping: w.stopping.Load(), Version: w.zones.version}
	for fd := range m.descriptors() {
		if *fd != 0 {
			e.FDs = append(e.FDs, *fd)
			*fd = FirstFD + len(e.FDs) - 1
		}
	}
	return e
}

// say tells the supervisor something, if there is one.
func (w *Worker) say(m Message) error { return w.link.Load().Send(m) }

// nextSupervisor waits at the door until another supervisor has this worker, and
// reports whether one has. ctx ends with the worker.
func (w *Worker) nextSupervisor(ctx context.Context) bool {
	_ = w.link.Load().Close()
	if w.door == nil {
		<-ctx.Done()
		return false
	}
	for ctx.Err() == nil {
		c, err := w.door.Accept(ctx, w.m.Owner)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Error("waiting for a supervisor", "error", err)
				<-ctx.Done()
			}
			return false
		}
		if err := SendEstate(c, w.estate()); err != nil {
			w.log.Warn("a supervisor came and did not stay", "error", err)
			c.Close()
			continue
		}
		w.link.Store(&Link{conn: c})
		w.log.Info("another supervisor has this worker")
		if w.view.IsReady(w.epoch, os.Getpid()) { // it may have been said to nobody
			if err := w.say(Message{Op: OpReady}); err != nil {
				w.log.Warn("the supervisor is gone", "error", err)
			}
		}
		return true
	}
	return false
}
