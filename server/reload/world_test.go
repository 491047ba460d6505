package reload

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dnsapp/dnsapp/server/directory"
)

// world is the machine together with all that it acts on: the owner word, the
// lanes that obey it, the processes, headers, timers and orders under way. It is
// comparable, and finite up to canon. Generations have up to maxCrew workers of
// one lane.
type world struct {
	m      State
	owner  ownerWord
	gens   [MaxSlots]gen
	ops    [MaxSlots + 1]op // under way; order 0: none
	timers [MaxSlots]timerSet
	stop   timerSet // TimerStop and TimerStopFast
	faults uint8    // deaths and stops by themselves that may still happen
	kills  uint8    // deaths of the supervisor that may still happen
	orphan bool     // no supervisor is there
	exited bool
}

const maxCrew = 2

// sockets is a set of sockets. Every generation has socket 0; those that lack
// socket 1 have removed a listener.
type sockets uint8

const allSockets = 2

// slots is a set of slots.
type slots uint8

func (s sockets) has(i int) bool { return s>>i&1 != 0 }

// ownerWord is the owner word. There is at most one park that anybody acts on,
// so its name is not needed: an ack is of this park or stale.
type ownerWord struct {
	epoch uint32
	park  bool
}

// gen is one generation as the world sees it.
type gen struct {
	epoch     uint32 // 0: free
	mark      directory.State
	lists     sockets
	own       bool // reads sockets of its own until it owns the wire (mode restart)
	owned     bool // has owned the wire
	drains    bool // has been asked to drain
	stops     bool // has been asked to for good, as the owner of the wire
	signalled bool
	committed bool
	released  bool
	workers   [maxCrew]process
}

// process is one worker with its lane.
type process struct {
	life    life
	respawn bool    // the supervisor keeps trying to start it
	stopped bool    // by SIGSTOP; may go on at any time
	doom    Signal  // strongest signal sent
	reading sockets // those that its last look at the words said it reads
	ack     ack
	behind  slots // whose headers went HANDED since it passed a boundary
	header  header
	off     bool // written off by a soft fence
}

type (
	life     uint8
	ack      uint8
	header   uint8
	opKind   uint8
	timerSet uint8
)

const (
	none     life = iota // no process
	starting             // not READY
	ready                // READY, and the machine does not know yet
	up                   // READY, and the machine has been told
	dead                 // dead, and the machine does not know yet
)

const (
	ackNone ack = iota
	ackStale
	ackCurrent
)

const (
	headerNone header = iota
	publishing
	handed
)

const (
	opPrepare opKind = iota
	opAsk
	opFence
	opPark
	opParked // LanesParked is on its way
	opFlipped
	opFlipLost
	opDrain
	opRelease
)

// op is an order under way.
type op struct {
	order   uint32
	kind    opKind
	slot    uint8   // of opPrepare, opDrain, opRelease
	workers Workers // of opFence
	left    Workers // of opFence: whose process has not ended yet; of opAsk: who has not passed a boundary
}

func (l life) live() bool { return l == starting || l == ready || l == up }

// defects are the ways in which a test makes the world, or the machine, wrong.
type defects struct {
	staleAcks  bool              // any ack counts as an ack of the present park
	softFence  bool              // Fence writes processes off and leaves them alone
	blindFlip  bool              // Flip stores instead of comparing and swapping
	blind      bool              // nobody looks whether two generations read
	leftAtOnce bool              // a leaving generation's sockets pass on before its lanes have stopped
	drop       func(Effect) bool // effects that the machine forgets
}

// model applies moves to worlds.
type model struct {
	modes    []Mode    // that reloads ask for
	overlaps []Overlap // the same; none: FinishOldest
	crew     int       // workers of a generation, 1 .. maxCrew
	gens     int       // live at once, 2 .. MaxSlots: with as many there is no memory for another
	calm     bool      // nobody asks for anything but reloads
	brisk    bool      // processes start and end in one move, and no reload fails
	kills    uint8     // deaths of the supervisor
	removes  bool      // some generations lack a listener that others have
	defects  defects
	// edge is told of every transition and the event that caused it.
	edge func(LogTransition, Event)
}

