package config

import (
	"net/netip"
	"testing"
)

// What sockets and eventfds leave of the limit is for connections; too little for
// them is no configuration to start.
func TestConnectionsWithin(t *testing.T) {
	c := &Config{Workers: 2, Lanes: 3, DNS: DNS{TCPConnections: 1000}}
	if least, connections := c.Files(); least != spareFiles+4*6 || connections != 0 {
		t.Errorf("without listeners: %d, %d", least, connections)
	}
	c.Listeners = []Listener{
		{Address: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")}, UDP: true, TCP: true},
		{Address: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.3:53")}, UDP: true},
	}
	least, connections := c.Files()
	if least != spareFiles+4*6+3*6+2 || connections != 1000 {
		t.Errorf("%d, %d", least, connections)
	}
	for limit, want := range map[int]int{least: 0, least + 1: 1, least + 1000: 1000, 1 << 20: 1000} {
		if n, ok := c.ConnectionsWithin(uint64(limit)); !ok || n != want {
			t.Errorf("limit %d: %d, %v, want %d", limit, n, ok, want)
		}
	}
	if n, ok := c.ConnectionsWithin(uint64(least - 1)); ok {
		t.Errorf("too little, and %d connections", n)
	}
	for limit, want := range map[int]int{0: 0, least: 0, least + 100: 50, least + 2000: 1000, least + 5000: 4000} {
		if n := c.FlowsWithin(uint64(limit)); n != want {
			t.Errorf("limit %d: %d sockets of flows, want %d", limit, n, want)
		}
	}
}
