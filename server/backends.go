package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/statefile"
)

// backends is all servers of all live generations, by their numbers in the
// region. It belongs to the loop.
type backends struct {
	log    *slog.Logger
	shared *shm.Region
	region *backend.Region
	byKey  map[serverKey]*knownServer
	taken  [backend.MaxServers]bool
	checks map[serverKey]*checking // those that run

	saved map[serverKey]statefile.Server // of an instance that has stopped; nil from the first commit on

	fewFiles     uint64 // the limit of open files that was warned of last; 0: none
	icmp4, icmp6 int    // raw sockets; -1: none
	prepared     bool
}

// serverKey is what makes a server the same one in two configurations.
type serverKey struct {
	backend, name string
	address       netip.AddrPort
}

type knownServer struct {
	id    int
	users int           // generations that have it
	file  config.Server // what the newest committed configuration says; zero before
}

func newBackends(log *slog.Logger) (*backends, error) {
	b := &backends{log: log, byKey: make(map[serverKey]*knownServer), checks: make(map[serverKey]*checking), icmp4: -1, icmp6: -1}
	var err error
	if b.shared, err = shm.Create("backends", backend.RegionSize); err != nil {
		return nil, err
	}
	b.region, err = backend.Format(b.shared)
	return b, err
}

// serverNumbers is the numbers of the servers of a configuration, by backend and
// server.
type serverNumbers [][]int

// claim returns the numbers of the servers of cfg: those that are known, and new
// ones. release gives them back.
func (b *backends) claim(cfg *config.Config) (serverNumbers, error) {
	b.prepare(cfg)
	all := make(serverNumbers, len(cfg.Backends))
	for i := range cfg.Backends {
		c := &cfg.Backends[i]
		for _, s := range c.Servers {
			k := b.byKey[serverKey{c.Name, s.Name, s.Address}]
			if k == nil {
				id, ok := b.free()
				if !ok {
					b.release(cfg, all)
					return nil, fmt.Errorf("backend %s: more than %d servers, over all live generations: use fewer", c.Name, backend.MaxServers)
				}
				b.taken[id] = true
				b.region.Server(id).Reset(s.Weight)
				k = &knownServer{id: id}
				b.byKey[serverKey{c.Name, s.Name, s.Address}] = k
				b.recall(k, c, s)
			}
			k.users++
			all[i] = append(all[i], k.id)
		}
	}
	return all, nil
}

func (b *backends) free() (int, bool) {
	for id, taken := range b.taken {
		if !taken {
			return id, true
		}
	}
	return 0, false
}

// release gives back what claim returned for cfg.
func (b *backends) release(cfg *config.Config, all serverNumbers) {
	for i, ids := range all {
		c := &cfg.Backends[i]
		for j := range ids {
			key := serverKey{c.Name, c.Servers[j].Name, c.Servers[j].Address}
			k := b.byKey[key]
			if k.users--; k.users == 0 {
				b.taken[k.id] = false
				delete(b.byKey, key)
			}
		}
	}
}

// commit makes what cfg says of its servers count. What an operator has ordered
// stays until the file says something else of that server.
func (b *backends) commit(cfg *config.Config) {
	for i := range cfg.Backends {
		c := &cfg.Backends[i]
		for _, s := range c.Servers {
			k := b.byKey[serverKey{c.Name, s.Name, s.Address}]
			if k.file == s {
				continue
			}
			k.file = s
			w := b.region.Server(k.id)
			w.SetWeight(s.Weight)
			w.SetOrder(backend.Enabled)
		}
	}
	b.saved = nil
}

// prepare gets what only the supervisor may have, for the first configuration
// that needs it: sockets for ICMP, and room for a descriptor for each flow.
func (b *backends) prepare(cfg *config.Config) {
	flows := 0
	for _, l := range cfg.Listeners {
		if l.Service == config.ServiceUDPProxy {
			flows += l.UDPProxy.Flows
		}
	}
	if flows == 0 {
		return
	}
	least, connections := cfg.Files()
	want := uint64(least + connections + flows)
	switch limit, err := raiseFiles(want); {
	case err != nil:
		b.log.Warn("raising the limit of open files", "wanted", want, "error", err)
	case limit < want && limit != b.fewFiles:
		b.fewFiles = limit
		b.log.Warn("fewer descriptors than flows: raise the limit of open files (LimitNOFILE= of the unit, ulimit -n of the shell), add workers, or lower udp_proxy.flows",
			"limit", limit, "wanted", want, "flows", flows, "allowed", cfg.FlowsWithin(limit))
	}
	if b.prepared {
		return
	}
	b.prepared = true
	var err error
	if b.icmp4, b.icmp6, err = netio.OpenICMP(); err != nil {
		b.log.Warn("clients are not told by ICMP that no server serves: give CAP_NET_RAW", "error", err)
	}
}

// keptCapabilities returns what workers need beyond an ordinary user: to send with
// the addresses of clients.
func keptCapabilities(cfg *config.Config) []uintptr {
	for _, l := range cfg.Listeners {
		if l.Service == config.ServiceUDPProxy && l.UDPProxy.Transparent {
			return []uintptr{unix.CAP_NET_RAW}
		}
	}
	return nil
}

// clearFlows forgets the flows that worker i, whose process is gone, had to servers.
func (s *Supervisor) clearFlows(g *generation, i int) {
	for lane := range g.cfg.Lanes {
		s.backends.region.Row(int(g.Slot), i*g.cfg.Lanes+lane).Clear()
	}
}

// adoptRegion takes what is known of servers from another supervisor. The descriptor
// is taken over.
func (b *backends) adoptRegion(fd int) error {
	r, err := mapOwned(fd)
	if err != nil {
		return fmt.Errorf("servers of backends: %w", err)
	}
	region, err := backend.Attach(r)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	err = b.shared.Close()
	b.shared, b.region = r, region
	return err
}

// adopt takes over the numbers that the servers of cfg have. What their file said is
// known by that, so that an order of an operator stays.
func (b *backends) adopt(cfg *config.Config, all serverNumbers) error {
	if len(all) != len(cfg.Backends) {
		return fmt.Errorf("numbers of %d backends, and there are %d", len(all), len(cfg.Backends))
	}
	for i, ids := range all {
		c := &cfg.Backends[i]
		if len(ids) != len(c.Servers) {
			return fmt.Errorf("backend %s: %d numbers for %d servers", c.Name, len(ids), len(c.Servers))
		}
		for j, id := range ids {
			key := serverKey{c.Name, c.Servers[j].Name, c.Servers[j].Address}
			k := b.byKey[key]
			if id < 0 || id >= backend.MaxServers || k != nil && k.id != id || k == nil && b.taken[id] {
				return fmt.Errorf("backend %s: server %s cannot have the number %d", c.Name, key.name, id)
			}
		}
	}
	for i, ids := range all {
		c := &cfg.Backends[i]
		for j, id := range ids {
			key := serverKey{c.Name, c.Servers[j].Name, c.Servers[j].Address}
			k := b.byKey[key]
			if k == nil {
				k = &knownServer{id: id, file: c.Servers[j]}
				b.byKey[key], b.taken[id] = k, true
			}
			k.users++
		}
	}
	b.prepare(cfg)
	return nil
}

// close closes what this process has of it.
func (b *backends) close() error {
	for _, fd := range []int{b.icmp4, b.icmp6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return b.shared.Close()
}
