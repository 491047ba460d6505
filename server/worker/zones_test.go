package worker

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/shm"
)

// zoneRegion returns a region with one zone of this serial. Its name in the maps of
// the process is the serial's.
func zoneRegion(t *testing.T, serial int) *shm.Region {
	t.Helper()
	file := filepath.Join(t.TempDir(), "zone")
	text := fmt.Sprintf("@ 60 SOA ns admin %d 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n", serial)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := zone.Compile("example.", file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Region(fmt.Sprintf("test%d", serial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// dup returns a descriptor of a region for somebody who takes it over.
func dup(t *testing.T, r *shm.Region) int {
	t.Helper()
	return dupFD(t, r.Fd())
}

func dupFD(t *testing.T, fd int) int {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// catalogOf returns a descriptor of the catalog of one zone in this region.
func catalogOf(t *testing.T, version, region uint64) int {
	t.Helper()
	c, err := catalog.New(version, []catalog.Place{{Region: region, Offset: catalog.FirstOffset, Counter: 1}}).Region()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return dup(t, c)
}

// mapped returns how often the region of a serial is mapped.
func mapped(t *testing.T, serial int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), fmt.Sprintf("memfd:dnsapp:test%d ", serial))
}

// keeper returns a keeper of the zone with serial 1, whose users woken tells.
func keeper(t *testing.T, woken func()) (*zoneKeeper, *auth.Engine) {
	t.Helper()
	cells, err := shm.Create("cells", counters.ZonesSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cells.Close() })
	if _, err := counters.FormatZones(cells); err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Catalog: catalogOf(t, 1, 1), ZoneRegions: []ZoneRef{{ID: 1, FD: dup(t, zoneRegion(t, 1))}}, ZoneCounters: dup(t, cells)}
	k, err := newZoneKeeper(m, grace.New(woken), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	e := auth.New(auth.Options{})
	k.serve(e)
	return k, e
}

// serial asks an answerer of streams for the serial of the zone.
func serial(t *testing.T, e *auth.Engine, users *grace.Domain) uint32 {
	t.Helper()
	q, err := new(dns.Msg).SetQuestion("example.", dns.TypeSOA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	s := dnsStream{e.NewLane(new(counters.Block)), users}
	out, class, drop := s.AnswerStream(nil, q, netip.AddrPort{})
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil || class != counters.ClassNoError || drop != counters.NotDropped || len(m.Answer) != 1 {
		t.Fatalf("%v: class %v, drop %v, %v", m, class, drop, err)
	}
	return m.Answer[0].(*dns.SOA).Serial
}

// New zones are answered from at once, also by a lane that is asleep when it wakes;
// the old ones stay mapped until that lane has passed a boundary.
func TestSwapZones(t *testing.T) {
	woken := make(chan struct{}, 1)
	k, e := keeper(t, func() { woken <- struct{}{} })
	lane := k.users.NewLane()
	before := mapped(t, 1)
	if err := k.addRegions([]uint64{2}, []int{dup(t, zoneRegion(t, 2))}); err != nil {
		t.Fatal(err)
	}
	if err := k.swap(t.Context(), catalogOf(t, 2, 2)); err != nil {
		t.Fatal(err)
	}
	if got := serial(t, e, k.users); got != 2 {
		t.Errorf("serial %d", got)
	}
	select {
	case <-woken: // the lanes are told
	case <-time.After(patience):
		t.Fatal("nobody woke the lanes")
	}
	if got := mapped(t, 1); got != before {
		t.Errorf("the old zone is mapped %d times, was %d: a lane may still use it", got, before)
	}
	lane.Pass()
	until(t, "the old zone is unmapped", func() bool { return mapped(t, 1) == before-1 })
}

// What makes no sense changes nothing, and leaves nothing behind.
func TestSwapZonesRefused(t *testing.T) {
	k, e := keeper(t, func() {})
	good := dup(t, zoneRegion(t, 3))
	if err := k.addRegions([]uint64{3, 4}, []int{good}); err == nil {
		t.Error("two regions with one descriptor are taken")
	}
	if err := k.addRegions([]uint64{3, 4}, []int{dupFD(t, memfd(t, "junk", "junk")), dup(t, zoneRegion(t, 4))}); err == nil {
		t.Error("junk is a region")
	}
	before := descriptors(t)
	if err := k.addRegions([]uint64{5}, []int{dup(t, zoneRegion(t, 5))}); err != nil {
		t.Fatal(err)
	}
	for what, fd := range map[string]int{
		"a catalog of a region that is not there": catalogOf(t, 2, 9),
		"a catalog that is none":                  dup(t, zoneRegion(t, 6)),
		"junk":                                    dupFD(t, memfd(t, "junk", "junk")),
	} {
		if err := k.swap(t.Context(), fd); err == nil {
			t.Errorf("answers from %s", what)
		}
	}
	if got := serial(t, e, k.users); got != 1 {
		t.Errorf("serial %d", got)
	}
	// The test itself has those that it made, and nothing else is left.
	if n := descriptors(t) - before; n > 5 {
		t.Errorf("%d descriptors more", n)
	}
	if mapped(t, 5) != 1 {
		t.Error("a region that no catalog wanted is mapped")
	}
}
