package server

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/netio"
)

// free returns an address that nobody has bound, for either transport.
func free(t *testing.T, addr string) netip.AddrPort {
	t.Helper()
	for range 20 {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(addr)})
		if err != nil {
			t.Fatal(err)
		}
		ap := netip.AddrPortFrom(netip.MustParseAddr(addr), l.Addr().(*net.TCPAddr).AddrPort().Port())
		l.Close()
		if netio.Probe("udp", ap) == nil {
			return ap
		}
	}
	t.Fatal("no address is free")
	return netip.AddrPort{}
}

// serving returns a configuration with a listener for each address.
func serving(lanes int, addresses ...netip.AddrPort) *config.Config {
	cfg := &config.Config{Workers: 1, Lanes: lanes, Reload: config.Reload{Mode: config.Graceful}}
	for i, ap := range addresses {
		cfg.Listeners = append(cfg.Listeners, config.Listener{Name: fmt.Sprint("l", i), Address: []netip.AddrPort{ap}, UDP: true, TCP: true})
	}
	return cfg
}

func bind(t *testing.T, ss *sockets, cfg *config.Config, share bool) *bindResult {
	t.Helper()
	r, err := ss.bind(cfg, share)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// commit does with the sockets of a generation what a commit does.
func commit(t *testing.T, ss *sockets, r *bindResult, lanes int) {
	t.Helper()
	if err := ss.listen(r.uses); err != nil {
		t.Fatal(err)
	}
	if err := ss.join(r.uses, lanes); err != nil {
		t.Fatal(err)
	}
}

// boundTo returns what the kernel says that a socket is bound to.
func boundTo(t *testing.T, s *socket) netip.AddrPort {
	t.Helper()
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		t.Fatal(err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	t.Fatalf("socket name %T", sa)
	return netip.AddrPort{}
}

// The first generation's sockets are all bound at once, on every lane; TCP does
// not listen before the commit.
func TestBindFirst(t *testing.T) {
	for _, mode := range []config.Mode{config.Graceful, config.Restart} {
		before := descriptors(t)
		ss := newSockets()
		a, b := free(t, "127.0.0.1"), free(t, "::1")
		cfg := serving(3, a, b)
		cfg.Reload.Mode = mode
		r := bind(t, ss, cfg, true)
		if len(r.uses) != 8 || len(r.fresh) != 8 || len(ss.byID) != 8 {
			t.Fatalf("%s: %d uses, %d fresh, %d sockets", mode, len(r.uses), len(r.fresh), len(ss.byID))
		}
		ids := map[uint32]bool{}
		for n, u := range r.uses {
			want := socketKey{address: a, tcp: n%4 == 3, lane: n % 4 % 3}
			if n >= 4 {
				want.address = b
			}
			if u.socketKey != want || u.listener != n/4 || u.users != 1 || ss.byID[u.id] != u.socket {
				t.Errorf("%s: use %d is %+v of listener %d, %d users", mode, n, u.socketKey, u.listener, u.users)
			}
			if at := boundTo(t, u.socket); at != u.address {
				t.Errorf("%s: %s lane %d of %v is bound to %v", mode, u.network(), u.lane, u.address, at)
			}
			ids[u.id] = true
		}
		if len(ids) != 8 {
			t.Errorf("%s: %d ids", mode, len(ids))
		}
		if c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(a)); err == nil {
			c.Close()
			t.Errorf("%s: connected before the commit", mode)
		}
		commit(t, ss, r, 3)
		if c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(a)); err != nil {
			t.Errorf("%s: after the commit: %v", mode, err)
		} else {
			if err := c.SetLinger(0); err != nil { // else it is in the kernel's lists for a minute
				t.Error(err)
			}
			c.Close()
		}
		if err := ss.listen(r.uses); err != nil {
			t.Errorf("%s: listening again: %v", mode, err)
		}
		ss.release(r.uses)
		if n := descriptors(t); n != before || len(ss.byID) != 0 {
			t.Errorf("%s: %d descriptors before, %d after; %d sockets are left", mode, before, n, len(ss.byID))
		}
	}
}

