package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/priority"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/server/zones"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// generation is one set of workers, as the supervisor keeps it.
type generation struct {
	reload.Generation
	cfg      *config.Config
	uses     []use
	newZones       // the update and the turn until it is committed; the catalog all the time
	queryLog int   // descriptor, or noQueryLog
	taps     []int // descriptors, or noTAP, by device; nil: none
	servers  serverNumbers
	workers  []*process
	started  time.Time
	window   uint32 // id of the window opened against it, 0: none
	region   *shm.Region
	table    *table.Table
	rings    map[int]*ringRegion // those its lanes fill, by the slot whose workers empty them
	wakes    []int               // eventfds of its lanes
	bursts   []uint64            // of each lane, when the monitor last looked
	ending   bool                // SignalWorkers was ordered: nothing is respawned
	deadline time.Time           // end of its drain. Valid iff draining
	drainEnd uint32              // mono.Millis at which the drain ends that another supervisor has begun, 0: none has
	request  *request            // the reload that replaces it, nil: none has tried

	drainOrder uint32 // of the AskDrain that waits, 0: none
	drainAsked []uint32
	gone       bool // ProcessesGone was said
}

type ringRegion struct {
	region *shm.Region
	rings  *ring.Rings
}

func (g *generation) lanes() int { return g.cfg.Workers * g.cfg.Lanes }

// process is one worker of a generation, over all its respawns.
type process struct {
	index    int
	proc     *spawn.Process // nil while none lives
	link     *worker.Link   // nil while none lives
	started  time.Time
	ready    bool // the machine was told that it is
	respawns int
	failures int         // starts in a row that did not last
	retry    *time.Timer // pending respawn
	wanted   bool        // respawn it when it ends
	suspect  *suspect    // asked for a sign of life, nil: not
	asked    time.Time   // when that was last
	died     time.Time   // the last one
	zones    zonesOf     // of the one that lives
	traced   *traced     // the part that the last one has in the trace; nil: none
}

// zonesOf is what a worker knows of its zones.
type zonesOf struct {
	has  *zones.Catalog // it answers from; its use may have ended
	sent *zones.Catalog // on its way; nil: none
	err  error          // why it did not take the last one it was sent
}

// minRun is how long a worker must have lived for its end not to slow down the
// next start; the wait doubles from backoffMin to backoffMax.
const (
	minRun     = 500 * time.Millisecond
	backoffMin = 50 * time.Millisecond
	backoffMax = 5 * time.Second
)

// ended notes the end of a process that has lived so long.
func (p *process) ended(lived time.Duration) {
	if lived >= minRun {
		p.failures = 0
	}
	p.failures++
}

// backoff returns how long to wait before the next start.
func (p *process) backoff() time.Duration {
	if p.failures <= 1 {
		return 0
	}
	return min(backoffMin<<min(p.failures-2, 10), backoffMax)
}

// A generation counts as lost when each of its workers has ended soon after its
// start lostAfter times in a row, and none of them has then lived for settled.
const (
	lostAfter = 4
	settled   = 5 * time.Second
)

// failing reports whether the workers of g end again and again.
func (g *generation) failing() bool {
	for _, p := range g.workers {
		if p.failures < lostAfter || p.proc != nil && time.Since(p.started) >= settled {
			return false
		}
	}
	return true
}

// spawnWorker starts worker i of g. A failure to start reads like an exit.
func (s *Supervisor) spawnWorker(g *generation, i int) {
	p := g.workers[i]
	p.retry = nil
	proc, link, err := s.start(g, i)
	if err != nil {
		err = outOfFiles(err)
		s.log.Error("starting a worker", "epoch", g.Epoch, "worker", i, "error", err)
		p.failures++
		s.feed(reload.WorkerExited{Gen: g.Generation, Worker: i, Reason: err.Error()})
		if p.wanted { // it was not the first start, so nobody else sees to the next one
			s.respawn(g, i)
		}
		return
	}
	p.proc, p.link, p.started, p.ready = proc, link, time.Now(), false
	p.zones = zonesOf{has: g.catalog} // by its manifest
	s.dir.Worker(int(g.Slot), i).SetProcess(proc.PID, proc.Start)
	s.attend(g, i)
}

