package server

import (
	"errors"
	"io/fs"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/statefile"
)

// This file carries over a full stop what a reload, a crash and an upgrade leave in
// shared memory: orders, health and counters. Where there is shared memory to adopt,
// the file is not read.

// saveInterval is how much of the counters and of health a power cut costs at most.
// Orders are saved at once.
const saveInterval = time.Minute

// keeper is the saving of the state. It belongs to the loop.
type keeper struct {
	adopted bool       // counters of an earlier supervisor go on: those in the file are older
	open    bool       // there is something worth saving; before, the file is that of the last instance
	writing chan error // takes how the write under way has ended; nil: there is none
	again   bool       // what it writes is out of date already
	savedAt time.Time  // zero: not yet
	failed  string     // why the last write has failed; "": it has not

	servers map[serverKey]statefile.Server // of the running configuration, as they were known last
}

// keep saves the state now and then, until another supervisor has the instance.
func (s *Supervisor) keep() {
	if s.away {
		return
	}
	s.save()
	time.AfterFunc(saveInterval, func() { s.post(s.keep) })
}

// save writes the state beside the loop. A disk that is slow is asked for one write
// at a time.
func (s *Supervisor) save() {
	k := &s.keeper
	switch {
	case s.away || !k.open || s.cfg.StateFile == "":
		return
	case k.writing != nil:
		k.again = true
		return
	}
	path, state, ended := s.cfg.StateFile, s.collect(), make(chan error, 1)
	k.writing, k.again = ended, false
	go func() {
		ended <- statefile.Write(path, state)
		s.post(func() {
			if k.writing != ended { // the end was waiting for it
				return
			}
			s.written(<-ended)
			if k.again {
				s.save()
			}
		})
	}()
}

// written takes over how a write has ended. What goes on failing is told once.
func (s *Supervisor) written(err error) {
	k := &s.keeper
	k.writing = nil
	if err == nil {
		k.savedAt, k.failed = time.Now(), ""
		return
	}
	if k.failed == "" {
		s.log.Warn("the state is not saved: a stop will lose orders and counters", "error", err)
	}
	k.failed = err.Error()
}

// saveLast writes the state at the end, when nobody counts any more.
func (s *Supervisor) saveLast() {
	k := &s.keeper
	if k.writing != nil {
		s.written(<-k.writing)
	}
	if s.away || !k.open || s.cfg.StateFile == "" {
		return
	}
	k.open = false
	s.written(statefile.Write(s.cfg.StateFile, s.collect()))
}

// collect is the state as it is now.
func (s *Supervisor) collect() *statefile.State {
	state := &statefile.State{
		Software: s.options.Version.Version, SavedAt: time.Now(),
		Counters: s.snapshot().Totals(), Supervisor: make(map[string]uint64, len(tallies)),
	}
	for _, t := range tallies {
		state.Supervisor[t.name] = t.get(s)
	}
	state.Supervisor[kernelLostTally] = s.sockets.kernelDrops() // those of open sockets, too
	for _, z := range s.zoneMetrics() {
		one := statefile.Zone{Name: z.Name, UDP: z.UDP, TCP: z.TCP, NXDomain: z.NXDomain, Truncated: z.Truncated}
		if one != (statefile.Zone{Name: z.Name}) {
			state.Zones = append(state.Zones, one)
		}
	}
	s.noteServers()
	for i := range s.cfg.Backends {
		b := &s.cfg.Backends[i]
		for _, c := range b.Servers {
			if one, ok := s.keeper.servers[serverKey{b.Name, c.Name, c.Address}]; ok {
				state.Servers = append(state.Servers, one)
			}
		}
	}
	return state
}

// noteServers keeps what is known of the servers of the running configuration. In a
// stop they go with their generation, and the file is written after that.
func (s *Supervisor) noteServers() {
	noted := make(map[serverKey]statefile.Server)
	for i := range s.cfg.Backends {
		b := &s.cfg.Backends[i]
		for _, c := range b.Servers {
			key := serverKey{b.Name, c.Name, c.Address}
			if k := s.backends.byKey[key]; k != nil {
				w := s.backends.region.Server(k.id)
				noted[key] = statefile.Server{Backend: b.Name, File: k.file, Order: w.Order(), Weight: w.Weight(), Down: w.Down(), Counts: w.Counts()}
			} else if one, ok := s.keeper.servers[key]; ok {
				noted[key] = one
			}
		}
	}
	s.keeper.servers = noted
}

// restore takes over what the last instance has saved, unless something of it lives.
// A file that is of no use is no reason not to start.
func (s *Supervisor) restore() {
	if s.generation(s.state.Active) != nil {
		s.keeper.open = true
		return
	}
	if s.cfg.StateFile == "" {
		return
	}
	state, err := statefile.Read(s.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		s.log.Warn("starting without the saved state; the next save replaces the file", "error", err)
		return
	}
	s.backends.saved = make(map[serverKey]statefile.Server, len(state.Servers))
	for _, one := range state.Servers {
		s.backends.saved[serverKey{one.Backend, one.File.Name, one.File.Address}] = one
	}
	if !s.keeper.adopted {
		s.counters.Restore(state.Counters)
		for _, t := range tallies {
			t.set(s, state.Supervisor[t.name])
		}
		s.restoreZones(state.Zones)
	}
	s.log.Info("going on from the saved state", "file", s.cfg.StateFile, "saved", state.SavedAt.Format(time.RFC3339), "by", state.Software)
}

// restoreZones takes over the counters of zones. Those of zones that are configured
// no more go to the others, so that their names are free.
func (s *Supervisor) restoreZones(saved []statefile.Zone) {
	configured := make(map[string]bool, len(s.cfg.Zones))
	for i := range s.cfg.Zones {
		configured[s.cfg.Zones[i].Name] = true
	}
	for _, z := range saved {
		cell := uint32(0)
		if configured[z.Name] {
			cell = s.zones.CellOf(z.Name)
		}
		s.zoneCounters.Add(cell, counters.ZoneUDP, z.UDP)
		s.zoneCounters.Add(cell, counters.ZoneTCP, z.TCP)
		s.zoneCounters.Add(cell, counters.ZoneNXDomain, z.NXDomain)
		s.zoneCounters.Add(cell, counters.ZoneTruncated, z.Truncated)
	}
}

// recall gives a server that has just got its number what was saved of it. An order
// holds if the file still says of the server what it said then; what the checks have
// found holds if there are checks to find out more.
func (b *backends) recall(k *knownServer, c *config.Backend, s config.Server) {
	one, ok := b.saved[serverKey{c.Name, s.Name, s.Address}]
	if !ok {
		return
	}
	w := b.region.Server(k.id)
	w.Count(one.Counts)
	if one.Down && c.Health.Check != config.CheckNone {
		w.SetDown()
	}
	if one.File == s {
		k.file = s
		w.SetWeight(one.Weight)
		w.SetOrder(one.Order)
	}
}
