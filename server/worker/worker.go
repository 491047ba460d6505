package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/internal/hold"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/logging"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/priority"
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

	link      atomic.Pointer[Link]
	door      *handover.Listener // nil: nobody can have this worker after its supervisor
	dir       *directory.Directory
	view      directory.WorkerView
	table     *table.Table
	peers     peers
	wakes     [directory.MaxSlots]atomic.Pointer[[]int] // eventfds of lanes, by slot; replaced as a whole
	wakePools [directory.MaxSlots]wakePool

	zones     *zoneKeeper
	zoneUsers *grace.Domain
	queries   *querylog.Log // nil: none
	proxies   *proxyKeeper  // nil: no listener is a UDP proxy

	services []service
	lanes    []*lane
	sockets  []*netio.UDP // every UDP socket of the generation, by id; nil where it has none
	rings    *ringReader
	traced   *shm.Region    // that the lanes copy to; nil: to none. Belongs to the control goroutine
	starved  logging.Seldom // of descriptors for connections
	spoilt   logging.Seldom // connections that were accepted in vain
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
	// What comes now takes the longer the more there is to serve: it is not to be in
	// the way of the traffic.
	if err := priority.Set(m.Nice); err != nil {
		log.Warn("the niceness of a worker is not what its supervisor has", "error", err)
	}
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
	w.link.Store(link)
	if m.Door != 0 {
		if w.door, err = handover.Stand(m.Door); err != nil {
			return nil, err
		}
	}
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
	if m.Tables[w.slot] == 0 {
		return nil, errors.New("the manifest has no flow table for this generation")
	}
	if r, err = shm.Map(m.Tables[w.slot]); err != nil {
		return nil, fmt.Errorf("flow table of slot %d: %w", w.slot, err)
	}
	if w.table, err = table.Attach(r); err != nil {
		return nil, fmt.Errorf("flow table of slot %d: %w", w.slot, err)
	}
	siblings, err := w.openPeers()
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
	if w.proxies, err = newProxyKeeper(w); err != nil {
		return nil, err
	}
	if w.services, err = newServices(m, os.Getpid(), w.zones, w.queries, w.proxies); err != nil {
		return nil, err
	}
	w.streams = stream.NewSet(limits(m.Config), log)
	return w, w.makeLanes(blocks, siblings)
}

