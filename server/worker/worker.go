package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/internal/hold"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/logging"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/querylog"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/stream"
	"github.com/dnsapp/dnsapp/udpflow/dispatch"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// Worker is the process.
type Worker struct {
	log   *slog.Logger
	m     *Manifest
	epoch uint32
	slot  int
	index int

	link      *Link
	dir       *directory.Directory
	view      directory.WorkerView
	table     *table.Table
	tables    [directory.MaxSlots]*table.Table
	older     [directory.MaxSlots]older                 // what the lanes use of older generations
	wakes     [directory.MaxSlots]atomic.Pointer[[]int] // eventfds of lanes, by slot; replaced as a whole
	wakePools [directory.MaxSlots]wakePool

	zones     *zoneKeeper
	zoneUsers *grace.Domain
	queries   *querylog.Log // nil: none

	services []service
	lanes    []*lane
	sockets  []*netio.UDP // every UDP socket of the generation, by id; nil where it has none
	rings    *ringReader
	streams  *stream.Set
	handlers [][]stream.Handler // by listener and lane

	quit       atomic.Bool
	endReports context.CancelFunc // ends the drain reports; nil: none are made. Belongs to the control goroutine
	stopping   atomic.Bool        // takes no new work
	stopped    atomic.Int32       // lanes that read no more
	due        chan struct{}      // capacity 1: a drain report is wanted now
	laneEnd    sync.WaitGroup
}

// Run is the life of the process that the supervisor has started. It returns
// when the worker has quit, or ctx has ended.
func Run(ctx context.Context) error {
	// Else it would be called "exe", after the path it was executed by. It is
	// served as well under that name, so an error does not matter.
	_ = os.WriteFile("/proc/self/comm", []byte("dnsapp-worker"), 0)
	m, err := readManifest(ManifestFD)
	if err != nil {
		return err
	}
	log, end := logging.New(m.Config.Log)
	defer end()
	log = log.With("epoch", m.Epoch, "worker", m.Index)
	hold.At("attach")
	w, err := newWorker(m, log)
	if err != nil {
		return err
	}
	return w.run(ctx)
}

func newWorker(m *Manifest, log *slog.Logger) (*Worker, error) {
	w := &Worker{log: log, m: m, epoch: m.Epoch, slot: m.Slot, index: m.Index, due: make(chan struct{}, 1)}
	w.setWakes(m)
	link, err := NewLink(ControlFD)
	if err != nil {
		return nil, err
	}
	w.link = link
	r, err := shm.Map(m.Directory)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	if w.dir, err = directory.Attach(r); err != nil {
		return nil, err
	}
	w.view = w.dir.Worker(w.slot, w.index)
	if r, err = shm.Map(m.Counters); err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	blocks, err := counters.Attach(r)
	if err != nil {
		return nil, err
	}
	for slot, fd := range m.Tables {
		if fd == 0 {
			continue
		}
		if r, err = shm.Map(fd); err != nil {
			return nil, fmt.Errorf("flow table of slot %d: %w", slot, err)
		}
		if w.tables[slot], err = table.Attach(r); err != nil {
			return nil, fmt.Errorf("flow table of slot %d: %w", slot, err)
		}
		w.older[slot].regions = append(w.older[slot].regions, r)
	}
	if w.table = w.tables[w.slot]; w.table == nil {
		return nil, errors.New("the manifest has no flow table for this generation")
	}
	outlets, err := w.outlets()
	if err != nil {
		return nil, err
	}
	w.zoneUsers = grace.New(w.wakeLanes)
	if w.zones, err = newZoneKeeper(m, w.zoneUsers, log); err != nil {
		return nil, err
	}
	if m.QueryLog != 0 {
		q := m.Config.DNS.QueryLog
		w.queries = querylog.New(m.QueryLog, q.Sample, m.Epoch, m.Index, blocks.Block(w.slot, w.index*m.Config.Lanes), log)
	}
	if w.services, err = newServices(m, os.Getpid(), w.zones, w.queries); err != nil {
		return nil, err
	}
	w.streams = stream.NewSet(limits(m.Config), log)
	return w, w.makeLanes(blocks, outlets)
}

