package reload

import (
	"fmt"
	"slices"

	"github.com/dnsapp/dnsapp/server/directory"
)

// move is one thing that may happen next in a world.
type move struct {
	class  class
	what   string
	epoch  uint32 // whose worker does it, 0 for nobody's
	worker int
	// do, if any, changes the world; then the events are fed to the machine.
	do     func(*world)
	events []Event
	cut    int // of the effects of the first event: the supervisor is killed before it; 0: it is not
}

// class orders moves by how much they help: a run that always takes a move of
// the lowest class is a fair run without new faults or requests.
type class uint8

const (
	helps   class = iota
	timeout       // orders that fail by time: only when nothing else moves
	timer
	hinders // faults, requests, and time-outs that come early
)

// moves returns everything that may happen in w.
func (md *model) moves(w *world) []move {
	if w.exited {
		return nil
	}
	var list []move
	add := func(c class, what string, do func(*world), events ...Event) {
		list = append(list, move{class: c, what: what, do: do, events: events})
	}
	for g := range w.gens {
		if w.gens[g].epoch != 0 {
			list = append(list, md.processMoves(w, g)...)
			w.generationMoves(g, add)
		}
	}
	for i := range w.ops {
		if w.ops[i].order != 0 {
			md.answers(w, i, add)
		}
	}
	for _, t := range []Timer{TimerStop, TimerStopFast} {
		if w.stop&(1<<t) != 0 {
			add(timer, "fires", func(w *world) { w.stop &^= 1 << t }, TimerFired{Timer: t})
		}
	}
	if w.owner.park && w.someLaneParked() && !md.brisk {
		add(hinders, "a lane takes the wire back", func(w *world) { w.owner.park = false })
	}
	if w.orphan {
		return append(orphanMoves(list), md.adoption(w))
	}
	md.requests(w, add)
	if w.kills > 0 && w.m.Phase != PhaseDown {
		list = append(list, w.killMoves(list)...)
	}
	return list
}

type adder = func(c class, what string, do func(*world), events ...Event)

// String tells the move in a path.
func (mv move) String() string {
	s := mv.what
	if mv.epoch != 0 {
		s = fmt.Sprintf("worker %d of epoch %d %s", mv.worker, mv.epoch, mv.what)
	}
	for _, e := range mv.events {
		s += fmt.Sprintf("; %T%+v", e, e)
	}
	if mv.cut > 0 {
		s += fmt.Sprintf("; the supervisor is killed before effect %d of it", mv.cut)
	}
	return s
}

// processMoves are what the worker processes of slot g, and their lanes, may do.
func (md *model) processMoves(w *world, g int) (list []move) {
	name := Generation{Slot: uint8(g), Epoch: w.gens[g].epoch}
	for i, p := range w.gens[g].workers[:md.crew] {
		add := func(c class, what string, do func(*world, *process), events ...Event) {
			list = append(list, move{
				class: c, what: what, epoch: name.Epoch, worker: i, events: events,
				do: func(w *world) { do(w, &w.gens[g].workers[i]) },
			})
		}
		runs := p.life == ready || p.life == up
		switch {
		case p.life == none && p.respawn:
			add(helps, "is started again", func(_ *world, p *process) { p.life = starting })
		case p.life == starting && p.doom == NoSignal && !p.stopped:
			if md.brisk {
				add(helps, "is READY", func(_ *world, p *process) { p.life, p.respawn = up, false },
					WorkerReady{Gen: name, Worker: i})
				break
			}
			add(helps, "writes READY", func(_ *world, p *process) { p.life = ready })
		case p.life == ready:
			add(helps, "is found READY", func(_ *world, p *process) { p.life, p.respawn = up, false },
				WorkerReady{Gen: name, Worker: i})
		case p.life == dead && !w.gens[g].signalled:
			add(helps, "is found dead", func(w *world, _ *process) { w.ended(g, i) },
				WorkerExited{Gen: name, Worker: i, Reason: "died"})
			if name == w.m.Active {
				add(hinders, "is found dead again", func(w *world, _ *process) { w.ended(g, i) },
					WorkerExited{Gen: name, Worker: i, Reason: "died"}, WorkersLost{Gen: name, Reason: "again and again"})
			}
		}
		if runs && !p.stopped {
			after := *w
			after.boundary(g, i)
			if after.gens[g].workers[i] != p || after.ops != w.ops {
				add(helps, "passes a boundary", func(w *world, _ *process) { w.boundary(g, i) })
			}
		}
		if p.ends() && !w.gens[g].signalled {
			add(helps, "ends", func(_ *world, p *process) { p.die() })
		}
		if w.faults > 0 && p.life.live() && p.doom == NoSignal {
			add(hinders, "dies", func(w *world, p *process) { w.faults--; p.die() })
		}
		if w.faults > 0 && p.life.live() && !p.stopped {
			add(hinders, "is stopped", func(w *world, p *process) { w.faults--; p.stopped = true })
		}
		if p.stopped {
			add(hinders, "goes on", func(_ *world, p *process) { p.stopped = false })
		}
	}
	return list
}

