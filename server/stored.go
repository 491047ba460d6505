package server

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/fdstore"
	"github.com/dnsapp/dnsapp/server/worker"
)

// This file is what the service manager keeps, should the supervisor and all workers
// end at once: the sockets, with what waits in them, and the shared memory with the
// counters. What workers are left to adopt have counts for more.

// The names of the regions that are kept.
const (
	storedDirectory    = "directory"
	storedCounters     = "counters"
	storedZoneCounters = "zone-counters"
)

// storedName is the name by which the socket of a key is kept, such as
// udp/0/127.0.0.1/53. A colon may not be in it, and a slash is in no address.
func storedName(k socketKey) string {
	return fmt.Sprintf("%s/%d/%s", k.network(), k.lane, strings.ReplaceAll(k.address.String(), ":", "/"))
}

// parseStoredName is the inverse of storedName.
func parseStoredName(name string) (k socketKey, ok bool) {
	f := strings.SplitN(name, "/", 3)
	if len(f) != 3 || f[0] != "udp" && f[0] != "tcp" {
		return k, false
	}
	lane, err := strconv.ParseUint(f[1], 10, 16)
	if err != nil {
		return k, false
	}
	k = socketKey{tcp: f[0] == "tcp", lane: int(lane)}
	k.address, err = netip.ParseAddrPort(strings.ReplaceAll(f[2], "/", ":"))
	return k, err == nil
}

// identity is what makes two descriptors those of one file.
type identity struct{ dev, ino uint64 }

func identityOf(fd int) (identity, bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, false
	}
	return identity{uint64(st.Dev), st.Ino}, true
}

// stored is what is with the service manager. It belongs to the loop.
type stored struct {
	files   map[string]int      // what it has given to this process, and nobody has taken; nil from the first tell on
	has     map[string]identity // what it has, as far as is known
	changes uint64              // of the sockets, when it was told last
	told    bool
}

// newStored takes in what the service manager has given to this process. Of two with one
// name it is not known which is the newer one.
func newStored(files []fdstore.File, manager *notifier, log *slog.Logger) stored {
	k := stored{files: make(map[string]int), has: make(map[string]identity)}
	for _, f := range files {
		id, ok := identityOf(f.FD)
		if _, twice := k.files[f.Name]; twice || !ok {
			log.Warn("the service manager has kept something that is of no use", "name", f.Name)
			manager.drop(f.Name)
			delete(k.has, f.Name)
			unix.Close(f.FD)
			continue
		}
		k.files[f.Name], k.has[f.Name] = f.FD, id
	}
	return k
}

// take returns a descriptor, which becomes the caller's, or -1.
func (k *stored) take(name string) int {
	fd, ok := k.files[name]
	if !ok {
		return -1
	}
	delete(k.files, name)
	return fd
}

// drop closes what nobody has taken.
func (k *stored) drop() {
	for _, fd := range k.files {
		unix.Close(fd)
	}
	clear(k.files)
}

// adoptStored goes on from what the service manager has kept, where no worker is left.
func (s *Supervisor) adoptStored() error {
	if len(s.stored.files) == 0 {
		return nil
	}
	if err := s.adoptStoredRegions(); err != nil {
		s.log.Warn("counters begin anew: what the service manager has kept is of no use", "error", err)
		return nil
	}
	for slot := range directory.MaxSlots {
		if err := s.endSlot(slot); err != nil {
			return err
		}
	}
	if w := s.dir.Owner(); w.IsPark() {
		_ = s.dir.Unpark(w) // or a lapse was first
	}
	return nil
}

// adoptStoredRegions maps the shared memory that was kept, all of it or none.
func (s *Supervisor) adoptStoredRegions() error {
	var r regions
	for _, p := range []struct {
		name string
		to   *int
	}{{storedDirectory, &r.directory}, {storedCounters, &r.counters}, {storedZoneCounters, &r.zoneCounters}} {
		if *p.to = s.stored.take(p.name); *p.to < 0 {
			r.close()
			return fmt.Errorf("there is no %s", p.name)
		}
	}
	return s.adoptRegionsOf(r)
}

// takeStoredSockets takes the sockets that were kept, for the boot to find: as long as
// the service manager has them nobody else could bind their addresses. Those that the
// boot does not want are closed at its commit.
func (s *Supervisor) takeStoredSockets() {
	defer s.stored.drop()
	n := 0
	for _, name := range slices.Sorted(maps.Keys(s.stored.files)) {
		k, ok := parseStoredName(name)
		if !ok {
			continue
		}
		id, err := s.sockets.freeID()
		if err == nil {
			err = unix.SetNonblock(s.stored.files[name], true) // others may have seen to the contrary
		}
		if err == nil {
			var have *socket
			have, err = inheritSocket(worker.SocketRef{ID: id, Address: k.address, TCP: k.tcp, Lane: k.lane}, s.stored.take(name))
			if err == nil {
				s.sockets.adopt(have)
				n++
			}
		}
		if err != nil {
			s.log.Warn("the service manager has kept something that is of no use", "name", name, "error", err)
			s.manager.drop(name) // or the next start may not have the address
			delete(s.stored.has, name)
		}
	}
	if n > 0 {
		s.log.Info("going on with the sockets that the service manager has kept", "sockets", n)
	}
}

// tellStored has the service manager keep what there is to keep now, and nothing else.
func (s *Supervisor) tellStored() {
	k := &s.stored
	if s.manager == nil {
		k.drop()
		return
	}
	if s.away || s.state.Active.Epoch == 0 || k.told && k.changes == s.sockets.changes {
		return
	}
	want := map[string]int{
		storedDirectory: s.dirRegion.Fd(), storedCounters: s.countersRegion.Fd(), storedZoneCounters: s.zoneRegion.Fd(),
	}
	if s.cfg.Reload.Mode == config.Graceful {
		for key, have := range s.sockets.byKey {
			if name := storedName(key); have.fd >= 0 && have.bound && have.users > 0 && (!key.tcp || have.listening) && len(name) <= fdstore.MaxName {
				want[name] = have.fd
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.has)) {
		if _, ok := want[name]; !ok {
			s.manager.drop(name)
			delete(k.has, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		id, ok := identityOf(want[name])
		if had, known := k.has[name]; !ok || known && had == id {
			continue
		}
		s.manager.drop(name) // another one, or one of a supervisor before this one
		s.manager.keep(name, want[name])
		k.has[name] = id
	}
	k.drop()
	k.changes, k.told = s.sockets.changes, true
}

// forgetStored has the service manager keep nothing any more: the instance was told to
// end.
func (s *Supervisor) forgetStored() {
	for _, name := range slices.Sorted(maps.Keys(s.stored.has)) {
		s.manager.drop(name)
	}
	clear(s.stored.has)
}
