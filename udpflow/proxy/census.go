package proxy

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

// census counts the flows of each client at a listener, for all lanes of a worker.
// It takes no lock and no memory as clients come and go.
//
// A word is 40 bits of the client's hash and the number of its flows; one of zero
// flows is free. Two lanes that begin the first flows of a client at once may take
// two words for it, so all within reach count.
type census struct {
	words []atomic.Uint64
}

const (
	censusReach = 32 // words at which a client may be
	censusBits  = 24 // of the number of flows
	censusMask  = 1<<censusBits - 1
)

// newCensus returns one for so many flows: each may be of another client.
func newCensus(flows int) census {
	n := 2 * censusReach
	for n < flows {
		n *= 2
	}
	return census{make([]atomic.Uint64, n)}
}

// begin counts a flow of client, of those that have at most limit of them. It
// reports whether the client has room for it, and whether it was counted: there may
// be no word for a client, which is then without a limit of its own.
func (c *census) begin(client uint64, limit int) (ok, counted bool) {
	for {
		flows, mine, free := 0, -1, -1
		for i := range censusReach {
			at := c.at(client, i)
			switch v := c.words[at].Load(); {
			case v&censusMask == 0:
				if free < 0 {
					free = at
				}
			case v>>censusBits == client>>censusBits:
				mine = at
				flows += int(v & censusMask)
			}
		}
		if flows >= limit || flows == censusMask {
			return false, false
		}
		if mine < 0 {
			mine = free
		}
		if mine < 0 {
			return true, false
		}
		v := c.words[mine].Load()
		next := v + 1
		if v&censusMask == 0 {
			next = client&^censusMask | 1
		} else if v>>censusBits != client>>censusBits {
			continue // it has become another's
		}
		if c.words[mine].CompareAndSwap(v, next) {
			return true, true
		}
	}
}

// end counts the end of a flow that was counted.
func (c *census) end(client uint64) {
	for i := 0; ; i++ {
		w := &c.words[c.at(client, i%censusReach)]
		v := w.Load()
		if v&censusMask != 0 && v>>censusBits == client>>censusBits && w.CompareAndSwap(v, v-1) {
			return
		}
	}
}

// at returns where word i of a client's reach is.
func (c *census) at(client uint64, i int) int {
	return (int(client&censusMask) + i) & (len(c.words) - 1)
}

// clientOf returns the hash of what the flows of a client are counted by: an IPv4
// address, or the first 64 bits of an IPv6 one, for a host has all of those.
func clientOf(s *flow.Secret, e *burst.Endpoint) uint64 {
	client := burst.Endpoint{IP: e.IP}
	if !e.Is4() {
		binary.BigEndian.PutUint64(client.IP[8:], 0)
	}
	return flow.Hash(s, flow.UDP, &burst.Endpoint{}, &client)
}