// feed hands e to the machine and carries out its effects. An error is a broken
// invariant.
func (md *model) feed(w *world, e Event) error {
	before := w.m
	after, effects := Step(before, e)
	w.m = after
	waiting := heldIDs(&before)
	if id := requestID(e); id != 0 {
		waiting.add(id)
	}
	for _, f := range effects {
		if md.defects.drop != nil && md.defects.drop(f) {
			continue
		}
		switch f := f.(type) {
		case LogIllegal:
			return fmt.Errorf("%v refused %T", f.Phase, f.Event)
		case LogTransition:
			if md.edge != nil {
				md.edge(f, e)
			}
		case Report:
			if !waiting.remove(f.ID) {
				return fmt.Errorf("request %d has a second report, or was never made", f.ID)
			}
		default:
			if err := md.carryOut(w, f); err != nil {
				return fmt.Errorf("%+v: %w", f, err)
			}
		}
	}
	if held := heldIDs(&after); waiting != held {
		return fmt.Errorf("requests %v have no report yet, the machine knows of %v", waiting, held)
	}
	w.dropLateOps()
	return w.check(md.defects.blind)
}

// idSet is a small set of request IDs: ascending, unused places (0) first.
type idSet [MaxSlots + 3]uint64

func (s *idSet) add(id uint64) {
	s[0] = id
	slices.Sort(s[:])
}

func (s *idSet) remove(id uint64) bool {
	i := slices.Index(s[:], id)
	if i < 0 || id == 0 {
		return false
	}
	s[i] = 0
	slices.Sort(s[:])
	return true
}

// heldIDs returns the requests that s will report on.
func heldIDs(s *State) (ids idSet) {
	ids[0], ids[1] = s.Request, s.Pending.ID
	for i := range s.Slots {
		ids[2+i] = s.Slots[i].Request
	}
	slices.Sort(ids[:])
	return ids
}

func requestID(e Event) uint64 {
	switch e := e.(type) {
	case ReloadRequested:
		return e.ID
	case AbortRequested:
		return e.ID
	case DrainNowRequested:
		return e.ID
	}
	return 0
}

var errFreed = errors.New("names a generation that is not there")

// at returns the generation that an effect names.
func (w *world) at(g Generation) (*gen, error) {
	if p := &w.gens[g.Slot]; g.Epoch != 0 && p.epoch == g.Epoch {
		return p, nil
	}
	return nil, errFreed
}

// carryOut does what the supervisor does.
func (md *model) carryOut(w *world, e Effect) error {
	switch e := e.(type) {
	case Prepare:
		if w.gens[e.Slot].epoch != 0 {
			return errors.New("the slot is taken")
		}
		return w.begin(op{order: e.Order, kind: opPrepare, slot: e.Slot})
	case CancelPrepare:
		i := slices.IndexFunc(w.ops[:], func(o op) bool { return o.kind == opPrepare && o.order == e.Order })
		if i < 0 {
			return errors.New("nothing is being prepared")
		}
		w.ops[i] = op{}
		return nil
	case Notify:
		return nil
	case Ask:
		left := e.Workers
		for g := range w.gens {
			for i, p := range w.gens[g].workers {
				if !p.life.live() {
					left[g] &^= OneWorker(i)
				}
			}
		}
		return w.begin(op{order: e.Order, kind: opAsk, left: left})
	case Fence:
		if md.defects.softFence {
			w.writeOff(e.Workers)
			return w.begin(op{order: e.Order, kind: opFence, workers: e.Workers})
		}
		return w.begin(op{order: e.Order, kind: opFence, workers: e.Workers, left: w.fence(e.Workers)})
	case Park:
		if w.owner.park || w.owner.epoch != w.m.Active.Epoch {
			return fmt.Errorf("the owner word is %+v", w.owner)
		}
		w.park()
		return w.begin(op{order: e.Order, kind: opPark})
	case Unpark:
		w.owner.park = false
		return nil
	case Flip:
		if _, err := w.at(e.Gen); err != nil {
			return err
		}
		if next := w.m.Slots[e.Gen.Slot]; next.Up != next.Workers && w.m.Return == NoReturn {
			return errors.New("it is not whole")
		}
		kind := opFlipLost
		if w.owner.park || md.defects.blindFlip {
			w.owner = ownerWord{epoch: e.Gen.Epoch}
			w.gens[e.Gen.Slot].owned = true
			kind = opFlipped
		}
		return w.begin(op{order: e.Order, kind: kind})
	case StartTimer:
		return w.startTimer(e)
	case StopTimer:
		*w.timerSet(e.Gen) &^= 1 << e.Timer
		return nil
	case Exit:
		w.exited = true
		return nil
	}
	return md.carryOutFor(w, e)
}

