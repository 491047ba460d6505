package server

import (
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/metrics"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/worker"
)

// A descriptor that a worker tells of is a socket of the listener that it is said to
// be of, or is refused and closed.
func TestInheritSocket(t *testing.T) {
	bound := func(tcp, listens bool) (int, netip.AddrPort) {
		t.Helper()
		ap := netip.MustParseAddrPort("127.0.0.1:0")
		var fd int
		var err error
		if tcp {
			fd, err = netio.BindTCP(ap)
		} else {
			fd, _, err = netio.BindUDP(ap)
		}
		if err == nil && listens {
			err = netio.Listen(fd)
		}
		if err != nil {
			t.Fatal(err)
		}
		at, err := netio.LocalAddr(fd)
		if err != nil || at.Port() == 0 {
			t.Fatalf("bound to %v: %v", at, err)
		}
		return fd, at
	}
	before := descriptors(t)
	for name, tt := range map[string]struct {
		tcp, listens bool
		change       func(*worker.SocketRef)
		want         string
	}{
		"UDP":             {},
		"TCP":             {tcp: true},
		"TCP, listening":  {tcp: true, listens: true},
		"another type":    {change: func(r *worker.SocketRef) { r.TCP = true }, want: "its type is"},
		"another address": {change: func(r *worker.SocketRef) { r.Address = netip.MustParseAddrPort("127.0.0.1:1") }, want: "it is bound to"},
	} {
		fd, at := bound(tt.tcp, tt.listens)
		ref := worker.SocketRef{ID: 3, Address: at, TCP: tt.tcp, Lane: 2}
		if tt.change != nil {
			tt.change(&ref)
		}
		s, err := inheritSocket(ref, fd)
		switch {
		case tt.want != "":
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", name, err)
			continue
		case s.fd != fd || s.id != 3 || s.lane != 2 || s.address != at || !s.bound || s.listening != tt.listens:
			t.Errorf("%s: %+v", name, s)
		}
		unix.Close(fd)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if _, err := inheritSocket(worker.SocketRef{}, pipe[0]); err == nil {
		t.Error("a pipe is a socket")
	}
	unix.Close(pipe[1])
	ap := netip.MustParseAddrPort("127.0.0.1:5300")
	fd, _, err := netio.OpenUDP(ap)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := inheritSocket(worker.SocketRef{Address: ap}, fd); err != nil || s.bound {
		t.Errorf("one that is to be bound: %+v, %v", s, err)
	}
	unix.Close(fd)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// What the supervisor counts itself goes on with the next one, each under its own
// number.
func TestTallies(t *testing.T) {
	dir, err := directory.Format(shm.Heap(directory.RegionSize))
	if err != nil {
		t.Fatal(err)
	}
	supervisor := func() *Supervisor {
		return &Supervisor{dir: dir, sockets: newSockets(), outcomes: make(map[control.Outcome]uint64), refusals: make(map[metrics.Refusal]uint64)}
	}
	one, next := supervisor(), supervisor()
	for i, c := range tallies {
		c.set(one, uint64(100+i))
	}
	one.keepTallies()
	next.readTallies()
	for i, c := range tallies {
		if got := c.get(next); got != uint64(100+i) {
			t.Errorf("tally %d is %d", i, got)
		}
	}
	if len(tallies) > directory.NumTallies {
		t.Errorf("%d tallies, and room for %d", len(tallies), directory.NumTallies)
	}
}

// The servers of a generation keep their numbers, and what an operator has ordered;
// numbers that cannot be are refused.
func TestAdoptServers(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	cfg := &config.Config{Backends: []config.Backend{{Name: "b", Servers: []config.Server{
		{Name: "one", Address: netip.MustParseAddrPort("127.0.0.1:1"), Weight: 2},
		{Name: "two", Address: netip.MustParseAddrPort("127.0.0.1:2"), Weight: 1},
	}}}}
	before, err := newBackends(log)
	if err != nil {
		t.Fatal(err)
	}
	defer before.close()
	numbers, err := before.claim(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before.commit(cfg)
	before.region.Server(numbers[0][1]).SetOrder(backend.Disabled)

	next, err := newBackends(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { next.close() }()
	fd, err := unix.FcntlInt(uintptr(before.shared.Fd()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.adoptRegion(fd); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]serverNumbers{
		"none": {}, "too few": {{0}}, "below": {{0, -1}}, "beyond": {{0, backend.MaxServers}},
	} {
		if err := next.adopt(cfg, wrong); err == nil {
			t.Errorf("%s: numbers %v are taken", name, wrong)
		}
	}
	for range 2 { // of two generations
		if err := next.adopt(cfg, numbers); err != nil {
			t.Fatal(err)
		}
	}
	next.commit(cfg)
	if got := next.region.Server(numbers[0][1]).Order(); got != backend.Disabled {
		t.Errorf("the order is %v", got)
	}
	again, err := next.claim(cfg)
	if err != nil || !reflect.DeepEqual(again, numbers) {
		t.Errorf("numbers %v, not %v: %v", again, numbers, err)
	}
	for range 3 {
		next.release(cfg, numbers)
	}
	if len(next.byKey) != 0 {
		t.Errorf("%d servers are left", len(next.byKey))
	}
}
