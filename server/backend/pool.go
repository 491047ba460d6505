package backend

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/mono"
)

// Policy is how a Pool chooses.
type Policy uint8

// The policies.
const (
	RoundRobin Policy = iota // each in turn, by weight
	LeastFlows               // the fewest flows for its weight
	Hash                     // by the client's address, with bounded load
)

// Member is a server of a backend.
type Member struct {
	ID       int    // in the region
	Identity uint64 // what the hash policy knows it by: the same in every generation
	Backup   bool
	MaxFlows int // 0: no limit
}

// Pool is a backend as one lane sees it. It belongs to that lane.
type Pool struct {
	policy  Policy
	slow    time.Duration
	region  *Region
	row     *Row
	members []Member
	servers []*Server
	turns   []int // of the smooth weighted round robin
	shares  []int // of the pick at hand; 0: it cannot take the flow
	ring    []point
	others  []int // flows in the other lanes, as of looked
	looked  uint32
	fresh   bool // looked is valid
	counted bool // numbers of flows matter
}

// NewPool returns the pool of a lane whose flows are counted in row.
func NewPool(policy Policy, slow time.Duration, region *Region, row *Row, members []Member) *Pool {
	p := &Pool{
		policy: policy, slow: slow, region: region, row: row, members: members,
		turns: make([]int, len(members)), others: make([]int, len(members)), shares: make([]int, len(members)),
		counted: policy != RoundRobin,
	}
	for _, m := range members {
		p.servers = append(p.servers, region.Server(m.ID))
		p.counted = p.counted || m.MaxFlows > 0
	}
	if policy == Hash {
		p.makeRing()
	}
	return p
}

// Server returns the words of member i.
func (p *Pool) Server(i int) *Server { return p.servers[i] }

// Begin counts a flow at member i.
func (p *Pool) Begin(i int) { p.add(i, 1) }

// End counts the end of a flow at member i.
func (p *Pool) End(i int) { p.add(i, math.MaxUint32) }

// add changes a word that only this lane writes.
func (p *Pool) add(i int, n uint32) {
	w := &p.row[p.members[i].ID]
	w.Store(w.Load() + n)
}

// lookEvery is how old, in milliseconds, the numbers of other lanes may be.
const lookEvery = 1

// flows returns how many flows member i has.
func (p *Pool) flows(i int) int { return p.others[i] + int(p.row[p.members[i].ID].Load()) }

// look reads how many flows the members have in other lanes.
func (p *Pool) look(now uint32) {
	if !p.counted || p.fresh && mono.Age(now, p.looked) < lookEvery {
		return
	}
	for i, m := range p.members {
		p.others[i] = p.region.Flows(m.ID) - int(p.row[m.ID].Load())
	}
	p.looked, p.fresh = now, true
}

// Pick returns the member for a new flow of a client, whose address is in its
// 16-octet form, at now (mono.Millis): a server that is no backup if one can
// take it. It reports false if none can.
func (p *Pool) Pick(client *[16]byte, now uint32) (i int, ok bool) {
	p.look(now)
	for _, backup := range [...]bool{false, true} {
		total := 0
		for i, m := range p.members {
			p.shares[i] = 0
			if m.Backup != backup || !p.servers[i].Usable(now) || m.MaxFlows > 0 && p.flows(i) >= m.MaxFlows {
				continue
			}
			p.shares[i] = p.servers[i].share(now, p.slow)
			total += p.shares[i]
		}
		if total == 0 {
			continue
		}
		switch p.policy {
		case LeastFlows:
			return p.least(), true
		case Hash:
			return p.hashed(client, total), true
		default:
			return p.turn(total), true
		}
	}
	return 0, false
}

// turn is the smooth weighted round robin: everybody earns its share, the richest
// pays for all.
func (p *Pool) turn(total int) int {
	best := -1
	for i, share := range p.shares {
		if share == 0 {
			p.turns[i] = 0 // no credit for the time that it was away
			continue
		}
		p.turns[i] += share
		if best < 0 || p.turns[i] > p.turns[best] {
			best = i
		}
	}
	p.turns[best] -= total
	return best
}

// least takes the server with the fewest flows for its share, and among equals
// the one whose turn it is.
func (p *Pool) least() int {
	best, total := -1, 0
	for i, share := range p.shares {
		if share == 0 {
			continue
		}
		total += share
		p.turns[i] += share
		if best < 0 {
			best = i
			continue
		}
		mine, its := (p.flows(i)+1)*p.shares[best], (p.flows(best)+1)*share
		if mine < its || mine == its && p.turns[i] > p.turns[best] {
			best = i
		}
	}
	p.turns[best] -= total
	return best
}

// point is where a server stands on the ring.
type point struct {
	at     uint64
	member int
}

// pointsPerWeight makes the shares of equal servers differ by a tenth or so;
// maxPoints bounds the ring of heavy weights.
const (
	pointsPerWeight = 100
	maxPoints       = 1 << 16
)

// makeRing places the servers by their identities alone, so that every lane of
// every generation, and every host, has the same ring.
func (p *Pool) makeRing() {
	total := 0
	for i := range p.members {
		total += max(p.servers[i].Weight(), 1)
	}
	per := max(min(pointsPerWeight, maxPoints/max(total, 1)), 1)
	for i, m := range p.members {
		for n := range uint64(max(p.servers[i].Weight(), 1) * per) {
			p.ring = append(p.ring, point{mix(m.Identity ^ mix(n+1)), i})
		}
	}
	slices.SortFunc(p.ring, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(p.members[a.member].Identity, p.members[b.member].Identity))
	})
}

// Bounded load: no server has more than loadUp/loadDown of its share of the
// flows, so a few heavy clients do not fill one server; what is too much goes on
// to the next one on the ring.
const (
	loadUp   = 5
	loadDown = 4
)

// hashed takes the first server on the ring, from the client's place on, that
// may have one more flow.
func (p *Pool) hashed(client *[16]byte, total int) int {
	all := 1
	for i, share := range p.shares {
		if share > 0 {
			all += p.flows(i)
		}
	}
	at := mix(binary.LittleEndian.Uint64(client[:8]) ^ mix(binary.LittleEndian.Uint64(client[8:])))
	from, _ := slices.BinarySearchFunc(p.ring, at, func(pt point, at uint64) int { return cmp.Compare(pt.at, at) })
	first := -1
	for n := range p.ring {
		i := p.ring[(from+n)%len(p.ring)].member
		share := p.shares[i]
		if share == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		// flows+1 <= ceil(all * share/total * 5/4)
		if p.flows(i) < (all*share*loadUp+total*loadDown-1)/(total*loadDown) {
			return i
		}
	}
	return first
}

// mix is a bijection of 64 bits that spreads every bit over all (the finisher of
// SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Identity returns what the hash policy knows a server by: its name.
func Identity(name string) uint64 {
	h := uint64(len(name))
	for _, c := range []byte(name) {
		h = mix(h ^ uint64(c))
	}
	return bits.RotateLeft64(h, 32)
}
