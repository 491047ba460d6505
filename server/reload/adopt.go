package reload

import "github.com/dnsapp/dnsapp/server/directory"

// This file is how a machine begins that another one has left: its supervisor is
// gone, or has given the instance away. Nothing is known of that machine but what
// the directory says. A hand-over before its flip is given up, one after it is
// finished, and every other generation goes on where its mark says that it was.

// Found is what the directory, and the processes, say of one generation.
type Found struct {
	Epoch   uint32 // 0: no generation
	Mark    directory.State
	Window  bool      // one is open against it
	Workers int       // 1 .. MaxWorkers
	Up      WorkerSet // those that are READY and live
}

const adopted = "adopted"

// adopt takes over what another machine has left. It reports whether e is fit to
// begin with.
func (m *machine) adopt(e Adopted) bool {
	if m.State != (State{}) {
		return false
	}
	var all State
	for i, f := range e.Found {
		if f.Epoch == 0 {
			continue
		}
		if f.Workers < 1 || f.Workers > MaxWorkers || f.Up&^AllWorkers(f.Workers) != 0 {
			return false
		}
		all.Slots[i] = Slot{Epoch: f.Epoch, Workers: AllWorkers(f.Workers), Up: f.Up}
		if f.Epoch == e.Owner {
			all.Active = Generation{Slot: uint8(i), Epoch: f.Epoch}
		}
	}
	if all.Active.Epoch == 0 {
		return false
	}
	m.State = all
	m.adoptOwner()
	for i := range m.Slots {
		if s := &m.Slots[i]; s.Epoch != 0 && s.Epoch != e.Owner {
			s.Stage = e.Found[i].stage()
		}
	}
	for i := range m.Slots {
		if s := &m.Slots[i]; s.Epoch != 0 && s.Epoch != e.Owner {
			m.adoptOther(s, e.Found[i])
		}
	}
	m.enterSteady(adopted)
	return true
}

// adoptOwner gives the wire to the generation that owns it, whoever was about to
// take it, and has it serve as if nothing had happened.
func (m *machine) adoptOwner() {
	s := m.slot(m.Active)
	m.emit(Mark{Gen: m.Active, State: directory.Active})
	m.emit(Unpark{})
	m.setStage(s, StageActive, adopted)
	m.emit(CloseWindow{Gen: m.Active})
	m.emit(Resume{Gen: m.Active})
	m.respawn(s.Workers &^ s.Up)
	m.emit(Commit{Gen: m.Active})
}

// stage returns the stage in which the other machine had the generation, which is
// not the owner of the wire. One against which no window is open has never owned it,
// or has lost it without one. One that is marked as active was about to get it, or
// to lose it.
func (f Found) stage() Stage {
	switch {
	case !f.Window:
		return StageStarting
	case f.Mark == directory.Leaving:
		return StageHanding
	case f.Mark == directory.Left:
		return StageReleasing
	}
	return StageDraining
}

// adoptOther goes on with a generation that does not own the wire.
func (m *machine) adoptOther(s *Slot, f Found) {
	st := s.Stage
	s.Stage = StageFree
	switch st {
	case StageHanding:
		m.setStage(s, StageDraining, adopted)
		m.enterHanding(s, adopted)
	case StageReleasing:
		m.setStage(s, StageHanding, adopted)
		m.enterReleasing(s)
	case StageDraining:
		if f.Mark != directory.Draining {
			m.emit(Mark{Gen: m.generation(s), State: directory.Draining})
		}
		m.setStage(s, StageDraining, adopted)
		m.handDead(s)
		m.startDrain(s)
	default:
		m.setStage(s, StageStarting, adopted)
		s.Reason = "given up: it did not own the wire"
		m.enterReaping(s, SignalKill)
	}
}