// generationMoves are the end of the processes of slot g, and its timers.
func (w *world) generationMoves(g int, add adder) {
	name := Generation{Slot: uint8(g), Epoch: w.gens[g].epoch}
	if w.gens[g].ends() {
		var events []Event
		for i, p := range w.gens[g].workers {
			if p.life != none {
				events = append(events, WorkerExited{Gen: name, Worker: i, Reason: "ended"})
			}
		}
		add(helps, "all end", func(w *world) {
			for i := range w.gens[g].workers {
				w.gens[g].workers[i].die()
				w.ended(g, i)
			}
		}, append(events, ProcessesGone{Gen: name})...)
	}
	for t := TimerReady; t <= TimerTerm; t++ {
		if w.timers[g]&(1<<t) != 0 {
			add(timer, "fires", func(w *world) { w.timers[g] &^= 1 << t }, TimerFired{Timer: t, Gen: name})
		}
	}
}

// answers are the answers that order i under way may get.
func (md *model) answers(w *world, i int, add adder) {
	o := w.ops[i]
	done := func(w *world) { w.ops[i] = op{} }
	switch o.kind {
	case opPrepare:
		if w.live() == md.gens {
			add(helps, "has no memory", done, PrepareFailed{Order: o.order, Reason: "bad"})
			return
		}
		epoch := w.newEpoch()
		for lists := sockets(1); lists < 1<<allSockets; lists += 2 {
			if md.removes || lists == 1 {
				add(helps, fmt.Sprintf("is prepared with sockets %b", lists), func(w *world) {
					done(w)
					w.gens[o.slot] = gen{epoch: epoch, mark: directory.Starting, lists: lists}
				}, Prepared{Order: o.order, Epoch: epoch, Workers: md.crew})
			}
		}
		if md.brisk {
			return
		}
		add(hinders, "is not prepared", done, PrepareFailed{Order: o.order, Reason: "bad"})
	case opAsk:
		switch waiting, stopped := w.unanswered(o.left); {
		case waiting.Empty():
			add(helps, "all answered", done, LanesAnswered{Order: o.order})
		case waiting == stopped:
			add(timeout, "stalled", done, Unanswered{Order: o.order, Silent: stopped})
		}
	case opFence:
		if o.left.Empty() {
			add(helps, "fenced", done, Fenced{Order: o.order, Workers: o.workers})
		}
	case opPark:
		if w.owner.park && md.barrier(w) {
			add(helps, "the last ack is seen", func(w *world) { w.ops[i].kind = opParked })
		}
		if md.brisk {
			return
		}
		add(timeout, "the lease ends", done, ParkLapsed{Order: o.order})
	case opParked:
		add(helps, "all parked", done, LanesParked{Order: o.order, Word: directory.Parked(w.owner.epoch, 1)})
	case opFlipped:
		add(helps, "flipped", done, Flipped{Order: o.order})
	case opFlipLost:
		add(helps, "lost", done, FlipLost{Order: o.order})
	case opDrain:
		if w.stalled(int(o.slot)).Empty() {
			add(helps, "drained", done, Drained{Order: o.order})
		}
	case opRelease:
		if silent := w.unreleased(int(o.slot), md.crew); !silent.Empty() {
			add(timeout, "stalled", done, Unanswered{Order: o.order, Silent: silent})
		} else {
			add(helps, "released", func(w *world) {
				done(w)
				w.gens[o.slot].released = true
			}, RingsReleased{Order: o.order})
		}
	}
}

// requests are what operators may ask for.
func (md *model) requests(w *world, add adder) {
	id := w.newID()
	if w.m.Phase == PhaseDown { // a fair run goes on from here
		add(helps, "boot", nil, ReloadRequested{ID: id})
	} else {
		for _, mode := range md.modes {
			add(hinders, "request", nil, ReloadRequested{ID: id, Mode: mode})
			for _, o := range md.overlaps {
				add(hinders, "request", nil, ReloadRequested{ID: id, Mode: mode, Overlap: o})
			}
		}
	}
	if md.calm {
		return
	}
	add(hinders, "request", nil, AbortRequested{ID: id})
	for g := range w.gens {
		if w.gens[g].epoch != 0 {
			add(hinders, "request", nil, DrainNowRequested{ID: id, Epoch: w.gens[g].epoch})
		}
	}
	for k := w.m.Stop + 1; k <= StopNow; k++ {
		add(hinders, "request", nil, StopRequested{Kind: k})
	}
}