// carryOutFor does what concerns one generation.
func (md *model) carryOutFor(w *world, e Effect) error {
	g, err := w.at(subject(e))
	if err != nil {
		return err
	}
	owns := w.owner.epoch == g.epoch
	switch e := e.(type) {
	case SpawnWorkers:
		g.own = e.Mode == Restart
		for i := range md.crew {
			g.workers[i].life = starting
		}
	case RespawnWorker:
		if g.signalled || !owns || w.m.Phase == PhaseStopping {
			return errors.New("it is ending, or does not own the wire")
		}
		if p := &g.workers[e.Worker]; p.life == up && p.doom == NoSignal && !p.off {
			return errors.New("it is up")
		}
		g.workers[e.Worker].respawn = true
	case SignalWorkers:
		return w.signal(g, e, owns)
	case FoldAndFree:
		return w.free(g, e.Gen)
	case Mark:
		if e.State == directory.Left && g.reads() && !md.defects.leftAtOnce {
			return errors.New("it reads")
		}
		g.mark = e.State
		if e.State == directory.Leaving && md.defects.leftAtOnce {
			g.mark = directory.Left
		}
	case OpenWindow:
		if !owns {
			return errors.New("it does not own the wire")
		}
		return g.publish(md.crew)
	case CloseWindow:
		if !owns {
			return errors.New("it does not own the wire")
		}
		for i := range g.workers {
			g.workers[i].header = headerNone
		}
	case SetHanded:
		if owns {
			return errors.New("it owns the wire")
		}
		return w.setHanded(g, e.Workers)
	case SetOwner:
		if w.owner.park || w.owner.epoch != 0 && !g.own {
			return errors.New("a change of owner without a park")
		}
		w.owner = ownerWord{epoch: g.epoch}
		g.owned = true
	case Commit:
		if !owns {
			return errors.New("it does not own the wire")
		}
		g.committed = true
	case AskDrain:
		if w.m.Stop == NotStopping && (owns || !w.gens[w.m.Active.Slot].committed) {
			return errors.New("it owns the wire, or its successor is not committed")
		}
		g.drains, g.stops = true, owns
		return w.begin(op{order: e.Order, kind: opDrain, slot: e.Gen.Slot})
	case Resume:
		if !owns {
			return errors.New("it does not own the wire")
		}
		g.drains = false
	case Release:
		if w.forwardsTo(g) {
			return errors.New("a reader may still forward to it")
		}
		return w.begin(op{order: e.Order, kind: opRelease, slot: e.Gen.Slot})
	default:
		return errors.New("unknown effect")
	}
	return nil
}

// subject returns the generation that an effect is about.
func subject(e Effect) Generation {
	switch e := e.(type) {
	case SpawnWorkers:
		return e.Gen
	case RespawnWorker:
		return e.Gen
	case SignalWorkers:
		return e.Gen
	case FoldAndFree:
		return e.Gen
	case Mark:
		return e.Gen
	case OpenWindow:
		return e.Gen
	case CloseWindow:
		return e.Gen
	case SetHanded:
		return e.Gen
	case SetOwner:
		return e.Gen
	case Commit:
		return e.Gen
	case AskDrain:
		return e.Gen
	case Resume:
		return e.Gen
	case Release:
		return e.Gen
	}
	return Generation{}
}

func (w *world) begin(o op) error {
	for i := range w.ops {
		if w.ops[i].order == 0 {
			w.ops[i] = o
			return nil
		}
	}
	return errors.New("too many orders under way")
}

// dropLateOps forgets the orders whose answer nobody waits for. What they do to
// processes goes on. A Prepare must be canceled.
func (w *world) dropLateOps() {
	for i := range w.ops {
		awaited := w.ops[i].order == w.m.Await || w.ops[i].kind == opPrepare
		for _, s := range w.m.Slots {
			awaited = awaited || s.Await == w.ops[i].order
		}
		if !awaited {
			w.ops[i] = op{}
		}
	}
}

