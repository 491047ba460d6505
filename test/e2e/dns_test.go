package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// traffic is DNS over UDP and both ways over TCP.
type traffic struct {
	udp               *load.UDP
	persistent, short *load.TCP
}

// startDNS asks at 30,000 queries/s in all, over UDP and TCP, IPv4 and IPv6.
func startDNS(t *testing.T) *traffic {
	t.Helper()
	protocol := func(keepalive bool) load.Protocol {
		p, err := load.NewDNS(queries(keepalive))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	targets := []netip.AddrPort{dns4, dns6}
	var x traffic
	var err error
	if x.udp, err = load.StartUDP(load.UDPConfig{
		Targets: targets, Flows: 64, Rate: 27_000, Sources: []netip.Prefix{clients6}, Protocol: protocol(false),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.udp.Close)
	// Clients that keep their connection, and understand when they are asked to go.
	if x.persistent, err = load.StartTCP(load.TCPConfig{Targets: targets, Clients: 8, Rate: 2600, Protocol: protocol(true)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.persistent.Stop(0) })
	// Clients that connect for each query.
	if x.short, err = load.StartTCP(load.TCPConfig{Targets: targets, Clients: 8, Rate: 400, PerConn: 1, Protocol: protocol(false)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.short.Stop(0) })
	return &x
}

func (x *traffic) stop() map[string]load.Report {
	const grace = 2 * time.Second
	return map[string]load.Report{
		"UDP":                      x.udp.Stop(grace),
		"TCP, kept connections":    x.persistent.Stop(grace),
		"TCP, connection by query": x.short.Stop(grace),
	}
}

const dnsReloads = 50

// Fifty reloads under 30,000 queries/s, over UDP and TCP, lose nothing, answer
// nothing twice and refuse no connection.
func TestDNSUnderReloads(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	first := s.epoch()
	x := startDNS(t)
	s.await(10*time.Second, "the load runs", func() bool { return x.udp.Report().Answered > 5000 && x.short.Report().Answered > 50 })
	began := time.Now()
	for range dnsReloads {
		s.reload()
	}
	t.Logf("%d reloads in %v", dnsReloads, time.Since(began))
	if got := s.epoch(); got != first+dnsReloads {
		t.Errorf("epoch %d, want %d", got, first+dnsReloads)
	}
	var udp, tcp uint64
	for name, r := range x.stop() {
		t.Logf("%s: %v", name, r)
		if err := r.Exact(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r.Skipped > r.Offered/2 {
			t.Errorf("%s: the generator made less than half of the load of this test: the machine is too busy for it", name)
		}
		if name == "UDP" {
			udp += r.Sent
		} else {
			tcp += r.Sent
		}
	}
	l := s.ledger()
	if l.Received != udp || l.Served != udp || l.KernelDropped != 0 {
		t.Errorf("%d UDP queries were sent; ledger %+v", udp, l)
	}
	if l.TCPQueries != tcp || l.TCPAnswers != tcp {
		t.Errorf("%d TCP queries were sent; ledger %+v", tcp, l)
	}
}

// The same load on the plain way to reload is not exact: the test above can fail.
func TestDNSUnderRestartsFails(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{mode: restart}"}.yaml(), zoneFiles())
	x := startDNS(t)
	s.await(10*time.Second, "the load runs", func() bool { return x.udp.Report().Answered > 5000 && x.short.Report().Answered > 50 })
	for range 5 {
		s.reload()
	}
	exact := true
	for name, r := range x.stop() {
		t.Logf("%s: %v", name, r)
		exact = exact && r.Exact() == nil
	}
	if exact {
		t.Error("five restarts lost nothing: the test does not see what it is there to see")
	}
}

// A changed zone is served from the commit on: what is asked after it never sees
// the old content (affinity none).
func TestReloadServesNewZone(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	for serial := 2; serial <= 4; serial++ {
		s.write("example.com.zone", zone(serial))
		s.reload("--wait", "commit")
		for _, target := range []netip.AddrPort{dns4, dns6} {
			if got := soaSerial(t, target); got != uint32(serial) {
				t.Errorf("%v serves serial %d after the commit of %d", target, got, serial)
			}
		}
		s.awaitSteady()
	}
}

// awaitSteady waits until no reload is running.
func (s *server) awaitSteady() {
	s.t.Helper()
	s.await(30*time.Second, "the old generation is gone", func() bool { return len(s.status().Generations) == 1 })
}
