package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/internal/hold"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/fdstore"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/metrics"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/priority"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/server/zones"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

// Supervisor runs one instance. Everything in it belongs to the loop.
type Supervisor struct {
	log      *slog.Logger
	options  Options
	path     string // of the configuration
	env      []string
	identity spawn.Identity
	primary  primaryWatch
	started  time.Time

	inbox  chan func()
	done   chan struct{} // closed when the loop has ended
	exit   chan int      // takes the machine's Exit
	exited chan struct{} // closed by it: no worker is left
	events []reload.Event

	state    reload.State
	cfg      *config.Config // of the newest committed generation
	loadedAt time.Time
	gens     [directory.MaxSlots]*generation
	sockets  *sockets
	zones    *zones.Store
	backends *backends
	secret   flow.Secret

	dirRegion      *shm.Region
	dir            *directory.Directory
	countersRegion *shm.Region
	counters       *counters.Set

	lastDeadline uint32 // of the last park, mono.Millis
	timers       map[reload.StartTimer]*time.Timer
	stopDeadline time.Time // end of the stop in progress; zero: none
	fences       []*fence
	watches      map[uint32]context.CancelFunc // by order
	preparing    map[uint32]*preparation

	zoneRegion     *shm.Region
	zoneCounters   *counters.Zones
	zoneTurns      []*zoneTurn   // the first has its turn
	zoneReloads    []*zoneReload // those that wait for workers
	nextZoneReload uint64
	jobs           sync.WaitGroup // beside the loop, under background
	background     context.Context
	endJobs        context.CancelFunc

	nextRequest uint64
	requests    map[uint64]*request
	current     *request // the reload that has not committed yet, nil: none
	lastReport  *control.ReloadReport
	drainTold   [directory.MaxSlots]time.Time // when the drain in a slot was last news
	outcomes    map[control.Outcome]uint64
	refusals    map[metrics.Refusal]uint64 // of the refused ones
	respawned   uint64
	fenced      uint64    // workers killed because they did not answer
	lapses      uint64    // parks that lapsed
	configHash  hashed    // has a lock of its own
	lastTraffic time.Time // seen by the monitor
	fewFiles    uint64    // the limit of open files that was warned of last; 0: none
	stopWaiters []*stopWaiter
	journal     journal
	orders      orders
	keeper      keeper
	stored      stored
	pidFile     string  // written; "": none
	taking      *taking // what this supervisor began with; nil: nothing
	door        *handover.Listener
	upgrade     *upgrade        // under way; nil: none
	standby     *standby        // that has given the instance to this one, and lives; nil: none
	away        bool            // another supervisor has the instance
	kept        []*generation   // what this one had, when it is away
	leaving     chan *departure // takes how this process goes on
	departed    *departure      // valid when Run has returned; nil: the instance has ended
	tracing     *tracing        // nil: nothing is traced
	manager     *notifier
	patience    *time.Timer // asks the manager for more time; nil: it waits for nothing
	haste       haste

	control *control.Server
	admin   *http.Server
}

// Options are what the command line adds to the configuration.
type Options struct {
	Version control.Version
	Log     *slog.Logger
	Ready   func() // called once, when the first generation serves; may be nil
	Fresh   bool   // end the workers of an earlier supervisor instead of adopting them
	// TakeOver is the control socket of the supervisor to take over from; "": none.
	TakeOver string

	from    *net.UnixConn    // to take over from again; nil: nobody
	lock    *os.File         // of the control directory, if this process has it; then it had the instance before
	estates []*worker.Estate // what it had
	stored  []fdstore.File   // what the service manager has kept
}

// bootRequest is the id of the request for the first generation; reloads count
// from 1.
const bootRequest = math.MaxUint64

// inboxSize bounds the posts that wait for the loop.
const inboxSize = 256

// New returns a supervisor for a configuration of config.Load. It binds and
// starts nothing yet.
func New(cfg *config.Config, o Options) (*Supervisor, error) {
	s := &Supervisor{
		log: o.Log, options: o, path: cfg.File, env: workerEnv(), started: time.Now(),
		inbox: make(chan func(), inboxSize), done: make(chan struct{}), exit: make(chan int, 1), exited: make(chan struct{}),
		leaving: make(chan *departure, 1),
		cfg:     cfg, sockets: newSockets(), secret: flow.NewSecret(),
		timers: make(map[reload.StartTimer]*time.Timer), watches: make(map[uint32]context.CancelFunc),
		preparing: make(map[uint32]*preparation), requests: make(map[uint64]*request),
		outcomes: make(map[control.Outcome]uint64), refusals: make(map[metrics.Refusal]uint64),
	}
	s.manager = newNotifier(s.log)
	s.stored = newStored(o.stored, s.manager, s.log)
	var err error
	if s.haste.nice, err = priority.Niceness(); err != nil {
		return nil, err
	}
	s.background, s.endJobs = context.WithCancel(context.Background())
	if os.Geteuid() == 0 { // else there is nothing to drop
		uid, gid, err := config.LookupUser(cfg.User)
		if err != nil {
			return nil, err
		}
		s.identity = spawn.Identity{UID: uid, GID: gid, Change: true}
	}
	s.zones = zones.NewStore(s.env, s.identity, priority.Idle(s.haste.nice), s.log)
	if err := s.makeRegions(); err != nil {
		return nil, err
	}
	return s, nil
}

