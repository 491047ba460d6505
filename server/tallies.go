package server

import (
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/metrics"
)

// This file keeps the supervisor's own counters where the next supervisor finds
// them: an exported counter never falls.

// tally is a counter and its place in the directory.
type tally struct {
	at  directory.Tally
	get func(*Supervisor) uint64
	set func(*Supervisor, uint64)
}

// tallies are all counters. Their order is part of the directory's layout.
var tallies = makeTallies()

func makeTallies() (list []tally) {
	add := func(get func(*Supervisor) uint64, set func(*Supervisor, uint64)) {
		list = append(list, tally{at: directory.Tally(len(list)), get: get, set: set})
	}
	word := func(of func(*Supervisor) *uint64) {
		add(func(s *Supervisor) uint64 { return *of(s) }, func(s *Supervisor, n uint64) { *of(s) = n })
	}
	word(func(s *Supervisor) *uint64 { return &s.sockets.kernelLost })
	word(func(s *Supervisor) *uint64 { return &s.respawned })
	word(func(s *Supervisor) *uint64 { return &s.fenced })
	word(func(s *Supervisor) *uint64 { return &s.lapses })
	for _, o := range []control.Outcome{
		control.OutcomeDone, control.OutcomeRefused, control.OutcomeAborted, control.OutcomeReverted, control.OutcomeFailed,
	} {
		add(func(s *Supervisor) uint64 { return s.outcomes[o] }, func(s *Supervisor, n uint64) { s.outcomes[o] = n })
	}
	for _, r := range metrics.Refusals {
		add(func(s *Supervisor) uint64 { return s.refusals[r] }, func(s *Supervisor, n uint64) { s.refusals[r] = n })
	}
	return list
}

// keepTallies stores what has changed.
func (s *Supervisor) keepTallies() {
	if s.away {
		return
	}
	for _, t := range tallies {
		if n := t.get(s); n != s.dir.Tally(t.at) {
			s.dir.SetTally(t.at, n)
		}
	}
}

// readTallies takes over the counters of the supervisor before.
func (s *Supervisor) readTallies() {
	for _, t := range tallies {
		if n := s.dir.Tally(t.at); n > 0 {
			t.set(s, n)
		}
	}
}
