package server

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/dnsapp/dnsapp/server/netio"
)

// A listener goes from the wildcard to one address and back, over UDP and TCP, as
// often as one likes. Before the commit everything comes by the sockets there were;
// no connection is refused at any time.
func TestNarrowAndWiden(t *testing.T) {
	for _, c := range []struct{ all, one, other string }{{"0.0.0.0", "127.0.0.1", "127.0.0.9"}, {"::", "::1", ""}} {
		ss := newSockets()
		wide := free(t, c.all)
		at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), wide.Port()) }
		narrow := at(c.one)
		const flows, lanes = 100, 2
		by := func(what string, to netip.AddrPort, uses []use) {
			t.Helper()
			var list []*socket
			for _, s := range udpOf(uses) {
				if s.bound {
					list = append(list, s)
				}
			}
			sum := 0
			for _, n := range readers(t, flows, to, list) {
				sum += n
			}
			if sum != flows {
				t.Errorf("%s %s: %d of %d datagrams came", c.all, what, sum, flows)
			}
		}
		connects := func(what string, to netip.AddrPort) {
			t.Helper()
			conn, err := net.Dial("tcp", to.String())
			if err != nil {
				t.Errorf("%s %s: %v", c.all, what, err)
				return
			}
			conn.Close()
		}
		old := bind(t, ss, serving(lanes, wide), true)
		commit(t, ss, old, lanes)
		for range 3 {
			next := bind(t, ss, serving(lanes, narrow), true)
			by("before it narrows", narrow, old.uses)
			connects("before it narrows", narrow)
			commit(t, ss, next, lanes)
			by("narrowed", narrow, next.uses)
			connects("narrowed", narrow)
			if c.other != "" {
				by("narrowed, another address", at(c.other), old.uses)
			}
			ss.release(old.uses)
			connects("narrowed alone", narrow)
			old = next

			next = bind(t, ss, serving(lanes, wide), true)
			by("before it widens", narrow, old.uses)
			commit(t, ss, next, lanes)
			by("widened", narrow, next.uses)
			connects("widened", narrow)
			if c.other != "" {
				by("widened, another address", at(c.other), next.uses)
				connects("widened, another address", at(c.other))
			}
			ss.release(old.uses)
			by("wide alone", narrow, next.uses)
			connects("wide alone", narrow)
			old = next
		}
		if n := len(ss.byID); n != 2*(lanes+1) {
			t.Errorf("%s: %d sockets", c.all, n)
		}
		ss.release(old.uses)
		for _, network := range []string{"udp", "tcp"} {
			if err := netio.Probe(network, wide); err != nil {
				t.Errorf("not given back: %v", err)
			}
		}
	}
}

// What another process has within the wildcard is found although the wildcard
// cannot be probed.
func TestWidenOverAnother(t *testing.T) {
	p, said := start(t, "hold", "udp", "127.0.0.9:0", "holder")
	held := netip.MustParseAddrPort(said)
	ss := newSockets()
	narrow := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), held.Port())
	old := bind(t, ss, serving(1, narrow), true)
	defer ss.release(old.uses)
	commit(t, ss, old, 1)
	_, err := ss.bind(serving(1, netip.AddrPortFrom(netip.IPv4Unspecified(), held.Port())), true)
	if want := fmt.Sprintf("is taken by holder (pid %d)", p.PID); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want one that says %s", err, want)
	}
}