// A socket that stays in the configuration stays open, over any number of
// generations; one that is dropped goes with the last that lists it.
func TestBindReuse(t *testing.T) {
	ss := newSockets()
	a, b, c := free(t, "127.0.0.1"), free(t, "127.0.0.1"), free(t, "127.0.0.1")
	first := bind(t, ss, serving(1, a, b), true)
	second := bind(t, ss, serving(1, b, c), true)
	if len(second.fresh) != 2 || len(ss.byID) != 6 {
		t.Errorf("%d fresh, %d sockets", len(second.fresh), len(ss.byID))
	}
	for n := range 2 { // UDP and TCP of b
		if old, now := first.uses[2+n], second.uses[n]; old.socket != now.socket || now.users != 2 || now.listener != 0 {
			t.Errorf("%s %v: another socket, or %d users", now.network(), now.address, now.users)
		}
	}
	third := bind(t, ss, serving(1, b), true)
	ss.release(first.uses)
	ss.release(second.uses)
	if len(ss.byID) != 2 {
		t.Errorf("%d sockets are left", len(ss.byID))
	}
	for _, u := range third.uses {
		if at := boundTo(t, u.socket); at != b || u.users != 1 {
			t.Errorf("bound to %v, %d users", at, u.users)
		}
	}
	for _, ap := range []netip.AddrPort{a, c} {
		if err := netio.Probe("udp", ap); err != nil {
			t.Errorf("not closed: %v", err)
		}
	}
	ss.release(third.uses)
}

// In mode restart a generation gets sockets of its own, in the group of those
// that are there.
func TestBindRestart(t *testing.T) {
	ss := newSockets()
	cfg := serving(2, free(t, "127.0.0.1"))
	cfg.Reload.Mode = config.Restart
	first := bind(t, ss, cfg, true)
	if err := ss.listen(first.uses); err != nil {
		t.Fatal(err)
	}
	second := bind(t, ss, cfg, false)
	if err := ss.listen(second.uses); err != nil {
		t.Error(err)
	}
	for n, u := range second.uses {
		if u.socket == first.uses[n].socket || boundTo(t, u.socket) != u.address {
			t.Errorf("use %d: the same socket, or bound to %v", n, boundTo(t, u.socket))
		}
	}
	ss.release(first.uses)
	ss.release(second.uses)
}

// readers counts how many of n flows come to each of these sockets.
func readers(t *testing.T, n int, to netip.AddrPort, from []*socket) []int {
	t.Helper()
	for range n {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	counts := make([]int, len(from))
	for i, s := range from {
		for {
			if _, _, err := unix.Recvfrom(s.fd, make([]byte, 1), unix.MSG_DONTWAIT); err != nil {
				break
			}
			counts[i]++
		}
	}
	return counts
}

func udpOf(uses []use) (list []*socket) {
	for _, u := range uses {
		if !u.tcp {
			list = append(list, u.socket)
		}
	}
	return list
}

// A group that grows gets nothing by its new sockets before the commit, and by all
// of them after; one that shrinks gets everything by those that stay, from the
// commit on.
func TestGroupsGrowAndShrink(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1", "0.0.0.0"} {
		t.Run(addr, func(t *testing.T) {
			ss := newSockets()
			ap := free(t, addr)
			to := ap
			if addr == "0.0.0.0" {
				to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), ap.Port())
			}
			const flows = 300
			want := func(what string, counts []int, lanes int) {
				t.Helper()
				sum := 0
				for i, n := range counts {
					sum += n
					if (n > 0) != (i < lanes) {
						t.Errorf("%s: %v, want the first %d to get something", what, counts, lanes)
						break
					}
				}
				if sum != flows {
					t.Errorf("%s: %v of %d came", what, counts, flows)
				}
			}
			one := bind(t, ss, serving(1, ap), true)
			commit(t, ss, one, 1)
			three := bind(t, ss, serving(3, ap), true)
			group := udpOf(three.uses)
			if group[0] != udpOf(one.uses)[0] || group[1].bound || group[2].bound {
				t.Errorf("before the commit: %+v", group)
			}
			want("before the group grows", readers(t, flows, to, group[:1]), 1)
			commit(t, ss, three, 3)
			want("grown", readers(t, flows, to, group), 3)
			ss.release(one.uses)

			two := bind(t, ss, serving(2, ap), true)
			want("before the group shrinks", readers(t, flows, to, group), 3)
			commit(t, ss, two, 2)
			want("shrunk", readers(t, flows, to, group), 2)
			ss.release(three.uses)
			if err := ss.steer(two.uses, 2); err != nil {
				t.Fatal(err)
			}
			if len(ss.steered) != 0 {
				t.Errorf("still steered: %v", ss.steered)
			}
			want("the others are closed", readers(t, flows, to, group[:2]), 2)

			again := bind(t, ss, serving(4, ap), true)
			commit(t, ss, again, 4)
			ss.release(two.uses)
			want("grown again", readers(t, flows, to, udpOf(again.uses)), 4)
			ss.release(again.uses)
			if len(ss.byID) != 0 {
				t.Errorf("%d sockets are left", len(ss.byID))
			}
		})
	}
}