// workerEnv is the environment of workers and compilers: what steers the Go
// runtime, and nothing that a configuration may have taken secrets from.
func workerEnv() []string {
	env := []string{}
	for _, k := range []string{"GODEBUG", "GOTRACEBACK", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "TZ", hold.Variable} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

func (s *Supervisor) makeRegions() (err error) {
	if s.dirRegion, err = shm.Create("directory", directory.RegionSize); err != nil {
		return err
	}
	if s.dir, err = directory.Format(s.dirRegion); err != nil {
		return err
	}
	if s.countersRegion, err = shm.Create("counters", counters.RegionSize); err != nil {
		return err
	}
	if s.counters, err = counters.Format(s.countersRegion); err != nil {
		return err
	}
	if s.zoneRegion, err = shm.Create("counters:zones", counters.ZonesSize); err != nil {
		return err
	}
	if s.zoneCounters, err = counters.FormatZones(s.zoneRegion); err != nil {
		return err
	}
	s.backends, err = newBackends(s.log)
	return err
}

// post has the loop call f. It may block for a while when the loop is busy, and
// does nothing when the loop has ended.
func (s *Supervisor) post(f func()) {
	select {
	case s.inbox <- f:
	case <-s.done:
	}
}

// ask has the loop call f, and waits until it has.
func (s *Supervisor) ask(ctx context.Context, f func()) error {
	called := make(chan struct{})
	away := false
	s.post(func() {
		if away = s.away; !away {
			f()
		}
		close(called)
	})
	select {
	case <-called:
		if away {
			return control.Refuse("another supervisor has taken over: ask again")
		}
		return nil
	case <-s.done:
		return errors.New("dnsapp has stopped")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// feed gives the machine an event. Within the loop only; events that effects
// cause are taken up after the effects.
func (s *Supervisor) feed(e reload.Event) { s.events = append(s.events, e) }

// step feeds the waiting events, one at a time.
func (s *Supervisor) step() {
	if s.away {
		s.events = nil
	}
	for len(s.events) > 0 {
		e := s.events[0]
		s.events = s.events[1:]
		if _, ok := e.(reload.ParkLapsed); ok {
			s.lapses++
		}
		next, effects := reload.Step(s.state, e)
		s.state = next
		if hold.Enabled {
			holdAt("before", effects)
		}
		var later []reload.Effect
		parked := next.Phase == reload.PhaseFlipping // every lane is: words can wait
		if !parked {
			s.observe(e, effects)
		}
		for _, f := range effects {
			if _, ok := f.(reload.LogTransition); ok && parked {
				later = append(later, f)
				continue
			}
			s.carryOut(f)
		}
		if parked {
			s.observe(e, effects)
		}
		for _, f := range later {
			s.carryOut(f)
		}
		if hold.Enabled {
			holdAt("after", effects)
		}
	}
}

// holdAt is a place before, or after, the effects that come with a transition
// are carried out: "before flipping", "after draining".
func holdAt(when string, effects []reload.Effect) {
	for _, f := range effects {
		if t, ok := f.(reload.LogTransition); ok {
			hold.At(fmt.Sprintf("%s %v", when, t.To))
		}
	}
}

// Run serves until it is told to stop, and returns the exit code. signals are
// those of the process; see Signals.
func (s *Supervisor) Run(signals <-chan os.Signal) (int, error) {
	defer close(s.done)
	err := s.open()
	if err == nil {
		err = s.adopt()
	}
	if err != nil {
		s.giveUp(err)
		s.close()
		return exit.Of(err), err
	}
	s.dir.SetCoordinator(spawn.Self())
	s.restore()
	s.standby = s.taken(s.taking)
	s.log.Info("dnsapp starts", "version", s.options.Version.Version, "pid", os.Getpid(), "config", s.path, "control", s.cfg.Control)
	s.monitor()
	s.keepDoor()
	s.keep()
	s.busy(true)
	boot := s.follow(bootRequest)
	s.feed(s.reloadEvent(boot.id))
	if s.standby != nil {
		go s.reportTo(s.standby, boot)
	}
	for {
		s.step()
		s.keepTallies()
		s.tellStored()
		s.letGoWhenQuiet()
		select {
		case f := <-s.inbox:
			f()
		case sig := <-signals:
			s.handleSignal(sig)
		case d := <-s.leaving:
			s.departed = d
			s.depart()
			return d.code, d.err
		case code := <-s.exit:
			var err error
			if code != 0 {
				err = errors.New(boot.report.Reason)
			} else {
				s.forgetStored()
			}
			s.close()
			return code, err
		}
	}
}

// open takes what an instance holds from its start to its end.
func (s *Supervisor) open() error {
	s.control = control.NewServer(s, s.log)
	if err := s.ensureFiles(s.cfg); err != nil {
		return err
	}
	if err := s.holdDirectory(); err != nil {
		return err
	}
	go func() {
		if err := s.control.Serve(); err != nil {
			s.log.Error("control socket", "error", err)
		}
	}()
	if s.cfg.Admin.IsValid() {
		if err := s.listenAdmin(s.cfg.Admin); err != nil {
			return err
		}
	}
	return nil
}

// shutdownTimeout bounds how long answers to control requests may take to get
// out at the end.
const shutdownTimeout = 2 * time.Second

// close gives back what open took. The workers are gone.
func (s *Supervisor) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if s.admin != nil {
		_ = s.admin.Close()
	}
	for _, c := range s.watches {
		c()
	}
	s.endJobs()
	s.jobs.Wait()
	s.saveLast()
	s.endOthers(ctx)
	s.closeDoor()
	s.endControl(ctx)
	s.removePIDFile()
	s.busy(false)
	s.manager.close()
	s.log.Info("dnsapp has stopped")
}

// endControl closes the control socket. The loop still answers while the last
// requests end.
func (s *Supervisor) endControl(ctx context.Context) {
	served := make(chan error, 1)
	go func() { served <- s.control.Shutdown(ctx) }()
	for {
		select {
		case f := <-s.inbox:
			f()
			continue
		case err := <-served:
			if err != nil {
				s.log.Debug("closing the control socket", "error", err)
			}
		}
		return
	}
}

// wakeAll hastens every lane of every generation.
func (s *Supervisor) wakeAll() {
	for _, g := range s.gens {
		if g != nil {
			g.wake()
		}
	}
}

// wake hastens every lane of g.
func (g *generation) wake() {
	for _, fd := range g.wakes {
		netio.Wake(fd)
	}
}

// carryOut executes one effect.
func (s *Supervisor) carryOut(f reload.Effect) {
	switch f := f.(type) {
	case reload.Prepare:
		s.prepare(f)
	case reload.CancelPrepare:
		s.cancelPrepare(f.Order)
	case reload.SpawnWorkers:
		s.spawnAll(f)
	case reload.RespawnWorker:
		if g := s.generation(f.Gen); g != nil {
			s.respawn(g, f.Worker)
		}
	case reload.Fence:
		s.fence(f.Order, f.Workers)
	case reload.SignalWorkers:
		if g := s.generation(f.Gen); g != nil {
			s.endWorkers(g, f.Signal)
		}
	case reload.FoldAndFree:
		if g := s.generation(f.Gen); g != nil {
			s.fold(g)
		}
	case reload.Mark:
		s.dir.SetState(int(f.Gen.Slot), f.State)
		if !s.dir.Owner().IsPark() { // else the end of the park wakes them, and until then each would be in its way
			s.wakeAll()
		}
	case reload.OpenWindow:
		s.openWindow(f.Gen)
	case reload.CloseWindow:
		s.closeWindow(f.Gen)
	case reload.SetHanded:
		s.setHanded(f)
	case reload.Ask:
		s.askLanes(f)
	case reload.Park:
		s.park(f.Order)
	case reload.Unpark:
		if w := s.dir.Owner(); w.IsPark() {
			// A lapse may be first; either way nobody is parked any more.
			_ = s.dir.Unpark(w)
			s.wakeAll()
		}
	case reload.Flip:
		s.flip(f)
	case reload.SetOwner:
		s.dir.SetOwner(f.Gen.Epoch)
		s.wakeAll()
	case reload.Commit:
		s.commit(f)
	case reload.AskDrain:
		s.askDrain(f)
	case reload.Resume:
		s.resume(f.Gen)
	case reload.Release:
		s.release(f)
	case reload.StartTimer:
		s.startTimer(f)
	case reload.StopTimer:
		s.stopTimer(f)
	case reload.Report:
		s.reported(f)
	case reload.Notify:
		s.notify(f.Status)
	case reload.LogTransition:
		s.transition(f)
	case reload.LogIllegal:
		s.log.Error("bug: an event that does not fit the state", "event", fmt.Sprintf("%T%+v", f.Event, f.Event), "phase", f.Phase)
	case reload.Exit:
		s.exit <- f.Code
		close(s.exited)
	default:
		s.log.Error("bug: unknown effect", "effect", fmt.Sprintf("%T", f))
	}
}

// generation returns the generation that g names, nil if it is gone.
func (s *Supervisor) generation(g reload.Generation) *generation {
	if own := s.gens[g.Slot]; own != nil && own.Epoch == g.Epoch {
		return own
	}
	return nil
}