// outlets returns the rings that lanes of this generation fill, by the slot
// whose workers empty them.
func (w *Worker) outlets() ([directory.MaxSlots]*ring.Rings, error) {
	var out [directory.MaxSlots]*ring.Rings
	for _, ref := range w.m.Rings {
		if ref.Producer != w.slot {
			continue
		}
		r, err := shm.Map(ref.FD)
		if err != nil {
			return out, fmt.Errorf("rings from slot %d to slot %d: %w", ref.Producer, ref.Consumer, err)
		}
		m, err := ring.Attach(r)
		if err != nil {
			return out, fmt.Errorf("rings from slot %d to slot %d: %w", ref.Producer, ref.Consumer, err)
		}
		out[ref.Consumer] = m
		w.older[ref.Consumer].regions = append(w.older[ref.Consumer].regions, r)
	}
	return out, nil
}

// older is what the lanes share of one older generation: its flow table and
// the rings to its workers. When it is gone each lane lets go of them at a
// boundary, and the last one unmaps them.
type older struct {
	regions []*shm.Region
	closed  atomic.Bool
	letGo   atomic.Int32 // lanes that have
}

// forget makes lane l let go of the generations that are gone.
func (w *Worker) forget(l *lane) {
	for slot := range w.older {
		o := &w.older[slot]
		if !o.closed.Load() || !l.split.Forget(slot) || int(o.letGo.Add(1)) < len(w.lanes) {
			continue
		}
		for _, r := range o.regions {
			if err := r.Close(); err != nil {
				w.log.Error("closing a region", "slot", slot, "error", err)
			}
		}
	}
}

// makeLanes builds the lanes and everything they own.
func (w *Worker) makeLanes(blocks *counters.Set, outlets [directory.MaxSlots]*ring.Rings) error {
	cfg := w.m.Config
	w.rings = new(ringReader)
	for _, ref := range w.m.Rings {
		if ref.Consumer != w.slot {
			continue
		}
		if err := w.addInbox(ref.Producer, ref.FD); err != nil {
			return err
		}
	}
	first := make(map[netip.AddrPort]uint32) // the socket of lane 0 of each address
	for _, s := range w.m.Sockets {
		if s.TCP {
			continue
		}
		for int(s.ID) >= len(w.sockets) {
			w.sockets = append(w.sockets, nil)
		}
		w.sockets[s.ID] = netio.NewUDP(s.FD, s.ID, s.Listener, s.Address)
		if s.Lane == 0 {
			first[s.Address] = s.ID
		}
	}
	for _, s := range w.m.Sockets { // a generation with fewer lanes has the first one, too
		if id, ok := first[s.Address]; ok && !s.TCP {
			w.sockets[s.ID].Answer = id
		}
	}
	w.handlers = make([][]stream.Handler, len(cfg.Listeners))
	for i := range cfg.Lanes {
		l, err := w.makeLane(i, blocks.Block(w.slot, w.index*cfg.Lanes+i), outlets)
		if err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
		w.lanes = append(w.lanes, l)
	}
	w.lanes[0].rings = w.rings
	return nil
}

func (w *Worker) makeLane(i int, block *counters.Block, outlets [directory.MaxSlots]*ring.Rings) (*lane, error) {
	cfg := w.m.Config
	global := w.index*cfg.Lanes + i
	if global >= len(w.m.Wakes[w.slot]) {
		return nil, fmt.Errorf("the manifest has no eventfd for lane %d", global)
	}
	l := &lane{
		log: w.log, worker: w, global: global, block: block,
		view: w.dir.Lane(w.slot, global), zoneUse: w.zoneUsers.NewLane(),
		wake: w.m.Wakes[w.slot][global],
	}
	var err error
	if l.poller, err = netio.NewPoller(); err != nil {
		return nil, err
	}
	if err = l.poller.Add(l.wake, tokenWake); err != nil {
		return nil, err
	}
	if l.batch, err = netio.NewBatch(); err != nil {
		return nil, err
	}
	setup := dispatch.Setup{
		Slot: w.slot, Worker: w.index, Block: block, Tables: w.tables,
		Wake: func(slot, worker int) { w.wakeWorker(slot, worker) },
	}
	for slot, rings := range outlets {
		if rings == nil {
			continue
		}
		if global >= rings.Lanes() {
			return nil, fmt.Errorf("rings to slot %d have %d lanes", slot, rings.Lanes())
		}
		for consumer := range rings.Workers() {
			setup.Outlets[slot] = append(setup.Outlets[slot], rings.Producer(global, consumer))
		}
	}
	l.split = dispatch.New(setup)
	for n, svc := range w.services {
		l.handlers = append(l.handlers, svc.lane(i, block))
		w.handlers[n] = append(w.handlers[n], svc.streams(i, block))
	}
	for _, s := range w.m.Sockets {
		switch {
		case s.TCP:
			l.tcp = append(l.tcp, &tcpSocket{fd: s.FD, id: s.ID, listener: s.Listener})
		case s.Lane == global:
			l.udp = append(l.udp, &udpSocket{
				UDP:      w.sockets[s.ID],
				dispatch: cfg.Listeners[s.Listener].Affinity == config.AffinityFlow,
			})
		}
	}
	return l, nil
}