// attend listens to worker i, which lives, and waits for its end.
func (s *Supervisor) attend(g *generation, i int) {
	p := g.workers[i]
	proc, link := p.proc, p.link
	go s.listenTo(g, i, proc, link)
	go func() {
		status, err := proc.Wait()
		reason := spawn.Describe(status)
		if err != nil {
			reason = err.Error()
		}
		s.post(func() { s.workerExited(g, i, proc, reason) })
	}()
}

// start executes the process of worker i.
func (s *Supervisor) start(g *generation, i int) (*spawn.Process, *worker.Link, error) {
	if err := s.primaryFor(g); err != nil {
		return nil, nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	link, err := worker.NewLink(pair[0])
	if err != nil {
		unix.Close(pair[1])
		return nil, nil, err
	}
	defer unix.Close(pair[1])
	door, err := handover.Open(s.dirPath(), handover.WorkerDoor(g.Epoch, i))
	if err != nil {
		link.Close()
		return nil, nil, err
	}
	defer unix.Close(door)
	m, files := s.manifest(g, i)
	files = append(files, door)
	m.Door, m.Owner = worker.FirstFD+len(files)-1, uint32(os.Geteuid())
	if g.cfg.Datapath == config.DPDK && s.identity.Change {
		m.User = &worker.User{UID: s.identity.UID, GID: s.identity.GID}
	}
	mfd, err := m.Encode()
	if err != nil {
		link.Close()
		return nil, nil, err
	}
	defer unix.Close(mfd)
	head := []int{0, 1, 2, pair[1], mfd}
	identity := s.identity
	identity.Keep = keptCapabilities(g.cfg)
	if m.User != nil {
		identity = attaching
	}
	proc, err := spawn.Start(spawn.Command{
		Args:     []string{"worker"},
		Files:    append(head, files...),
		Env:      s.env,
		Identity: identity,
		Nice:     priority.Hasty(s.haste.nice), // until it has read its manifest
	})
	if err != nil {
		link.Close()
		return nil, nil, err
	}
	return proc, link, nil
}

// manifest describes worker i of g and lists the descriptors it gets.
func (s *Supervisor) manifest(g *generation, i int) (*worker.Manifest, []int) {
	var files []int
	add := func(fd int) int {
		files = append(files, fd)
		return worker.FirstFD + len(files) - 1
	}
	cfg := *g.cfg
	cfg.Zones = nil // the catalog has them
	m := &worker.Manifest{
		Protocol: worker.Protocol, Epoch: g.Epoch, Slot: int(g.Slot), Index: i, Config: &cfg, Nice: s.haste.nice,
		Directory: add(s.dirRegion.Fd()), Counters: add(s.countersRegion.Fd()),
	}
	for _, o := range s.gens {
		if o != nil {
			m.Epochs[o.Slot], m.Tables[o.Slot] = o.Epoch, add(o.region.Fd())
		}
	}
	for _, o := range s.gens {
		if o == nil {
			continue
		}
		for _, fd := range o.wakes {
			m.Wakes[o.Slot] = append(m.Wakes[o.Slot], add(fd))
		}
		for consumer, r := range o.rings {
			if o.Slot == g.Slot || consumer == int(g.Slot) {
				m.Rings = append(m.Rings, worker.RingRef{Producer: int(o.Slot), Consumer: consumer, FD: add(r.region.Fd())})
			}
		}
	}
	for _, u := range g.uses {
		if u.isQueue() {
			m.Queues = append(m.Queues, g.queueRef(u.socket))
			continue
		}
		m.Sockets = append(m.Sockets, worker.SocketRef{
			ID: u.id, FD: add(u.fd), Listener: u.listener, Address: u.address, TCP: u.tcp, Lane: u.lane,
		})
	}
	m.Catalog, m.ZoneCounters = add(g.catalog.FD()), add(s.zoneRegion.Fd())
	if g.queryLog != noQueryLog {
		m.QueryLog = add(g.queryLog)
	}
	m.TAPs = g.manifestTAPs(add)
	m.Trace = s.traceFromStart(g, i, add)
	m.Backends, m.Servers = add(s.backends.shared.Fd()), g.servers
	if s.backends.icmp4 >= 0 {
		m.ICMP4 = add(s.backends.icmp4)
	}
	if s.backends.icmp6 >= 0 {
		m.ICMP6 = add(s.backends.icmp6)
	}
	for _, r := range g.catalog.Regions {
		m.ZoneRegions = append(m.ZoneRegions, worker.ZoneRef{ID: r.ID, FD: add(r.FD)})
	}
	return m, files
}

// listenTo feeds what a worker says to the loop.
func (s *Supervisor) listenTo(g *generation, i int, proc *spawn.Process, link *worker.Link) {
	for {
		m, fds, err := link.Receive()
		if err != nil {
			return // it has ended, and Wait says how
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		s.post(func() { s.workerSaid(g, i, proc, m) })
	}
}

func (s *Supervisor) workerSaid(g *generation, i int, proc *spawn.Process, m worker.Message) {
	p := g.workers[i]
	if s.away || p.proc != proc { // of a process that has ended since
		return
	}
	switch m.Op {
	case worker.OpReady:
		if !s.dir.Worker(int(g.Slot), i).IsReady(g.Epoch, proc.PID) {
			s.log.Error("a worker says it is ready, its READY word does not", "epoch", g.Epoch, "worker", i)
			return
		}
		p.wanted = false
		if p.ready { // it says so again to another supervisor
			return
		}
		p.ready = true
		s.feed(reload.WorkerReady{Gen: g.Generation, Worker: i})
	case worker.OpReport:
		s.checkDrained(g)
	case worker.OpReleased: // its watcher reads the directory
	case worker.OpLost:
		s.sayAgain(g, p)
	case worker.OpZoned:
		s.zonesTaken(g, p, m)
	default:
		s.log.Error("unknown message of a worker", "epoch", g.Epoch, "worker", i, "op", m.Op)
	}
}

// workerExited runs when pidfd says that the process is gone.
func (s *Supervisor) workerExited(g *generation, i int, proc *spawn.Process, reason string) {
	if s.away { // it was reaped, and that is all
		return
	}
	p := g.workers[i]
	p.link.Close()
	p.proc, p.link, p.ready = nil, nil, false
	p.endTraced()
	s.dir.Worker(int(g.Slot), i).SetGone()
	s.clearFlows(g, i)
	s.closeConnections(g, i)
	s.orphan(g, i)
	s.wakeAll()
	p.ended(time.Since(p.started))
	if !g.ending {
		s.log.Warn("worker ended", "epoch", g.Epoch, "worker", i, "pid", proc.PID, "reason", reason)
	}
	s.feed(reload.WorkerExited{Gen: g.Generation, Worker: i, Reason: fmt.Sprintf("worker %d (pid %d): %s", i, proc.PID, reason)})
	if g.Generation == s.state.Active && g.failing() {
		s.feed(reload.WorkersLost{Gen: g.Generation, Reason: fmt.Sprintf("the workers of epoch %d end again and again, the last with: %s", g.Epoch, reason)})
	}
	if p.wanted && !g.ending {
		s.respawn(g, i)
	}
	for _, f := range slices.Clone(s.fences) {
		s.checkFence(f)
	}
	s.checkDrained(g)
	s.checkGone(g)
	s.checkZoneReloads()
}

// respawn starts worker i again, now or after a while.
func (s *Supervisor) respawn(g *generation, i int) {
	p := g.workers[i]
	p.wanted = true
	if p.proc != nil || p.retry != nil {
		return
	}
	begin := func() {
		if p.wanted && !g.ending && p.proc == nil {
			p.respawns++
			s.respawned++
			s.spawnWorker(g, i)
		}
	}
	if d := p.backoff(); d > 0 {
		s.log.Info("worker restarts later", "epoch", g.Epoch, "worker", i, "after", d)
		p.retry = time.AfterFunc(d, func() { s.post(func() { p.retry = nil; begin() }) })
		return
	}
	begin()
}

// stopRespawn gives up starting worker p again.
func (p *process) stopRespawn() {
	p.wanted = false
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
}

// fence waits until workers are gone for certain.
type fence struct {
	order   uint32
	workers reload.Workers
	gens    [directory.MaxSlots]*generation // those that were in the slots then
}

func (s *Supervisor) fence(order uint32, workers reload.Workers) {
	f := &fence{order: order, workers: workers, gens: s.gens}
	s.fences = append(s.fences, f)
	for slot, set := range workers {
		g := s.gens[slot]
		if g == nil {
			continue
		}
		for i := range set.All() {
			p := g.workers[i]
			p.stopRespawn()
			if p.proc != nil {
				s.log.Warn("worker fenced", "epoch", g.Epoch, "worker", i, "pid", p.proc.PID)
				s.fenced++
				s.signal(p, unix.SIGKILL)
			}
		}
	}
	s.checkFence(f)
}

func (s *Supervisor) checkFence(f *fence) {
	for slot, set := range f.workers {
		if g := f.gens[slot]; g != nil {
			for i := range set.All() {
				if g.workers[i].proc != nil {
					return
				}
			}
		}
	}
	at := slices.Index(s.fences, f)
	if at < 0 {
		return
	}
	s.fences = slices.Delete(s.fences, at, at+1)
	s.feed(reload.Fenced{Order: f.order, Workers: f.workers})
}

func (s *Supervisor) signal(p *process, sig syscall.Signal) {
	if err := p.proc.Signal(sig); err != nil {
		s.log.Error("signalling a worker", "error", err)
	}
}

// endWorkers carries out SignalWorkers.
func (s *Supervisor) endWorkers(g *generation, sig reload.Signal) {
	g.ending = true
	for _, p := range g.workers {
		p.stopRespawn()
		if p.proc == nil {
			continue
		}
		switch sig {
		case reload.SignalQuit:
			if err := p.link.Send(worker.Message{Op: worker.OpQuit}); err != nil {
				s.log.Warn("telling a worker to quit", "epoch", g.Epoch, "worker", p.index, "error", err)
				s.signal(p, unix.SIGTERM)
			}
		case reload.SignalTerm:
			s.signal(p, unix.SIGTERM)
		default:
			s.signal(p, unix.SIGKILL)
		}
	}
	s.checkGone(g)
}

// checkGone says once that an ending generation has no process left.
func (s *Supervisor) checkGone(g *generation) {
	if !g.ending || g.gone {
		return
	}
	for _, p := range g.workers {
		if p.proc != nil {
			return
		}
	}
	g.gone = true
	s.feed(reload.ProcessesGone{Gen: g.Generation})
}

// fold carries out FoldAndFree: the generation's counters go into the carry and
// all it held is given back.
func (s *Supervisor) fold(g *generation) {
	slot := int(g.Slot)
	s.noteServers() // while it is known which they are
	s.counters.Fold(slot, g.Epoch, g.lanes())
	s.dir.SetWindow(slot, 0)
	s.dir.SetState(slot, directory.Free)
	s.sockets.countUnread(g.uses)
	s.sockets.release(g.uses)
	s.gens[slot] = nil
	s.discard(g)
	if a := s.generation(s.state.Active); a != nil {
		if err := s.sockets.steer(a.uses, a.lanes()); err != nil {
			s.log.Error("sockets after a drain", "epoch", a.Epoch, "error", err)
		}
	}
	for _, o := range s.gens { // younger ones may have its table mapped
		if o == nil {
			continue
		}
		for _, p := range o.workers {
			if p.link == nil {
				continue
			}
			if err := p.link.Send(worker.Message{Op: worker.OpClosed, Producer: slot}); err != nil {
				s.log.Debug("telling a worker that a generation is gone", "error", err)
			}
		}
	}
}

// discard closes what only g used.
func (s *Supervisor) discard(g *generation) {
	closeRegion := func(r *shm.Region) {
		if err := r.Close(); err != nil {
			s.log.Error("closing a region", "epoch", g.Epoch, "error", err)
		}
	}
	closeRegion(g.region)
	for i := range g.workers {
		if err := handover.Remove(s.dirPath(), handover.WorkerDoor(g.Epoch, i)); err != nil {
			s.log.Warn("removing a door", "error", err)
		}
	}
	for _, fd := range g.wakes {
		unix.Close(fd)
	}
	if err := s.closeRings(g); err != nil {
		s.log.Error("closing rings", "epoch", g.Epoch, "error", err)
	}
	s.backends.region.Close(int(g.Slot))
	s.backends.release(g.cfg, g.servers)
	s.dropZones(g.newZones)
	s.closeQueryLog(g.queryLog)
	s.closeTAPs(g)
}

// closeRings closes the rings from g and to it.
func (s *Supervisor) closeRings(g *generation) (err error) {
	for _, r := range g.rings {
		err = errors.Join(err, r.region.Close())
	}
	g.rings = nil
	for _, o := range s.gens { // rings into its slot are of this generation only
		if o != nil && o.rings[int(g.Slot)] != nil {
			err = errors.Join(err, o.rings[int(g.Slot)].region.Close())
			delete(o.rings, int(g.Slot))
		}
	}
	return err
}