// live returns how many generations there are.
func (w *world) live() (n int) {
	for _, g := range w.gens {
		if g.epoch != 0 {
			n++
		}
	}
	return n
}

func (w *world) newEpoch() (e uint32) {
	for _, g := range w.gens {
		e = max(e, g.epoch)
	}
	return e + 1
}

func (w *world) newID() uint64 {
	ids := heldIDs(&w.m)
	return ids[len(ids)-1] + 1
}

// unanswered returns those of the asked workers that an Ask waits for, and
// those of them that are stopped.
func (w *world) unanswered(asked Workers) (waiting, stopped Workers) {
	for g := range w.gens {
		for i, p := range w.gens[g].workers {
			if p.life.live() && asked[g].Has(i) {
				waiting[g] |= OneWorker(i)
				if p.stopped {
					stopped[g] |= OneWorker(i)
				}
			}
		}
	}
	return waiting, stopped
}

// stalled returns the live workers of slot g that are stopped.
func (w *world) stalled(g int) (set Workers) {
	for i, p := range w.gens[g].workers {
		if p.life.live() && p.stopped {
			set[g] |= OneWorker(i)
		}
	}
	return set
}

// unreleased returns the workers that keep the rings of slot g from being
// empty: its own that are stopped, those of others that it forwards to, and, if
// it has dead ones, those of others that should take back what they pushed to
// these.
func (w *world) unreleased(g, crew int) Workers {
	silent := w.stalled(g)
	died := slices.ContainsFunc(w.gens[g].workers[:crew], func(p process) bool { return !p.life.live() })
	for o := range w.gens {
		if w.gens[o].mark.Live() && (died || w.gens[o].epoch < w.gens[g].epoch) {
			silent[o] |= w.stalled(o)[o]
		}
	}
	return silent
}

func (w *world) someLaneParked() bool {
	for g := range w.gens {
		for _, p := range w.gens[g].workers {
			if p.ack == ackCurrent && !p.stopped && w.gens[g].epoch == w.owner.epoch {
				return true
			}
		}
	}
	return false
}

// apply makes the move. It reports whether anything has changed; w is in
// canonical form then.
func (md *model) apply(w *world, mv move) (changed bool, err error) {
	before := w.m
	if mv.do != nil {
		mv.do(w)
	}
	if mv.cut > 0 {
		if err := md.feedCut(w, mv.events[0], mv.cut); err != nil {
			return true, err
		}
		mv.events = nil
	}
	for _, e := range mv.events {
		if err := md.feed(w, e); err != nil {
			return true, err
		}
	}
	if mv.do == nil && w.m == before {
		return false, nil
	}
	if err := w.check(md.defects.blind); err != nil {
		return true, err
	}
	w.canon(md.defects.staleAcks)
	return true, nil
}

// ends reports whether a live process obeys the signal that it was sent.
func (p *process) ends() bool {
	return p.life.live() && p.doom != NoSignal && (!p.stopped || p.doom == SignalKill)
}

// ends reports whether the generation is told to end, and nothing keeps it.
func (g *gen) ends() bool {
	for i := range g.workers {
		if p := &g.workers[i]; p.life.live() && !p.ends() {
			return false
		}
	}
	return g.signalled
}

// canon makes worlds equal that behave alike. It renames what grows without
// bound (epochs, orders, request IDs), forgets what decides nothing (reasons,
// answers to questions that nobody asks), sorts slots by epoch and workers that
// differ only in their index, and skips from the first lapse of a park to the last but one
// that is retried: the machine compares their number with its limit only.
func (w *world) canon(keepStaleAcks bool) {
	w.forget(keepStaleAcks)
	if w.m.Lapses > 0 && w.m.Lapses < MaxRetries {
		w.m.Lapses = MaxRetries - 1
	}
	w.sortSlots()
	w.m.Orders = uint32(rename(&w.m.Await, &w.m.Slots[0].Await, &w.m.Slots[1].Await, &w.m.Slots[2].Await,
		&w.m.Slots[3].Await, &w.ops[0].order, &w.ops[1].order, &w.ops[2].order, &w.ops[3].order, &w.ops[4].order))
	rename(&w.m.Request, &w.m.Pending.ID, &w.m.Slots[0].Request, &w.m.Slots[1].Request, &w.m.Slots[2].Request,
		&w.m.Slots[3].Request)
	rename(&w.owner.epoch, &w.m.Active.Epoch, &w.m.Next.Epoch, &w.gens[0].epoch, &w.gens[1].epoch, &w.gens[2].epoch,
		&w.gens[3].epoch, &w.m.Slots[0].Epoch, &w.m.Slots[1].Epoch, &w.m.Slots[2].Epoch, &w.m.Slots[3].Epoch)
	slices.SortFunc(w.ops[:], func(a, b op) int { return int(a.order) - int(b.order) })
	for i := range w.m.Slots {
		w.sortWorkers(i)
	}
}

