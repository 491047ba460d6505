package server

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/netio"
)

// socketKey names a socket over generations: the same key, the same socket.
type socketKey struct {
	address netip.AddrPort
	tcp     bool
	device  string // of a queue, which counts as a socket without address; else ""
	lane    int    // of the reuse-port group, or number of the queue; 0 for TCP
}

// group returns the key that all sockets of an address, or queues of a device, share.
func (k socketKey) group() socketKey {
	k.lane = 0
	return k
}

func (k socketKey) network() string {
	if k.tcp {
		return "tcp"
	}
	return "udp"
}

// socket is one bound socket. It stays open while any generation lists it.
type socket struct {
	socketKey
	id        uint32
	fd        int  // -1: closed ahead of its generations, in a stop
	bound     bool // a socket that joins a group in use is bound at the commit
	listening bool
	users     int // generations that list it

	dropped uint64 // datagrams that the kernel dropped, when it was looked at last
	seen    uint32 // the kernel's count then, which wraps
}

// sockets is all sockets that are bound now.
type sockets struct {
	byID       map[uint32]*socket
	byKey      map[socketKey]*socket // the newest with that key
	members    map[socketKey]int     // sockets of an address, by the key of lane 0
	lowest     uint32                // no id below is free
	kernelLost uint64                // datagrams that the kernel dropped on sockets closed since, and that nobody read
	shortWarns map[netip.AddrPort]bool
	steered    map[netip.AddrPort]int // groups whose first sockets get everything, and how many; 0: it is not known whether
	changes    uint64                 // counts changes of what there is
}

func newSockets() *sockets {
	return &sockets{
		byID: make(map[uint32]*socket), byKey: make(map[socketKey]*socket), members: make(map[socketKey]int),
		shortWarns: make(map[netip.AddrPort]bool), steered: make(map[netip.AddrPort]int),
	}
}

// add adds a socket that has its id.
func (ss *sockets) add(s *socket) {
	ss.byID[s.id], ss.byKey[s.socketKey] = s, s
	ss.members[s.group()]++
	ss.changes++
}

// adopt is add for a socket of another process, which may have steered its group.
func (ss *sockets) adopt(s *socket) {
	ss.add(s)
	if !s.tcp && s.bound {
		ss.steered[s.address] = 0
	}
}

// remove takes it out again.
func (ss *sockets) remove(s *socket) {
	delete(ss.byID, s.id)
	ss.changes++
	ss.lowest = min(ss.lowest, s.id)
	if ss.byKey[s.socketKey] == s {
		delete(ss.byKey, s.socketKey)
	}
	if ss.members[s.group()]--; ss.members[s.group()] == 0 {
		delete(ss.members, s.group())
		if !s.tcp {
			delete(ss.steered, s.address) // the next group of the address knows nothing of it
		}
	}
}

// use is one listener's claim to a socket.
type use struct {
	*socket
	listener int
}

// bindResult is the sockets of a generation and what is worth a warning.
type bindResult struct {
	uses  []use
	fresh []*socket // those of uses that were bound just now
	short []netip.AddrPort
}

// bind returns the sockets that cfg lists: those there are already, if share, and
// new ones. A UDP socket that joins a group in use is left unbound: bound before
// somebody reads it, it would take traffic from the others; so is any whose address
// overlaps one in use. Of a new generation
// that fails, release gives them back. All failures are reported at once.
func (ss *sockets) bind(cfg *config.Config, share bool) (*bindResult, error) {
	r := new(bindResult)
	if cfg.Datapath == config.DPDK {
		return r, ss.queues(cfg, r)
	}
	var errs []error
	looked := make(map[socketKey]sight)
	absent := make(map[netip.AddrPort]bool) // no transport has it: that is one mistake
	for i, l := range cfg.Listeners {
		for _, group := range ss.groups(l, cfg, share) {
			lanes := cfg.Workers * cfg.Lanes
			if group.tcp {
				lanes = 1
			}
			for lane := range lanes {
				k := group
				k.lane = lane
				s, err := ss.bindOne(k, cfg.Reload.Mode, share, looked, r)
				if err != nil {
					if !absent[k.address] {
						errs = append(errs, fmt.Errorf("listener %s: %w", l.Name, err))
					}
					absent[k.address] = errors.Is(err, unix.EADDRNOTAVAIL)
					break
				}
				s.users++
				r.uses = append(r.uses, use{socket: s, listener: i})
			}
		}
	}
	if len(errs) > 0 {
		ss.release(r.uses)
		return nil, errors.Join(errs...)
	}
	return r, nil
}

