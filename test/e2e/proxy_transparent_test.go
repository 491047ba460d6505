package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/netns"
)

// proxyNet is a client and a server on either side of this host, each in a network
// of its own: whatever goes between them goes through here.
type proxyNet struct{ client, server *netns.Namespace }

// Where everybody is, by family.
var (
	clientAddrs = []string{"10.64.1.2", "fd66:1::2"}
	nearClient  = []string{"10.64.1.1", "fd66:1::1"} // this host
	nearServer  = []string{"10.64.2.1", "fd66:2::1"}
	serverAddrs = []string{"10.64.2.2", "fd66:2::2"}
)

// newProxyNet makes that network. What the server sends to clients is delivered to
// this host, as docs/udp-proxy.md says for transparent.
func newProxyNet(t *testing.T) proxyNet {
	t.Helper()
	requireSuite(t)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("NOT TESTED: there is no ip (apt-get install iproute2)")
	}
	side := func(n string) *netns.Namespace {
		ns, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Close)
		ip(t, "link", "add", "here"+n, "type", "veth", "peer", "name", "there"+n)
		t.Cleanup(func() { ip(t, "link", "delete", "here"+n) })
		ip(t, "link", "set", "there"+n, "netns", ns.Path())
		addLink(t, "here"+n, "10.64."+n+".1/24", "fd66:"+n+"::1/64")
		if err := ns.Do(func() error {
			addLink(t, "there"+n, "10.64."+n+".2/24", "fd66:"+n+"::2/64")
			ip(t, "route", "add", "default", "via", "10.64."+n+".1")
			ip(t, "-6", "route", "add", "default", "via", "fd66:"+n+"::1")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return ns
	}
	p := proxyNet{side("1"), side("2")}
	for _, family := range []string{"-4", "-6"} {
		ip(t, family, "rule", "add", "iif", "here2", "lookup", "100")
		t.Cleanup(func() { ip(t, family, "rule", "delete", "iif", "here2", "lookup", "100") })
		ip(t, family, "route", "add", "local", "default", "dev", "lo", "table", "100")
		t.Cleanup(func() { ip(t, family, "route", "delete", "local", "default", "dev", "lo", "table", "100") })
	}
	return p
}

func addLink(t *testing.T, name, addr4, addr6 string) {
	t.Helper()
	ip(t, "address", "add", addr4, "dev", name)
	ip(t, "address", "add", addr6, "dev", name, "nodad")
	ip(t, "link", "set", name, "up")
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// listen opens a UDP socket in ns.
func listen(t *testing.T, ns *netns.Namespace, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	if err := ns.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// tellSource answers every datagram with the address that it came from.
func tellSource(c *net.UDPConn) {
	b := make([]byte, 1<<16)
	for {
		_, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteToUDPAddrPort([]byte(from.String()), from) // a lost answer shows at the client
		}
	}
}

// With transparent the server sees the client's address and port, of either
// family, and its answers come from where the client has sent to; over a reload,
// too. Without it the server sees this host.
func TestProxyTransparent(t *testing.T) {
	p := newProxyNet(t)
	for i := range serverAddrs {
		go tellSource(listen(t, p.server, netip.AddrPortFrom(netip.MustParseAddr(serverAddrs[i]), 9000)))
	}
	var backends, listeners []string
	for i, port := range []string{"5000", "5001"} {
		for j, host := range nearClient {
			name := fmt.Sprintf("p%d%d", i, j)
			backends = append(backends, fmt.Sprintf(`{name: %s, servers: [{name: a, address: "%s"}]}`, name, net.JoinHostPort(serverAddrs[j], "9000")))
			listeners = append(listeners, fmt.Sprintf("  - {name: %s, address: [\"%s\"], service: udp-proxy, backend: %[1]s, udp_proxy: {transparent: %[3]v}}\n",
				name, net.JoinHostPort(host, port), i == 0))
		}
	}
	s := start(t, settings{
		lanes: 2, reload: "{udp_idle: 2s}",
		top: "backends: [" + strings.Join(backends, ", ") + "]", more: strings.Join(listeners, ""),
	}.yaml(), zoneFiles())

	for j, host := range nearClient {
		c := listen(t, p.client, netip.AddrPortFrom(netip.MustParseAddr(clientAddrs[j]), 4321))
		ask := func(port uint16) string {
			t.Helper()
			to := netip.AddrPortFrom(netip.MustParseAddr(host), port)
			if _, err := c.WriteToUDPAddrPort([]byte("who am I?"), to); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 100)
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil || from != to {
				t.Errorf("%v answers from %v: %v", to, from, err)
			}
			return string(b[:n])
		}
		seen := c.LocalAddr().String()
		if got := ask(5000); got != seen {
			t.Errorf("with transparent the server sees %s, not %s", got, seen)
		}
		if got := ask(5001); netip.MustParseAddrPort(got).Addr().String() != nearServer[j] {
			t.Errorf("without transparent the server sees %s", got)
		}
		r := s.startReload()
		r.awaitCommit()
		if got := ask(5000); got != seen { // of the old generation
			t.Errorf("over a reload the server sees %s, not %s", got, seen)
		}
		r.wait()
		if got := ask(5000); got != seen { // of the new one
			t.Errorf("after a reload the server sees %s, not %s", got, seen)
		}
	}
	if l := s.ledger(); sum(l.Dropped) != 0 {
		t.Errorf("dropped %v", l.Dropped)
	}
}