// makeLanes builds the lanes and everything they own.
func (w *Worker) makeLanes(blocks *counters.Set, siblings *ring.Rings) error {
	cfg := w.m.Config
	w.rings = new(ringReader)
	for _, ref := range w.m.Rings {
		if ref.Consumer != w.slot {
			continue
		}
		if err := w.addInbox(ref.Producer, w.m.Epochs[ref.Producer], ref.FD); err != nil {
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
		l, err := w.makeLane(i, blocks.Block(w.slot, w.index*cfg.Lanes+i), siblings)
		if err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
		w.lanes = append(w.lanes, l)
	}
	w.lanes[0].rings = w.rings
	return nil
}

func (w *Worker) makeLane(i int, block *counters.Block, siblings *ring.Rings) (*lane, error) {
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
	if cfg.Datapath == config.DPDK {
		l.nic = newNIC(l)
	} else if l.batch, err = netio.NewBatch(); err != nil {
		return nil, err
	}
	setup := dispatch.Setup{
		Slot: w.slot, Worker: w.index, Block: block, Table: w.table,
		Wake: func(slot, worker int) { w.wakeWorker(slot, worker) },
	}
	if siblings != nil {
		if global >= siblings.Lanes() {
			return nil, fmt.Errorf("the rings to siblings have %d lanes", siblings.Lanes())
		}
		setup.Siblings = outlets(siblings, global)
	}
	l.split = dispatch.New(setup)
	if w.proxies != nil {
		if l.proxy, err = w.proxies.newLane(l, i); err != nil {
			return nil, err
		}
	}
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
				UDP: w.sockets[s.ID], owner: w.index,
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

// socketOf returns the UDP socket that serves a local address, nil if there is none.
// A newer generation may read by one that is bound to the address what this one has
// served by the wildcard's.
func (w *Worker) socketOf(local *burst.Endpoint) *netio.UDP {
	ap := local.AddrPort()
	var found *netio.UDP
	for _, u := range w.sockets {
		if u == nil || u.FD < 0 {
			continue
		}
		switch {
		case u.Address == ap:
			return u
		case u.Wildcard && u.Address.Port() == ap.Port() && u.Address.Addr().Is4() == ap.Addr().Is4():
			found = u
		}
	}
	return found
}

// closeUDP lets go of the UDP sockets: when every process has, the kernel tells
// clients that nobody listens. No lane reads any more, and the caller is the one
// that still answers through them, to what comes out of rings.
func (w *Worker) closeUDP() {
	if w.m.Config.Workers > 1 || w.proxies != nil {
		return // siblings may still forward to this worker, and lanes pass answers back
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

// addWakes takes over eventfds of the lanes, from the one with number first on, of
// the generation with this epoch in slot. Those of an earlier generation there are replaced in
// place: a lane that is about to write to one must find an eventfd behind its
// number, whoever's.
func (w *Worker) addWakes(slot int, epoch uint32, first int, fds []int) error {
	p := &w.wakePools[slot]
	if p.epoch != epoch {
		p.epoch, p.used = epoch, 0
		if p.fds == nil {
			p.fds = slices.Clone(*w.wakes[slot].Load())
		}
	}
	if first < 0 || first > p.used {
		closeAll(fds)
		return fmt.Errorf("eventfds from %d on, of slot %d, where those from %d on are next: %w", first, slot, p.used, ErrLost)
	}
	var err error
	for i, fd := range fds {
		if at := first + i; at == len(p.fds) {
			p.fds = append(p.fds, fd)
		} else {
			err = errors.Join(err, unix.Dup3(fd, p.fds[at], unix.O_CLOEXEC))
			unix.Close(fd)
		}
	}
	p.used = max(p.used, first+len(fds))
	now := slices.Clone(p.fds[:p.used])
	w.wakes[slot].Store(&now)
	if err != nil {
		return fmt.Errorf("taking over eventfds of slot %d: %w", slot, err)
	}
	return nil
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
		// A lane keeps its P while it waits for the next packet: as many more are
		// for connections and everything else.
		runtime.GOMAXPROCS(2 * len(w.lanes))
	}
	failed := make(chan error, len(w.lanes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.m.Trace != nil {
		w.beginTrace(ctx, w.m.Trace)
	}
	attached := make(chan error, len(w.lanes))
	for _, l := range w.lanes {
		w.laneEnd.Go(func() {
			err := l.attach(ctx)
			if attached <- err; err != nil {
				return
			}
			if err := l.run(); err != nil {
				failed <- fmt.Errorf("lane %d: %w", l.global, err)
			}
		})
	}
	for range w.lanes {
		if err := <-attached; err != nil {
			return err
		}
	}
	if err := w.dropPrivileges(); err != nil {
		return err
	}
	quit := make(chan struct{})
	go w.obey(ctx, quit)
	if w.index == 0 {
		go w.sweep(ctx)
	}
	hold.At("ready")
	w.view.SetReady(w.epoch, os.Getpid())
	if err := w.say(Message{Op: OpReady}); err != nil {
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

// dropPrivileges becomes the user that the manifest names, for good. (Where it names
// none the process is that user from its start.)
func (w *Worker) dropPrivileges() error {
	if w.m.User == nil {
		return nil
	}
	uid, gid := int(w.m.User.UID), int(w.m.User.GID)
	if err := errors.Join(syscall.Setgroups([]int{}), syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return fmt.Errorf("becoming user %d: %w", uid, err)
	}
	return nil
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