func (ss *sockets) bindOne(k socketKey, mode config.Mode, share bool, looked map[socketKey]sight, r *bindResult) (*socket, error) {
	if s := ss.byKey[k]; s != nil && share {
		return s, nil
	}
	now, known := looked[k.group()] // one look an address
	if !known {
		now = ss.look(k)
		looked[k.group()] = now
	}
	if now.err != nil {
		return nil, now.err
	}
	id, err := ss.freeID()
	if err != nil {
		return nil, err
	}
	s := &socket{socketKey: k, id: id}
	switch {
	case !k.tcp:
		var short bool
		s.bound = now.free || !share
		if s.bound {
			s.fd, short, err = netio.BindUDP(k.address)
		} else {
			s.fd, short, err = netio.OpenUDP(k.address)
		}
		if short && !ss.shortWarns[k.address] {
			ss.shortWarns[k.address] = true
			r.short = append(r.short, k.address)
		}
	case mode == config.Restart:
		s.bound = true
		s.fd, err = netio.BindTCPShared(k.address)
	case now.free:
		s.bound = true
		s.fd, err = netio.BindTCP(k.address)
	default:
		s.fd, err = netio.OpenTCP(k.address)
	}
	if err != nil {
		return nil, err
	}
	ss.add(s)
	r.fresh = append(r.fresh, s)
	return s, nil
}

// probe refuses an address that another process has bound. Nothing that this
// instance has bound may overlap it: see look.
func probe(k socketKey) error {
	err := netio.Probe(k.network(), k.address)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return takenBy(k)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: ports below 1024 need root or CAP_NET_BIND_SERVICE", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: no interface of this host has it", err)
	}
	return outOfFiles(err)
}

// takenBy is the error for an address that another process has bound.
func takenBy(k socketKey) error {
	holder, orphan := holderOf(k)
	switch {
	case orphan:
		return fmt.Errorf("%s %v is taken by %s, which a dnsapp that has died has left, and which serves on: "+
			"end it by kill -TERM, and start again", k.network(), k.address, holder)
	case holder == "":
		holder = "another process"
	}
	return fmt.Errorf("%s %v is taken by %s: stop it, or choose another address", k.network(), k.address, holder)
}

func (ss *sockets) freeID() (uint32, error) {
	for ; ss.lowest < directory.MaxSockets; ss.lowest++ {
		if ss.byID[ss.lowest] == nil {
			return ss.lowest, nil
		}
	}
	return 0, fmt.Errorf("more than %d sockets: use fewer addresses or lanes", directory.MaxSockets)
}

// countUnread counts as lost what waits on those sockets of uses that nobody else uses.
// Their generation has left nothing there unless its workers have died.
func (ss *sockets) countUnread(uses []use) {
	for _, u := range uses {
		if !u.tcp && u.users == 1 && u.fd >= 0 {
			ss.kernelLost += netio.Discard(u.fd)
		}
	}
}

// release gives up one use of each socket, and closes those that nobody uses
// any more, the highest lane first: so the reuse-port group keeps the order of
// those that stay.
func (ss *sockets) release(uses []use) {
	var idle []*socket
	for _, u := range uses {
		if u.users--; u.users == 0 {
			idle = append(idle, u.socket)
		}
	}
	slices.SortFunc(idle, func(a, b *socket) int { return b.lane - a.lane })
	for _, s := range idle {
		ss.close(s)
		ss.remove(s)
	}
}

