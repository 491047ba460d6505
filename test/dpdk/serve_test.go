package dpdk

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// Both services answer over both families, large answers in fragments; the host
// answers what a host answers; and with nothing to do it takes next to no CPU.
func TestServes(t *testing.T) {
	s := start(t, 2, "")
	for _, at := range []netip.AddrPort{dns4, dns6} {
		for _, c := range []struct {
			name    string
			answers int
		}{{"www.example.com.", 1}, {"big.example.com.", 250}, {"none.example.com.", 0}} {
			q := new(dns.Msg)
			q.SetQuestion(c.name, dns.TypeA)
			q.SetEdns0(4096, false)
			client := dns.Client{Timeout: 5 * time.Second, UDPSize: 4096}
			a, _, err := client.Exchange(q, at.String())
			if err != nil || len(a.Answer) != c.answers || a.Truncated {
				t.Errorf("%s at %v: %v, %v", c.name, at, err, a)
			}
		}
	}
	for _, at := range []netip.AddrPort{who4, who6} {
		answer, err := ask(at, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if tag, err := load.ParseTag(answer); err != nil || tag.Epoch != s.owner().Epoch {
			t.Errorf("identify at %v: %+v, %v", at, tag, err)
		}
	}
	for _, network := range []string{"ip4:icmp", "ip6:ipv6-icmp"} {
		echo(t, network)
	}
	for _, ip := range []netip.Addr{server4, server6} {
		c, err := net.Dial("udp", netip.AddrPortFrom(ip, 9).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port that is not served at %v: %v", ip, err)
		}
	}
	for _, w := range s.owner().Workers {
		if st, err := proc.Status(w.PID); err != nil || strings.HasPrefix(st["Uid"], "0") || strings.Trim(st["CapEff"]+st["CapPrm"], "0") != "" {
			t.Errorf("a worker runs with the rights of %q, %q (%v)", st["Uid"], st["CapEff"], err)
		}
	}
	s.pool()
	idle(t, s)
}

// A worker that never sleeps serves, and lets go of the wire, all the same; and a reload
// may have it sleep from then on.
func TestBusy(t *testing.T) {
	s := start(t, 1, "")
	s.config = strings.Replace(s.config, "  mbufs:", "  poll: busy\n  mbufs:", 1)
	for _, poll := range []string{"poll: busy", "poll: adaptive"} {
		s.write("dnsapp.yaml", strings.Replace(s.config, "poll: busy", poll, 1))
		s.ctl("reload")
		s.healthy(poll)
		s.pool()
	}
}

// A reload may change the addresses, and may not change what the primary has made.
func TestDevicesChange(t *testing.T) {
	s := start(t, 2, "")
	if out, err := exec.Command("ip", "addr", "add", "198.51.100.9/24", "dev", s.tap).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := netip.MustParseAddrPort("198.51.100.1:5400")
	s.write("dnsapp.yaml", strings.Replace(s.config, `"192.0.2.1/24",`, `"192.0.2.1/24", "198.51.100.1/24",`, 1)+
		"  - {name: more, address: [\"198.51.100.1:5400\"], service: identify}\n")
	s.ctl("reload")
	if _, err := ask(at, 5*time.Second); err != nil {
		t.Errorf("the new address: %v", err)
	}
	s.write("dnsapp.yaml", strings.Replace(s.config, "queues: 2", "queues: 3", 1))
	if _, errs, code := s.tryCtl("reload"); code != 3 || !strings.Contains(string(errs), "dpdk.devices[wan].queues") {
		t.Errorf("a reload with another number of queues: code %d, %s", code, errs)
	}
	s.healthy("after the refusal")
	s.write("dnsapp.yaml", s.config)
	s.ctl("reload")
	if _, err := ask(at, 200*time.Millisecond); err == nil {
		t.Error("an address that was removed answers")
	}
	s.healthy("after the removal")
}

// echo pings the server, with as much as fits a frame.
func echo(t *testing.T, network string) {
	t.Helper()
	to, typ := server4, byte(8)
	if network != "ip4:icmp" {
		to, typ = server6, 128
	}
	c, err := net.Dial(network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := make([]byte, 1400)
	m[0], m[4] = typ, 7
	for i := 8; i < len(m); i++ {
		m[i] = byte(i)
	}
	if to.Is4() { // the kernel does it for IPv6
		sum := uint32(0)
		for i := 0; i < len(m); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(m[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(m[2:], ^uint16(sum>>16+sum&0xffff))
	}
	if _, err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 2000)
	for {
		n, _, err := c.(*net.IPConn).ReadFrom(b) // without the IPv4 header
		if err != nil {
			t.Errorf("echo to %v: %v", to, err)
			return
		}
		if n == len(m) && b[0] != typ && slices.Equal(b[8:n], m[8:]) {
			return
		}
	}
}

// idle measures what the workers take with nothing to do. What else the machine has to
// do makes it more, so the best of a few tries counts.
func idle(t *testing.T, s *server) {
	t.Helper()
	const most, tries = 0.03, 3
	for try := 0; ; try++ {
		share := idleShare(t, s)
		t.Logf("idle: %.1f%% of a processor for each worker", 100*share)
		if share <= most {
			return
		}
		if try == tries {
			t.Errorf("idle workers take %.1f%% of a processor each, at most 3%%", 100*share)
			return
		}
	}
}

// idleShare returns the share of a processor that an idle worker takes.
func idleShare(t *testing.T, s *server) float64 {
	t.Helper()
	var pids []int
	for _, w := range s.owner().Workers {
		pids = append(pids, w.PID)
	}
	before, err := proc.CPU(pids...)
	if err != nil {
		t.Fatal(err)
	}
	const span = 2 * time.Second
	<-time.After(span) // nothing happens in it: that is the matter
	after, err := proc.CPU(pids...)
	if err != nil {
		t.Fatal(err)
	}
	return float64(after-before) / float64(span) / float64(len(pids))
}