// An address that is given up while its group is restricted, and served again,
// is not taken for restricted: it was not when its group shrank to the same number
// once more, and what came to the other sockets was lost with them.
func TestSteerForgetsAClosedGroup(t *testing.T) {
	ss := newSockets()
	ap := free(t, "127.0.0.1")
	for round := range 2 {
		three := bind(t, ss, serving(3, ap), true)
		commit(t, ss, three, 3)
		two := bind(t, ss, serving(2, ap), true)
		commit(t, ss, two, 2)
		counts := readers(t, 300, ap, udpOf(three.uses))
		if counts[0] == 0 || counts[1] == 0 || counts[2] != 0 {
			t.Errorf("round %d: %v came, want the first two to get everything", round, counts)
		}
		ss.release(three.uses)
		ss.release(two.uses)
		if len(ss.steered) != 0 {
			t.Errorf("round %d: still steered: %v", round, ss.steered)
		}
	}
}

// All addresses that cannot be had are told at once, and what was bound on the way
// is given back.
func TestBindFails(t *testing.T) {
	ss := newSockets()
	kept := free(t, "127.0.0.1")
	old := bind(t, ss, serving(2, kept), true)
	held, said := start(t, "hold", "udp", "127.0.0.1:0", "holder")
	taken := netip.MustParseAddrPort(said)
	foreign := netip.MustParseAddrPort("192.0.2.1:5353")
	fresh := free(t, "127.0.0.1")
	before := descriptors(t)
	r, err := ss.bind(serving(2, fresh, taken, kept, foreign), true)
	if err == nil {
		t.Fatalf("bound %+v", r)
	}
	for _, want := range []string{
		fmt.Sprintf("listener l1: udp %v is taken by holder (pid %d): stop it, or choose another address", taken, held.PID),
		fmt.Sprintf("listener l3: binding udp %v: ", foreign),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "l0") || strings.Contains(err.Error(), "l2") || strings.Count(err.Error(), "listener l1: udp") != 1 {
		t.Errorf("too much in:\n%v", err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
	for _, u := range old.uses {
		if u.users != 1 {
			t.Errorf("%d users", u.users)
		}
	}
	if err := netio.Probe("udp", fresh); err != nil {
		t.Errorf("not given back: %v", err)
	}
	ss.release(old.uses)
}

// Ids are the lowest that are free, and few enough.
func TestFreeID(t *testing.T) {
	ss := newSockets()
	for id := range uint32(directory.MaxSockets) {
		if got, err := ss.freeID(); err != nil || got != id {
			t.Fatalf("id %d, %v; want %d", got, err, id)
		}
		ss.add(&socket{id: id})
		if id == 99 {
			break
		}
	}
	ss.remove(ss.byID[7])
	if got, err := ss.freeID(); err != nil || got != 7 {
		t.Errorf("id %d, %v", got, err)
	}
	for id := range uint32(directory.MaxSockets) {
		ss.add(&socket{id: id})
	}
	if id, err := ss.freeID(); err == nil {
		t.Errorf("id %d of a full table", id)
	}
	ss.remove(ss.byID[directory.MaxSockets-1])
	if got, err := ss.freeID(); err != nil || got != directory.MaxSockets-1 {
		t.Errorf("id %d, %v", got, err)
	}
}

// A listener that cannot listen is named; the others do.
func TestListenFails(t *testing.T) {
	ss := newSockets()
	a, b := free(t, "127.0.0.1"), free(t, "127.0.0.1")
	r := bind(t, ss, serving(1, a, b), true)
	defer ss.release(r.uses)
	rival, err := netio.BindTCP(a) // allowed as long as nobody listens
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(rival)
	if err := netio.Listen(rival); err != nil {
		t.Fatal(err)
	}
	if err := ss.listen(r.uses); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("tcp %v: ", a)) {
		t.Errorf("listening: %v", err)
	}
	if r.uses[1].listening || !r.uses[3].listening {
		t.Errorf("listening: %v and %v", r.uses[1].listening, r.uses[3].listening)
	}
}

// A stop closes UDP for good and leaves TCP; nothing is closed twice.
func TestCloseUDP(t *testing.T) {
	ss := newSockets()
	ap := free(t, "127.0.0.1")
	r := bind(t, ss, serving(2, ap), true)
	before := descriptors(t)
	ss.closeUDP(r.uses)
	ss.closeUDP(r.uses)
	if n := descriptors(t); n != before-2 {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
	other, err := netio.NewWake() // it has the number of one of them
	if err != nil {
		t.Fatal(err)
	}
	ss.release(r.uses)
	if err := unix.Close(other); err != nil {
		t.Errorf("closed by another: %v", err)
	}
	if err := netio.Probe("tcp", ap); err != nil {
		t.Error(err)
	}
}

// What the kernel dropped is counted for good, over the end of a socket and the
// wrap of the kernel's own count.
func TestKernelDropsNeverGoBack(t *testing.T) {
	ss := newSockets()
	ap := free(t, "127.0.0.1")
	r := bind(t, ss, serving(2, ap), true)
	for _, s := range udpOf(r.uses) {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := ss.kernelDrops(); n != 0 {
		t.Fatalf("%d drops", n)
	}
	readers(t, 200, ap, nil)
	counts := readers(t, 0, ap, udpOf(r.uses))
	want := uint64(200 - counts[0] - counts[1])
	if n := ss.kernelDrops(); n != want || n == 0 {
		t.Errorf("%d drops, want %d", n, want)
	}
	ss.closeUDP(r.uses)
	if n := ss.kernelDrops(); n != want {
		t.Errorf("%d drops when the sockets are closed, %d before", n, want)
	}
	ss.release(r.uses)
	if n := ss.kernelDrops(); n != want {
		t.Errorf("%d drops when the sockets are gone, %d before", n, want)
	}

	s := new(socket) // the kernel's own count has 32 bits
	for _, now := range []uint32{0, 7, math.MaxUint32 - 1, math.MaxUint32 - 1, 3} {
		s.count(now)
	}
	if want := uint64(math.MaxUint32 + 4); s.dropped != want {
		t.Errorf("%d drops, want %d", s.dropped, want)
	}
}

// What waits on the sockets of a generation that is gone is counted, unless another
// generation has them, too.
func TestCountUnread(t *testing.T) {
	ss := newSockets()
	kept, own := free(t, "127.0.0.1"), free(t, "127.0.0.1")
	next := bind(t, ss, serving(1, kept), true)
	old := bind(t, ss, serving(2, kept, own), true)
	readers(t, 30, kept, nil)
	readers(t, 20, own, nil)
	ss.countUnread(old.uses)
	if n := ss.kernelDrops(); n != 20 {
		t.Errorf("%d lost, 20 wait for nobody", n)
	}
	ss.release(old.uses)
	if n := ss.kernelDrops(); n != 20 {
		t.Errorf("%d lost when the sockets are gone", n)
	}
	if left := readers(t, 0, kept, udpOf(next.uses)); left[0] != 30 {
		t.Errorf("%d of 30 are left on a socket that goes on", left[0])
	}
}