// close closes a socket and keeps what the kernel counted on it. It may be
// repeated.
func (ss *sockets) close(s *socket) {
	if s.fd < 0 {
		return
	}
	ss.kernelLost += s.drops()
	unix.Close(s.fd)
	s.fd = -1
	ss.changes++
}

// closeIdle closes what no generation lists: what was kept for one that the
// configuration does not want any more.
func (ss *sockets) closeIdle() {
	var idle []use
	for _, s := range ss.byID {
		if s.users == 0 {
			s.users++
			idle = append(idle, use{socket: s})
		}
	}
	ss.release(idle)
}

// closeUDP closes the UDP sockets of uses, for good: a stop has begun.
func (ss *sockets) closeUDP(uses []use) {
	for _, u := range uses {
		if !u.tcp {
			ss.close(u.socket)
		}
	}
}

// join binds those sockets of uses that wait for it, and sees to it that
// nothing is given to sockets beyond the first lanes of their groups. Lanes read
// them already.
func (ss *sockets) join(uses []use, lanes int) error {
	var errs []error
	ss.changes++
	for _, u := range uses { // by lane, so that a group counts like the lanes
		if u.tcp || u.bound {
			continue
		}
		if err := netio.Bind(u.fd, u.address); err != nil {
			errs = append(errs, err)
			continue
		}
		u.bound = true
	}
	return errors.Join(append(errs, ss.steer(uses, lanes))...)
}

// steer restricts the groups that have more sockets than lanes to the first
// ones, and frees those that have not.
func (ss *sockets) steer(uses []use, lanes int) error {
	bound := make(map[netip.AddrPort]int)
	for _, s := range ss.byID {
		if !s.tcp && s.bound {
			bound[s.address]++
		}
	}
	var errs []error
	for _, u := range uses {
		if u.tcp || u.lane != 0 || !u.bound || u.fd < 0 {
			continue
		}
		group := bound[u.address]
		switch n, steered := ss.steered[u.address]; {
		case group > lanes && n != lanes:
			if err := netio.Steer(u.fd, u.address, lanes); err != nil {
				errs = append(errs, err)
				continue
			}
			ss.steered[u.address] = lanes
		case group <= lanes && steered:
			if err := netio.Unsteer(u.fd, u.address); err != nil {
				errs = append(errs, err)
				continue
			}
			delete(ss.steered, u.address)
		}
	}
	return errors.Join(errs...)
}

// listen makes every TCP socket of uses accept connections.
func (ss *sockets) listen(uses []use) error {
	var errs []error
	ss.changes++
	for _, u := range uses {
		if !u.tcp || u.listening {
			continue
		}
		if !u.bound {
			var beside []int
			for _, s := range ss.overlapping(u.socketKey) {
				beside = append(beside, s.fd)
			}
			if err := netio.BindTCPBeside(u.fd, u.address, beside...); err != nil {
				errs = append(errs, err)
				continue
			}
			u.bound = true
		}
		if err := netio.Listen(u.fd); err != nil {
			errs = append(errs, fmt.Errorf("tcp %v: %w", u.address, err))
			continue
		}
		u.listening = true
	}
	return errors.Join(errs...)
}

// kernelDrops returns the datagrams that the kernel has dropped on all sockets
// that ever were bound here.
func (ss *sockets) kernelDrops() uint64 {
	n := ss.kernelLost
	for _, s := range ss.byID {
		if s.fd >= 0 { // else it is in kernelLost
			n += s.drops()
		}
	}
	return n
}

// drops returns the datagrams that the kernel has dropped on s. If nobody asks
// for 2^32 drops, those are missing.
func (s *socket) drops() uint64 {
	if s.tcp {
		return 0
	}
	if n, err := netio.Drops(s.fd); err == nil {
		s.count(uint32(n))
	}
	return s.dropped
}

// count takes over the kernel's count.
func (s *socket) count(now uint32) {
	s.dropped += uint64(now - s.seen)
	s.seen = now
}