// fence kills these workers and returns those that had a process.
func (w *world) fence(workers Workers) (left Workers) {
	for g, set := range workers {
		for i := range set.All() {
			p := &w.gens[g].workers[i]
			p.respawn = false
			if p.life.live() {
				p.doom = SignalKill
			}
			if p.life != none {
				left[g] |= OneWorker(i)
			}
		}
	}
	return left
}

// writeOff has these workers count as gone.
func (w *world) writeOff(workers Workers) {
	for g, set := range workers {
		for i := range set.All() {
			w.gens[g].workers[i].off = true
		}
	}
}

// ended: the machine is about to know that this process has ended.
func (w *world) ended(g, i int) {
	w.gens[g].workers[i].life = none
	for o := range w.ops {
		w.ops[o].left[g] &^= OneWorker(i)
	}
}

func (w *world) park() {
	w.owner.park = true
	for g := range w.gens {
		for i := range w.gens[g].workers {
			if p := &w.gens[g].workers[i]; p.ack == ackCurrent {
				p.ack = ackStale
			}
		}
	}
}

func (w *world) signal(g *gen, e SignalWorkers, owns bool) error {
	if w.m.Stop == NotStopping {
		switch {
		case owns:
			return errors.New("it owns the wire")
		case g.mark != directory.Leaving && g.mark != directory.Left:
			return errors.New("it is not marked as leaving")
		case !g.owned: // an abort ends it
		case w.gens[w.m.Active.Slot].own:
		case !g.released || w.forwardsTo(g):
			return errors.New("its rings are not released")
		}
	}
	g.signalled = true
	for i := range g.workers {
		p := &g.workers[i]
		p.respawn = false
		if p.life.live() {
			p.doom = max(p.doom, e.Signal)
		}
	}
	return nil
}

func (w *world) free(g *gen, name Generation) error {
	for i := range g.workers {
		if p := g.workers[i]; p.life != none || p.respawn {
			return fmt.Errorf("worker %d is there", i)
		} else if p.header == publishing {
			return errors.New("its headers are PUBLISHING")
		}
	}
	if w.timers[name.Slot] != 0 {
		return errors.New("a timer runs on")
	}
	*g = gen{}
	return nil
}

func (g *gen) publish(crew int) error {
	for i := range crew {
		if g.workers[i].header != headerNone {
			return fmt.Errorf("header of worker %d is %d", i, g.workers[i].header)
		}
		g.workers[i].header = publishing
	}
	return nil
}

// reads reports whether a lane of the generation may be in a receive call.
func (g *gen) reads() bool {
	return slices.ContainsFunc(g.workers[:], func(p process) bool { return p.life.live() && p.reading != 0 })
}

func (w *world) setHanded(g *gen, set WorkerSet) error {
	for i := range set.All() {
		switch g.workers[i].header {
		case headerNone:
			return fmt.Errorf("worker %d never published", i)
		case publishing:
			g.workers[i].header = handed
			w.fallBehind(g)
		case handed:
		}
	}
	return nil
}

// fallBehind: headers of g have changed, and no lane has looked at them yet.
func (w *world) fallBehind(g *gen) {
	slot := slices.IndexFunc(w.gens[:], func(o gen) bool { return o.epoch == g.epoch })
	for o := range w.gens {
		for i := range w.gens[o].workers {
			if p := &w.gens[o].workers[i]; p.life == ready || p.life == up {
				p.behind |= 1 << slot
			}
		}
	}
}

// forwardsTo reports whether a lane that reads may not have seen yet that
// nothing is to be forwarded to g.
func (w *world) forwardsTo(g *gen) bool {
	for i := range g.workers {
		if g.workers[i].header == publishing {
			return true
		}
	}
	slot := slices.IndexFunc(w.gens[:], func(o gen) bool { return o.epoch == g.epoch })
	for i := range w.gens {
		for _, p := range w.gens[i].workers {
			if i != slot && p.life.live() && p.reading != 0 && p.behind>>slot&1 != 0 {
				return true
			}
		}
	}
	return false
}
