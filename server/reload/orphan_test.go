package reload

import (
	"fmt"
	"slices"
)

// This file is the death of the supervisor, at any moment, and the next one that
// adopts what it has left.

// killMoves are the ways in which the supervisor may be killed in each of the
// moves: before each of the effects of its event, and after the last.
func (w *world) killMoves(list []move) (kills []move) {
	for _, mv := range list {
		if len(mv.events) == 0 {
			continue
		}
		before := *w
		if mv.do != nil {
			mv.do(&before)
		}
		_, effects := Step(before.m, mv.events[0])
		at := 1
		for _, f := range effects {
			if words(f) {
				continue
			}
			kills = append(kills, mv.killed(at))
			at++
		}
		kills = append(kills, mv.killed(at))
	}
	return kills
}

func (mv move) killed(at int) move {
	mv.cut, mv.class = at, hinders
	return mv
}

// words reports whether an effect changes nothing in the world.
func words(f Effect) bool {
	switch f.(type) {
	case LogTransition, LogIllegal, Notify, Report, StartTimer, StopTimer:
		return true
	}
	return false
}

// feedCut hands e to the machine, carries out the effects before the one with this
// number, from 1, and ends the supervisor.
func (md *model) feedCut(w *world, e Event, cut int) error {
	var effects []Effect
	w.m, effects = Step(w.m, e)
	at := 1
	for _, f := range effects {
		switch f.(type) {
		case LogTransition, LogIllegal, Report:
			continue
		}
		if !words(f) {
			if at == cut {
				break
			}
			at++
		}
		if md.defects.drop != nil && md.defects.drop(f) {
			continue
		}
		if err := md.carryOut(w, f); err != nil {
			return fmt.Errorf("%+v: %w", f, err)
		}
	}
	if w.exited { // nothing is left, of which anything could be said
		return nil
	}
	w.kills--
	w.orphan = true
	w.m, w.ops, w.timers, w.stop = State{}, [MaxSlots + 1]op{}, [MaxSlots]timerSet{}, 0
	for i := range w.gens {
		g := &w.gens[i]
		g.committed, g.signalled, g.released = false, false, false
		for j := range g.workers {
			g.workers[j].respawn = false
		}
	}
	return nil
}

// orphanMoves are those of the moves that need no supervisor.
func orphanMoves(list []move) (left []move) {
	for _, mv := range list {
		if len(mv.events) == 0 {
			left = append(left, mv)
		}
	}
	return left
}

// adoption is the next supervisor: it adopts, or kills all that is left and boots.
func (md *model) adoption(w *world) move {
	e, ok := w.found(md.crew)
	if !ok {
		return move{class: helps, what: "the next supervisor kills all that is left", do: func(w *world) {
			*w = world{faults: w.faults, kills: w.kills}
		}}
	}
	return move{class: helps, what: "the next supervisor adopts", events: []Event{e}, do: func(w *world) {
		w.orphan = false
		for i := range w.gens {
			for j := range w.gens[i].workers {
				switch p := &w.gens[i].workers[j]; p.life {
				case dead:
					p.life = none
				case ready:
					p.life = up
				}
			}
		}
	}}
}

// starts reports whether a worker lives that is not READY yet: it knows all that the
// others do.
func (g *gen) starts() bool {
	return slices.ContainsFunc(g.workers[:], func(p process) bool { return p.life == starting })
}

// found is what the next supervisor finds, and whether it can go on from there.
func (w *world) found(crew int) (e Adopted, ok bool) {
	e.Owner = w.owner.epoch
	for i, g := range w.gens {
		if g.epoch == 0 {
			continue
		}
		f := Found{Epoch: g.epoch, Mark: g.mark, Workers: crew}
		for j, p := range g.workers {
			if p.life == ready || p.life == up {
				f.Up |= OneWorker(j)
			}
			f.Window = f.Window || p.header != headerNone
		}
		e.Found[i] = f
		if g.epoch == e.Owner && (f.Up != 0 || g.starts()) && !g.stops && g.mark.Live() {
			ok = true
		}
	}
	return e, ok
}