// socket returns the UDP socket with this id, nil if the generation has none.
func (w *Worker) socket(id uint32) *netio.UDP {
	if int(id) < len(w.sockets) {
		return w.sockets[id]
	}
	return nil
}

// addInbox makes the worker read the rings in the region behind fd, which the
// lanes of the generation in slot fill. It takes fd over, also on error.
func (w *Worker) addInbox(slot, fd int) error {
	r, err := shm.Map(fd)
	if err != nil {
		return errors.Join(fmt.Errorf("rings from slot %d: %w", slot, err), unix.Close(fd))
	}
	rings, err := ring.Attach(r)
	if err != nil {
		return errors.Join(fmt.Errorf("rings from slot %d: %w", slot, err), r.Close())
	}
	if w.index >= rings.Workers() {
		return errors.Join(fmt.Errorf("rings from slot %d are for %d workers", slot, rings.Workers()), r.Close())
	}
	w.rings.add(inbox{Inbox: rings.Inbox(w.index), region: r, epoch: w.dir.Generation(slot).Epoch, slot: slot})
	return nil
}

// closeUDP lets go of the UDP sockets: when every process has, the kernel tells
// clients that nobody listens. No lane reads any more, and the caller is the one
// that still answers through them, to what comes out of rings.
func (w *Worker) closeUDP() {
	if w.m.Config.Workers > 1 {
		return // siblings may still forward to this worker
	}
	for _, u := range w.sockets {
		if u != nil && u.FD >= 0 {
			unix.Close(u.FD)
			u.FD = -1
		}
	}
}

// setWakes takes over the eventfds that the manifest lists.
func (w *Worker) setWakes(m *Manifest) {
	for slot := range m.Wakes {
		w.wakes[slot].Store(&m.Wakes[slot])
	}
}

// addWakes adds eventfds of the lanes of the generation in slot. Those of an
// earlier generation there are replaced in place: a lane that is about to write
// to one must find an eventfd behind its number, whoever's.
func (w *Worker) addWakes(slot int, fds []int) {
	p := &w.wakePools[slot]
	if epoch := w.dir.Generation(slot).Epoch; p.epoch != epoch {
		p.epoch, p.used = epoch, 0
		if p.fds == nil {
			p.fds = slices.Clone(*w.wakes[slot].Load())
		}
	}
	for _, fd := range fds {
		if p.used == len(p.fds) {
			p.fds = append(p.fds, fd)
		} else {
			if err := unix.Dup3(fd, p.fds[p.used], unix.O_CLOEXEC); err != nil {
				w.log.Error("taking over an eventfd", "slot", slot, "error", err)
			}
			unix.Close(fd)
		}
		p.used++
	}
	now := slices.Clone(p.fds[:p.used])
	w.wakes[slot].Store(&now)
}

// wakePool is the eventfds of the lanes of one slot, over its generations. It
// belongs to the control goroutine.
type wakePool struct {
	fds   []int
	used  int // of the generation that is there now
	epoch uint32
}

// wakeWorker hastens the lane that empties the rings of a worker.
func (w *Worker) wakeWorker(slot, worker int) {
	wakes := *w.wakes[slot].Load()
	if lane := worker * w.dir.Generation(slot).Lanes; lane < len(wakes) {
		netio.Wake(wakes[lane])
	}
}