// forget clears what no move and no check will look at.
func (w *world) forget(keepStaleAcks bool) {
	var handing slots
	for i, g := range w.gens {
		if g.workers[0].header == handed || g.workers[1].header == handed {
			handing |= 1 << i
		}
	}
	for i := range w.gens {
		w.m.Slots[i].Reason = ""
		for j := range w.gens[i].workers {
			p := &w.gens[i].workers[j]
			if p.behind &= handing; p.reading == 0 {
				p.behind = 0
			}
			if p.ack == ackCurrent && !w.owner.park {
				p.ack = ackStale
			}
			if p.ack == ackStale && !keepStaleAcks {
				p.ack = ackNone
			}
		}
	}
}

// sortSlots puts the generations into the first slots, oldest first, and then
// the one that is being prepared: which slot a generation has decides nothing.
func (w *world) sortSlots() {
	preparing := -1
	if w.m.Phase == PhasePreparing {
		preparing = int(w.m.Next.Slot)
	}
	rank := func(i int) int {
		switch {
		case w.gens[i].epoch != 0:
			return int(w.gens[i].epoch)
		case i == preparing:
			return 1 << 30
		}
		return 1<<30 + 1
	}
	order := [MaxSlots]int{0, 1, 2, 3}
	slices.SortStableFunc(order[:], func(a, b int) int { return rank(a) - rank(b) })
	if order == [MaxSlots]int{0, 1, 2, 3} {
		return
	}
	before := *w
	var to [MaxSlots]uint8
	for i, from := range order {
		to[from] = uint8(i)
		w.m.Slots[i], w.gens[i], w.timers[i] = before.m.Slots[from], before.gens[from], before.timers[from]
		for o := range w.ops {
			w.ops[o].workers[i], w.ops[o].left[i] = before.ops[o].workers[from], before.ops[o].left[from]
		}
	}
	for i := range w.gens {
		for j := range w.gens[i].workers {
			var behind slots
			for from := range to {
				behind |= w.gens[i].workers[j].behind >> from & 1 << to[from]
			}
			w.gens[i].workers[j].behind = behind
		}
	}
	for o := range w.ops {
		switch w.ops[o].kind {
		case opPrepare, opDrain, opRelease:
			if w.ops[o].order != 0 {
				w.ops[o].slot = to[w.ops[o].slot]
			}
		default: // about no slot
		}
	}
	if w.m.Active.Epoch != 0 {
		w.m.Active.Slot = to[w.m.Active.Slot]
	}
	if w.m.Next.Epoch != 0 || preparing >= 0 {
		w.m.Next.Slot = to[w.m.Next.Slot]
	}
}

// rename replaces every value by its rank among them, from 1; 0 stays. It
// returns the highest rank.
func rename[T uint32 | uint64](vars ...*T) int {
	var room [11]T
	vals := room[:0]
	for _, v := range vars {
		if *v != 0 && !slices.Contains(vals, *v) {
			vals = append(vals, *v)
		}
	}
	slices.Sort(vals)
	for _, v := range vars {
		if *v != 0 {
			*v = T(slices.Index(vals, *v) + 1)
		}
	}
	return len(vals)
}

// sortWorkers swaps the workers of slot i if that makes the world smaller.
func (w *world) sortWorkers(i int) {
	if w.m.Slots[i].Workers != AllWorkers(2) || w.workerKey(i, 0) <= w.workerKey(i, 1) {
		return
	}
	p := &w.gens[i].workers
	p[0], p[1] = p[1], p[0]
	swap := func(s *WorkerSet) { *s = *s>>1&1 | *s<<1&2 }
	swap(&w.m.Slots[i].Up)
	for o := range w.ops {
		swap(&w.ops[o].workers[i])
		swap(&w.ops[o].left[i])
	}
}

// workerKey packs all that tells worker j of slot i from its sibling.
func (w *world) workerKey(i, j int) (key uint64) {
	p := &w.gens[i].workers[j]
	bit := func(b bool) {
		key <<= 1
		if b {
			key |= 1
		}
	}
	bit(p.respawn)
	bit(p.stopped)
	bit(w.m.Slots[i].Up.Has(j))
	for o := range w.ops {
		bit(w.ops[o].workers[i].Has(j))
		bit(w.ops[o].left[i].Has(j))
	}
	return key<<18 | uint64(p.behind)<<14 | uint64(p.reading)<<12 | uint64(p.life)<<9 | uint64(p.doom)<<6 | uint64(p.ack)<<3 | uint64(p.header)
}
