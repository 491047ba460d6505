package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
)

// Each kind of check finds out which of two servers serves, by asking what really
// answers it: a DNS server over UDP and TCP, an HTTP server, and one that echoes.
// New flows go to that one.
func TestProxyHealthKinds(t *testing.T) {
	const echoed = byte(0)
	kinds := []struct {
		name, health string
		port         int // that is checked, of 127.0.0.1; nobody serves on it on 127.0.0.9
	}{
		{"udp", `check: udp, send: "ping\\x00", expect: "ping\\x00"`, 9000 + int(echoed)},
		{"dns", `check: dns, name: example.com`, int(dns4.Port())},
		{"tcp", `check: tcp`, int(dns4.Port())},
		{"http", `check: http, path: /readyz`, int(netip.MustParseAddrPort(admin).Port())},
	}
	var backends, listeners []string
	for i, k := range kinds {
		backends = append(backends, fmt.Sprintf(`{name: %s, health: {%s, port: %d, interval: 300ms, timeout: 100ms, max_fails: 0},
  servers: [{name: dead, address: "127.0.0.9:9000"}, {name: live, address: "127.0.0.1:9000"}]}`, k.name, k.health, k.port))
		listeners = append(listeners, fmt.Sprintf("  - {name: p%d, address: [\"127.0.0.1:%d\"], service: udp-proxy, backend: %s}\n", i, 5000+i, k.name))
	}
	startEcho(t, echoed)
	s := start(t, settings{top: "backends: [" + strings.Join(backends, ", ") + "]", more: strings.Join(listeners, "")}.yaml(), zoneFiles())
	state := func() map[string]string {
		var list []control.BackendStatus
		if err := json.Unmarshal(s.ctl("backend", "list", "-o", "json"), &list); err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, b := range list {
			for _, one := range b.Servers {
				m[b.Name+" "+one.Name] = one.Health
			}
		}
		return m
	}
	s.await(startTimeout, "the checks know who serves", func() bool {
		m := state()
		for _, k := range kinds {
			if m[k.name+" live"] != "up" || m[k.name+" dead"] != "down" {
				return false
			}
		}
		return true
	})
	for i := range kinds {
		for range 4 {
			if got := askOnce(t, netip.AddrPortFrom(long4.Addr(), uint16(5000+i))); got != echoed {
				t.Errorf("%s: server %d answers", kinds[i].name, got)
			}
		}
	}
}

// askOnce begins a flow and returns the number of the server that answers.
func askOnce(t *testing.T, to netip.AddrPort) byte {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const text = "who?"
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil || n != len(text)+3 || string(b[:len(text)]) != text {
		t.Fatalf("%v answers %q: %v", to, b[:n], err)
	}
	return b[len(text)]
}