// wakeOwners hastens the lanes of the generation that owns the wire.
func (w *Worker) wakeOwners(epoch uint32) {
	for slot := range directory.MaxSlots {
		if w.dir.Generation(slot).Epoch == epoch {
			for _, fd := range *w.wakes[slot].Load() {
				netio.Wake(fd)
			}
		}
	}
}

// wakeLanes hastens every lane of this worker.
func (w *Worker) wakeLanes() {
	for _, l := range w.lanes {
		netio.Wake(l.wake)
	}
}

// run serves until the supervisor, or a signal, ends the worker.
func (w *Worker) run(ctx context.Context) error {
	if os.Getenv("GOMAXPROCS") == "" {
		// A lane keeps its P while it waits for the next packet: one more is for
		// everything else.
		runtime.GOMAXPROCS(len(w.lanes) + 1)
	}
	failed := make(chan error, len(w.lanes))
	for _, l := range w.lanes {
		w.laneEnd.Go(func() {
			if err := l.run(); err != nil {
				failed <- fmt.Errorf("lane %d: %w", l.global, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quit := make(chan struct{})
	go w.obey(ctx, quit)
	if w.index == 0 {
		go w.sweep(ctx)
	}
	hold.At("ready")
	w.view.SetReady(w.epoch, os.Getpid())
	if err := w.link.Send(Message{Op: OpReady}); err != nil {
		w.log.Warn("the supervisor is gone", "error", err)
	}
	var err error
	select {
	case <-ctx.Done():
	case <-quit:
	case err = <-failed: // never expected: the supervisor starts another
	}
	w.quit.Store(true)
	w.wakeLanes()
	if err == nil {
		w.laneEnd.Wait()
	}
	w.streams.Close()
	if err == nil { // else lanes may be running
		w.queries.Close()
	}
	return err
}

// sweepInterval is how often old flows are cleared from the table, long before
// their stamps wrap and read as new.
const sweepInterval = time.Hour

// sweep clears old flows until ctx ends.
func (w *Worker) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.table.Sweep(mono.Millis())
		}
	}
}

// obey carries out what the supervisor says. ctx ends with the worker.
func (w *Worker) obey(ctx context.Context, quit chan<- struct{}) {
	for {
		m, fds, err := w.link.Receive()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, unix.ECONNRESET):
			w.log.Warn("the supervisor is gone: serving on without it")
			return
		case err != nil:
			w.log.Error("control message", "error", err)
			continue
		}
		switch m.Op {
		case OpWakes:
			if m.Producer >= 0 && m.Producer < directory.MaxSlots && m.Producer != w.slot {
				w.addWakes(m.Producer, fds)
				fds = nil
			}
		case OpWindow:
			if len(fds) != 1 {
				w.log.Error("window without its rings", "descriptors", len(fds))
				break
			}
			if err := w.addInbox(m.Producer, fds[0]); err != nil {
				w.log.Error("opening a window", "error", err)
			}
			fds = nil
			w.wakeLanes()
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
			if m.Producer >= 0 && m.Producer < directory.MaxSlots && m.Producer != w.slot {
				w.older[m.Producer].closed.Store(true)
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
		case OpStop:
			w.stopping.Store(true)
			w.wakeLanes()
		case OpQuit:
			close(quit)
			return
		default:
			w.log.Error("unknown control message", "op", m.Op)
		}
		closeAll(fds)
	}
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
		conns, queries := w.streams.Open()
		r.TCP, r.Queries = uint32(conns), uint32(queries)
		if w.stopping.Load() {
			// With the wire given up no flow can go on. What is queued is in flight
			// until every lane has served it.
			r.Queries += uint32(len(w.lanes)) - uint32(w.stopped.Load())
		} else {
			flows, idle := w.table.Scan(w.index, mono.Millis())
			r.Flows, r.IdleMs = uint32(flows), idle
		}
		w.view.SetReport(r)
		if err := w.link.Send(Message{Op: OpReport}); err != nil {
			w.log.Debug("drain report", "error", err)
		}
		next := drainInterval
		if r.Flows > 0 {
			left := w.table.Idle() - time.Duration(r.IdleMs)*time.Millisecond
			next = min(next, max(left+time.Millisecond, time.Millisecond))
		}
		timer.Reset(next)
	}
}
