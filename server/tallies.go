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
	at   directory.Tally
	name string // in the state file
	get  func(*Supervisor) uint64
	set  func(*Supervisor, uint64)
}

// kernelLostTally is the datagrams that the kernel has dropped.
const kernelLostTally = "kernel_lost"

// tallies are all counters. Their order is part of the directory's layout.
var tallies = makeTallies()

func makeTallies() (list []tally) {
	add := func(name string, get func(*Supervisor) uint64, set func(*Supervisor, uint64)) {
		list = append(list, tally{at: directory.Tally(len(list)), name: name, get: get, set: set})
	}
	word := func(name string, of func(*Supervisor) *uint64) {
		add(name, func(s *Supervisor) uint64 { return *of(s) }, func(s *Supervisor, n uint64) { *of(s) = n })
	}
	word(kernelLostTally, func(s *Supervisor) *uint64 { return &s.sockets.kernelLost })
	word("respawned", func(s *Supervisor) *uint64 { return &s.respawned })
	word("fenced", func(s *Supervisor) *uint64 { return &s.fenced })
	word("lapses", func(s *Supervisor) *uint64 { return &s.lapses })
	for _, o := range []control.Outcome{
		control.OutcomeDone, control.OutcomeRefused, control.OutcomeAborted, control.OutcomeReverted, control.OutcomeFailed,
	} {
		add("reloads/"+string(o), func(s *Supervisor) uint64 { return s.outcomes[o] }, func(s *Supervisor, n uint64) { s.outcomes[o] = n })
	}
	for _, r := range metrics.Refusals {
		add("refusals/"+string(r), func(s *Supervisor) uint64 { return s.refusals[r] }, func(s *Supervisor, n uint64) { s.refusals[r] = n })
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
