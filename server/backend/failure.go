package backend

import (
	"time"

	"github.com/dnsapp/dnsapp/server/mono"
)

// Passive says when failures of flows take a server out.
type Passive struct {
	MaxFails int           // in a row; 0: never
	Timeout  time.Duration // how long it is out
}

// Failed records at now (mono.Millis) that a flow has failed. It reports whether
// that takes the server out. A server that comes back goes again with the first
// flow that fails before one has been answered.
func (s *Server) Failed(now uint32, p Passive) bool {
	if p.MaxFails == 0 {
		return false
	}
	if int(s.failures.Add(1)) < p.MaxFails || s.Out(now) {
		return false
	}
	s.outUntil.Store(nonZero(now + uint32(p.Timeout/time.Millisecond)))
	return true
}

// Answered records that a flow had an answer.
func (s *Server) Answered() {
	if s.failures.Load() != 0 {
		s.failures.Store(0)
	}
}

// Out reports whether failures have taken the server out.
func (s *Server) Out(now uint32) bool {
	until := s.outUntil.Load()
	return until != 0 && mono.Age(until, now) > 0
}

// Usable reports whether the server may get new flows, but for their number.
func (s *Server) Usable(now uint32) bool {
	return s.Order() == Enabled && !s.Down() && !s.Out(now) && s.Weight() > 0
}

// rampParts is how finely a slow start divides the weight.
const rampParts = 256

// share returns the weight in parts of rampParts, less while the server starts
// slowly: from a sixteenth up to all of it.
func (s *Server) share(now uint32, slow time.Duration) int {
	w := s.Weight() * rampParts
	at := s.upAt.Load()
	if slow == 0 || at == 0 {
		return w
	}
	age := time.Duration(mono.Age(now, at)) * time.Millisecond
	if age < 0 || age >= slow { // long ago, or so long that the stamp has wrapped
		return w
	}
	return max(w*int(max(age, slow/16)/time.Millisecond)/int(max(slow/time.Millisecond, 1)), 1)
}

// nonZero keeps a stamp from meaning "never".
func nonZero(ms uint32) uint32 { return max(ms, 1) }
