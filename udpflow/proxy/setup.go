package proxy

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// Options say how a listener treats its flows.
type Options struct {
	Responses     int           // to each datagram; 0: any number
	Requests      int           // datagrams of a client that a flow takes; 0: any number
	Timeout       time.Duration // without a datagram in either direction
	Quarantine    time.Duration // of a socket whose flow may still get answers
	Sources       []netip.Addr  // towards the servers; empty: the kernel chooses
	Transparent   bool          // the source is the client
	ProxyProtocol bool          // a header before the first datagram
	Flows         int           // of all lanes of the worker
	ClientFlows   int           // of all lanes of the worker, and a client
	Recorded      bool          // the flow table has its flows
	Passive       backend.Passive
}

// Listener is what one lane needs to serve a listener.
type Listener struct {
	Options
	Pool    *backend.Pool
	Servers []netip.AddrPort // by member of Pool
}

// Net moves datagrams to and from servers. It belongs to one lane. No method
// blocks.
type Net interface {
	// Dial returns a socket connected to server with a port of its own, from;
	// DialAs returns one with the client's address and port.
	Dial(server netip.AddrPort, source netip.Addr) (fd int, from netip.AddrPort, err error)
	DialAs(server, client netip.AddrPort) (fd int, err error)

	// Watch makes the lane call Ready with conn whenever fd may have received
	// something.
	Watch(fd int, conn int32) error
	Close(fd int)

	// Send sends the payloads of the packets of b that which lists, header before
	// the first, and returns how many went before an error.
	Send(fd int, b *burst.Burst, which []uint8, header []byte) (int, error)

	// Recv appends what fd has received to out, as Reply, as far as there is
	// room. The payloads are valid until out is used again.
	Recv(fd int, out *burst.Burst) (int, error)
}

// Client is the clients' side of a lane.
type Client interface {
	// Answer sends the answers in out through a listener's socket, and returns how
	// many the kernel did not take.
	Answer(socket uint32, out *burst.Burst) (unsent uint64)

	// Refuse tells a client by ICMP that nobody serves local.
	Refuse(local, remote *burst.Endpoint)

	// Listener returns the listener that a socket is of, -1 if there is none.
	Listener(socket uint32) int
}

// Group is what the lanes of a worker share.
type Group struct {
	lanes    []*Lane
	flows    []atomic.Int64 // by listener
	clients  []census       // by listener
	sockets  atomic.Int64   // towards servers
	most     int64          // of sockets
	handoffs *ring.Rings    // from each lane to each; nil: there is one lane
	wake     func(lane int)
}

// handoffBytes is the size of the ring from one lane to another: enough for the
// largest datagram.
const handoffBytes = 256 << 10

// NewGroup returns the group of a worker. flows are the limits of its listeners,
// 0 of those that are no proxies, sockets is how many may be open towards servers.
// wake hastens a lane.
func NewGroup(lanes int, flows []int, sockets int, wake func(lane int)) (*Group, error) {
	g := &Group{
		lanes: make([]*Lane, lanes), flows: make([]atomic.Int64, len(flows)), clients: make([]census, len(flows)),
		most: int64(sockets), wake: wake,
	}
	for i, n := range flows {
		if n > 0 {
			g.clients[i] = newCensus(n)
		}
	}
	if lanes == 1 {
		return g, nil
	}
	var err error
	g.handoffs, err = ring.Format(shm.Heap(ring.RegionSize(lanes, lanes, handoffBytes)), lanes, lanes, handoffBytes)
	return g, err
}

// Open returns how many flows there are, and for how long, from now (mono.Millis)
// on, a socket is still in quarantine: while there is any of it, answers may
// come. Any goroutine may ask.
func (g *Group) Open(now uint32) (flows int, rest time.Duration) {
	for i := range g.flows {
		flows += int(g.flows[i].Load())
	}
	for _, l := range g.lanes {
		if at := l.restUntil.Load(); at != 0 {
			rest = max(rest, time.Duration(int32(at-now))*time.Millisecond)
		}
	}
	return flows, rest
}

// Setup is what a lane is made of.
type Setup struct {
	Group     *Group
	Lane      int // in the worker
	Worker    int // as the flow table names it
	Listeners []*Listener
	Table     *table.Table
	Ports     *backend.Ports
	Block     *counters.Block
	Net       Net
	Client    Client
	NoSocket  func(err error) // called when a flow was refused for want of a socket
	Idle      func()          // called when the last flow has ended
	Now       uint32          // mono.Millis
}
