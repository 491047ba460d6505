package server

import "slices"

// zoneTurn is the right to replace zones. One holder at a time has it, in the
// order they asked: a reload from T0 until its commit (or its end before that),
// a zone reload until every generation has been told. So no zone changes between
// the compilation for a new generation and its commit, and no generation misses
// what another was given.
type zoneTurn struct{ begin func(*zoneTurn) }

// takeZoneTurn calls begin, in the loop, when it is the caller's turn; that may
// be at once.
func (s *Supervisor) takeZoneTurn(begin func(*zoneTurn)) *zoneTurn {
	t := &zoneTurn{begin}
	s.zoneTurns = append(s.zoneTurns, t)
	if len(s.zoneTurns) == 1 {
		begin(t)
	}
	return t
}

// begun reports whether it is, or was, t's turn.
func (s *Supervisor) begun(t *zoneTurn) bool { return slices.Index(s.zoneTurns, t) <= 0 }

// endZoneTurn ends t's turn, or gives it up before it has come. It may be called
// again.
func (s *Supervisor) endZoneTurn(t *zoneTurn) {
	i := slices.Index(s.zoneTurns, t)
	if i < 0 {
		return
	}
	s.zoneTurns = slices.Delete(s.zoneTurns, i, i+1)
	if i == 0 && len(s.zoneTurns) > 0 {
		s.zoneTurns[0].begin(s.zoneTurns[0])
	}
}
