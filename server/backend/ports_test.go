package backend

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/dnsapp/dnsapp/server/shm"
)

func newPorts(t *testing.T) *Ports {
	t.Helper()
	r, err := Format(shm.Heap(RegionSize))
	if err != nil {
		t.Fatal(err)
	}
	return r.Ports()
}

// A port is fresh unless somebody has it, or had it and did not release it.
func TestPorts(t *testing.T) {
	p := newPorts(t)
	claim := func(at string, want bool) Claim {
		t.Helper()
		c, fresh := p.Claim(netip.MustParseAddrPort(at))
		if fresh != want {
			t.Errorf("%s is fresh: %v, want %v", at, fresh, want)
		}
		return c
	}
	a := claim("192.0.2.1:4000", true)
	claim("192.0.2.1:4001", true)
	b := claim("192.0.2.2:4000", true)
	claim("[2001:db8::1]:4000", true)
	claim("192.0.2.1:4000", false) // its owner was killed
	p.Release(a)
	claim("192.0.2.2:4000", false)
	claim("192.0.2.1:4000", true)
	p.Release(b)
	claim("192.0.2.2:4000", true)
	if n := p.inUse(); n != 3 {
		t.Errorf("%d planes for three addresses", n)
	}
}

// What there is no room for is fresh, and releasing it releases nobody else's.
func TestPortsOfManyAddresses(t *testing.T) {
	p := newPorts(t)
	at := func(i int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:4000", i)) }
	for i := range portPlanes {
		if _, fresh := p.Claim(at(i)); !fresh {
			t.Errorf("%v is not fresh", at(i))
		}
	}
	for range 2 {
		c, fresh := p.Claim(at(portPlanes))
		if !fresh || c != (Claim{}) {
			t.Errorf("claim %v, fresh %v, where there is no room", c, fresh)
		}
		p.Release(c)
	}
	for i := range portPlanes {
		if _, fresh := p.Claim(at(i)); fresh {
			t.Errorf("%v is fresh, and was not released", at(i))
		}
	}
}

// Processes that claim the same port of different addresses do not meet.
func TestPortsAreConcurrent(t *testing.T) {
	p := newPorts(t)
	var all sync.WaitGroup
	for i := range portPlanes {
		at := netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:4000", i))
		all.Go(func() {
			for range 5000 {
				c, fresh := p.Claim(at)
				if !fresh || c == (Claim{}) {
					t.Errorf("%v: claim %v, fresh %v", at, c, fresh)
					return
				}
				p.Release(c)
			}
		})
	}
	all.Wait()
}
