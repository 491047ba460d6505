package proxy

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

// flows returns what c counts for a client.
func (c *census) flows(client uint64) (n int) {
	for i := range censusReach {
		if v := c.words[c.at(client, i)].Load(); v>>censusBits == client>>censusBits {
			n += int(v & censusMask)
		}
	}
	return n
}

// It counts as a map does.
func TestCensusCounts(t *testing.T) {
	const limit = 3
	rnd := rand.New(rand.NewPCG(1, 2))
	c, model := newCensus(1000), map[uint64]int{}
	clients := make([]uint64, 400)
	for i := range clients {
		clients[i] = rnd.Uint64()
	}
	for range 100_000 {
		client := clients[rnd.IntN(len(clients))]
		if model[client] > 0 && rnd.IntN(2) == 0 {
			c.end(client)
			model[client]--
			continue
		}
		ok, counted := c.begin(client, limit)
		if ok != (model[client] < limit) || counted != ok {
			t.Fatalf("a client of %d flows may have one more: %v, counted %v", model[client], ok, counted)
		}
		if ok {
			model[client]++
		}
	}
	for client, n := range model {
		if got := c.flows(client); got != n {
			t.Errorf("a client has %d flows, counted %d", n, got)
		}
	}
}

// A client that finds no word is served, and not counted.
func TestCensusIsFull(t *testing.T) {
	c := newCensus(0)
	counted := 0
	for n := range uint64(10_000) {
		ok, is := c.begin(n<<censusBits|n&censusMask, 1)
		if !ok {
			t.Fatalf("client %d is refused", n)
		}
		if is {
			counted++
		}
	}
	if counted != len(c.words) {
		t.Errorf("%d of %d words are used", counted, len(c.words))
	}
}

// Lanes that begin and end flows of the same clients lose none.
func TestCensusIsConcurrent(t *testing.T) {
	c := newCensus(0)
	clients := make([]uint64, 8)
	for i := range clients {
		clients[i] = uint64(i+1)<<censusBits | 5 // all in one place
	}
	var lanes sync.WaitGroup
	for lane := range uint64(4) {
		lanes.Go(func() {
			rnd := rand.New(rand.NewPCG(lane, 0))
			var open []uint64
			for range 20_000 {
				if len(open) > 0 && rnd.IntN(2) == 0 {
					c.end(open[len(open)-1])
					open = open[:len(open)-1]
				} else if client := clients[rnd.IntN(len(clients))]; true {
					if ok, counted := c.begin(client, 10); ok && counted {
						open = append(open, client)
					}
				}
			}
			for _, client := range open {
				c.end(client)
			}
		})
	}
	lanes.Wait()
	for _, client := range clients {
		if n := c.flows(client); n != 0 {
			t.Errorf("%d flows are left of a client that has none", n)
		}
	}
}

// A client is an IPv4 address, or a network of 64 bits.
func TestClientOf(t *testing.T) {
	secret := flow.NewSecret()
	of := func(s string) uint64 {
		e := burst.EndpointOf(netip.MustParseAddrPort(s))
		return clientOf(&secret, &e)
	}
	if of("192.0.2.1:1") != of("192.0.2.1:2") || of("[2001:db8::1]:1") != of("[2001:db8::ffff:2]:3") {
		t.Error("one client counts as two")
	}
	if of("192.0.2.1:1") == of("192.0.2.2:1") || of("[2001:db8::1]:1") == of("[2001:db8:0:1::1]:1") {
		t.Error("two clients count as one")
	}
}
