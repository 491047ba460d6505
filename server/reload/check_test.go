package reload

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dnsapp/dnsapp/server/directory"
)

// This file is what must hold in every world.

var errTwoReaders = errors.New("two generations read the wire")

// check tests what must hold in every state.
func (w *world) check(blind bool) error {
	if !blind && w.twoReaders() {
		return errTwoReaders
	}
	if w.orphan {
		return nil
	}
	if w.owner.park && (w.m.Phase != PhaseParking || w.m.Await == 0) {
		return errors.New("parked, and nobody counts the acks or waits for the lapse")
	}
	if w.m.Phase != PhasePreparing && slices.ContainsFunc(w.ops[:], func(o op) bool { return o.order != 0 && o.kind == opPrepare }) {
		return errors.New("what is being prepared is for nobody")
	}
	starts := 0
	for _, s := range w.m.Slots {
		if s.Stage == StageStarting {
			starts++
		}
	}
	if starts > 1 {
		return errors.New("two generations are starting")
	}
	if w.m.Return != NoReturn && (w.m.Phase < PhaseAsking || w.m.Phase > PhaseFlipping) {
		return errors.New("the wire goes back, and not by a hand-over")
	}
	if active := w.m.Active; active.Epoch != 0 && w.gens[active.Slot].epoch == active.Epoch &&
		w.m.Phase != PhaseFlipping && w.owner.epoch != active.Epoch {
		return fmt.Errorf("epoch %d is active, epoch %d owns the wire", active.Epoch, w.owner.epoch)
	}
	if w.exited && (w.gens != ([MaxSlots]gen{}) || heldIDs(&w.m) != (idSet{})) {
		return errors.New("exited with generations or requests left")
	}
	if w.m.Lapses > MaxRetries+1 {
		return errors.New("too many lapses")
	}
	for i := range w.gens {
		if err := w.checkSlot(i); err != nil {
			return fmt.Errorf("slot %d: %w", i, err)
		}
	}
	return w.untouched()
}

// twoReaders reports whether lanes of two generations read the same socket.
func (w *world) twoReaders() bool {
	var read sockets
	for g := range w.gens {
		var here sockets
		for _, p := range w.gens[g].workers {
			if p.life.live() {
				here |= p.reading
			}
		}
		if read&here != 0 {
			return true
		}
		read |= here
	}
	return false
}

// marks are what the directory says of a generation in each stage.
var marks = [...]directory.State{
	StageFree: directory.Free, StageStarting: directory.Starting, StageActive: directory.Active,
	StageDraining: directory.Draining, StageHanding: directory.Leaving, StageReleasing: directory.Left,
	StageReaping: directory.Leaving,
}

// checkSlot tests that the machine and the world agree on a slot.
func (w *world) checkSlot(i int) error {
	s, g := &w.m.Slots[i], &w.gens[i]
	if s.Epoch != g.epoch {
		return fmt.Errorf("%v with epoch %d, and holds epoch %d", s.Stage, s.Epoch, g.epoch)
	}
	// Left before its time is found by who reads.
	left := g.mark == directory.Left && (s.Stage == StageHanding || s.Stage == StageReaping)
	if g.mark != marks[s.Stage] && !left && w.m.Phase != PhaseFlipping {
		return fmt.Errorf("%v, and marked %v", s.Stage, g.mark)
	}
	if s.Up&^s.Workers != 0 {
		return fmt.Errorf("%v are up of %v", s.Up, s.Workers)
	}
	if w.m.Phase == PhaseStopping && w.m.Stop == StopNow && g.epoch != 0 && !g.signalled {
		return errors.New("to end now, and nobody told it")
	}
	for j, p := range g.workers {
		undecided := w.m.Phase == PhaseFlipping && i == int(w.m.Next.Slot)
		if s.Stage == StageDraining && !s.Up.Has(j) && p.header == publishing && !undecided {
			return fmt.Errorf("worker %d is down, and flows are forwarded to it", j)
		}
	}
	return nil
}

// untouched tests that a generation that owns the wire is as if there had been
// no reload, whenever none is in progress.
func (w *world) untouched() error {
	if w.m.Phase != PhaseSteady && w.m.Phase != PhaseAborting {
		return nil
	}
	if w.m.Phase == PhaseAborting && w.owner.epoch == 0 {
		return nil
	}
	g := &w.gens[w.m.Active.Slot]
	if g.mark != directory.Active || g.signalled || !g.committed || g.drains {
		return fmt.Errorf("the active generation is %+v", *g)
	}
	for i := range w.m.Slots[w.m.Active.Slot].Workers.All() {
		p := g.workers[i]
		if p.header != headerNone {
			return fmt.Errorf("worker %d of the active generation publishes", i)
		}
		serves := p.life.live() && p.doom == NoSignal
		noticed := p.life == none || !w.m.Slots[w.m.Active.Slot].Up.Has(i)
		if !serves && noticed && !p.respawn {
			return fmt.Errorf("worker %d of the active generation is down for good", i)
		}
	}
	return nil
}
