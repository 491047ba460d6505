package backend

import (
	"net/netip"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/shm"
)

// Ports is the ports of this host that flows leave from, over all processes. A
// worker claims each one that the kernel gives it and releases it when it has
// rested. One that is killed releases nothing: whoever gets such a port next learns
// that answers for somebody else may still come.
//
// A word is the tag of an address. The words of a port, one of each plane, are the
// addresses from which it is in use; planes are taken into use as they are needed,
// for a page that nobody has looked at takes no memory.
type Ports struct {
	planes *atomic.Uint32 // that are in use, at most portPlanes
	tags   []atomic.Uint32
}

const (
	portPlanes = 16 // addresses with the same port at a time
	numPorts   = 1 << 16
)

// Ports returns the ports in r.
func (r *Region) Ports() *Ports {
	return &Ports{&r.head.planes, shm.ViewSlice[atomic.Uint32](r.region, portOffset, portPlanes*numPorts)}
}

// Claim names a port of an address. The zero Claim is of none.
type Claim struct {
	tag  uint32
	port uint16
}

// Claim claims a port that the kernel has just given to this process alone, and
// reports whether it is fresh: whoever had it before has released it. If too many
// addresses have it, it is fresh and nobody's.
func (p *Ports) Claim(at netip.AddrPort) (c Claim, fresh bool) {
	c = Claim{tagOf(at.Addr()), at.Port()}
	for {
		n := p.inUse()
		var free *atomic.Uint32
		for plane := range n {
			switch w := p.word(plane, c.port); w.Load() {
			case c.tag:
				return c, false
			case 0:
				if free == nil {
					free = w
				}
			}
		}
		switch {
		case free != nil:
			if free.CompareAndSwap(0, c.tag) {
				return c, true
			}
		case n == portPlanes:
			return Claim{}, true
		default:
			p.planes.CompareAndSwap(uint32(n), uint32(n+1))
		}
	}
}

// Release gives a port back that has rested. Its socket is closed after that, not
// before.
func (p *Ports) Release(c Claim) {
	if c.tag == 0 {
		return
	}
	for plane := range p.inUse() {
		if p.word(plane, c.port).CompareAndSwap(c.tag, 0) {
			return
		}
	}
}

func (p *Ports) inUse() int { return int(min(p.planes.Load(), portPlanes)) }

func (p *Ports) word(plane int, port uint16) *atomic.Uint32 { return &p.tags[plane*numPorts+int(port)] }

// tagOf returns the FNV-1a hash of a, 1 in place of 0: the same in every process.
func tagOf(a netip.Addr) uint32 {
	h := uint32(2166136261)
	for _, b := range a.As16() {
		h = (h ^ uint32(b)) * 16777619
	}
	return max(h, 1)
}
