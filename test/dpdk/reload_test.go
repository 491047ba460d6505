package dpdk

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// grace is how long a load waits for its last answers.
const grace = 2 * time.Second

// maxLeft is how many octets the workers of one generation may leave in shared memory:
// what the driver has of each process.
const maxLeft = 4 << 10

// generate starts a load, whose end t awaits.
func generate(t *testing.T, c load.UDPConfig) *load.UDP {
	t.Helper()
	g, err := load.StartUDP(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// Over reloads nothing is lost: flows stay with the generation that they began with,
// new ones and DNS go to the new one, and every buffer is accounted for after each.
func TestReloads(t *testing.T) {
	s := start(t, 2, "")
	protocol, err := load.NewDNS([]load.Query{{Name: "generation.dnsapp", Type: 16, Class: 3}, {Name: "www.example.com", Type: 1}, {Name: "none.example.com", Type: 1, Rcode: load.NXDomain}})
	if err != nil {
		t.Fatal(err)
	}
	queries := generate(t, load.UDPConfig{Targets: []netip.AddrPort{dns4, dns6}, Flows: 32, Rate: 4000, Protocol: protocol})
	heap := s.pool().HeapFree
	reloads := rounds(6, 100)
	for n := range reloads {
		old := s.owner().Epoch
		flows := generate(t, load.UDPConfig{Targets: []netip.AddrPort{who4, who6}, Flows: 20, Rate: 1000, Protocol: load.Identify{}})
		large := []*largeFlow{dialLarge(t, who4), dialLarge(t, who6)}
		s.until(commandTimeout, "each flow has begun", func() bool { r := flows.Report(); return r.Answered > 200 })
		for range 3 {
			for _, f := range large {
				f.ask(old)
			}
		}
		s.ctl("reload", "--wait", "commit")
		for range 3 {
			for _, f := range large {
				f.ask(old)
			}
		}
		s.until(commandTimeout, "flows go on after the commit", func() bool { r := flows.Report(); return r.Answered > 800 })
		later := generate(t, load.UDPConfig{Targets: []netip.AddrPort{who4, who6}, Flows: 10, Rate: 500, Protocol: load.Identify{}})
		s.until(commandTimeout, "new flows are served", func() bool { r := later.Report(); return r.Answered > 100 })
		now := s.owner().Epoch
		if r := flows.Stop(grace); r.Exact() != nil || r.Astray(old) != 0 {
			t.Errorf("reload %d: flows of epoch %d: %v, %d astray\n%v", n, old, r.Exact(), r.Astray(old), r)
		}
		if r := later.Stop(grace); r.Exact() != nil || r.Astray(now) != 0 {
			t.Errorf("reload %d: flows of epoch %d: %v, %d astray\n%v", n, now, r.Exact(), r.Astray(now), r)
		}
		s.pool()
	}
	s.until(commandTimeout, "the old generations are gone", func() bool { return len(s.status().Generations) == 1 })
	if now := s.pool().HeapFree; now < heap-reloads*maxLeft {
		t.Errorf("of %d octets of shared memory %d are left after %d reloads", heap, now, reloads)
	} else {
		t.Logf("shared memory: %d octets less", heap-now)
	}
	if r := queries.Stop(grace); r.Exact() != nil || len(r.Epochs()) < reloads {
		t.Errorf("DNS: %v\n%v", r.Exact(), r)
	} else {
		t.Logf("DNS: %v", r)
	}
	if l := s.status().Ledger; l.InHand != 0 || l.RingTaken != l.RingServed || l.Forwarded == 0 || len(l.RingDropped) > 0 {
		t.Errorf("the ledger does not add up: %+v", l)
	}
}

// largeFlow is a flow whose datagrams come in fragments.
type largeFlow struct {
	t *testing.T
	c net.Conn
}

func dialLarge(t *testing.T, at netip.AddrPort) *largeFlow {
	t.Helper()
	c, err := net.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &largeFlow{t, c}
}

// ask asks by 4,000 octets, and wants the answer of a generation.
func (f *largeFlow) ask(epoch uint32) {
	f.t.Helper()
	if _, err := f.c.Write(make([]byte, 4000)); err != nil {
		f.t.Fatal(err)
	}
	_ = f.c.SetReadDeadline(time.Now().Add(grace))
	b := make([]byte, 1500)
	n, err := f.c.Read(b)
	if err != nil {
		f.t.Errorf("a datagram in fragments to %v: %v", f.c.RemoteAddr(), err)
		return
	}
	if tag, err := load.ParseTag(b[:n]); err != nil || tag.Epoch != epoch {
		f.t.Errorf("a datagram in fragments to %v: answered by %+v, %v, and not by epoch %d", f.c.RemoteAddr(), tag, err, epoch)
	}
}
