package dispatch

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	workers = 3
	lanes   = 2 // of a worker
	idle    = 10 * time.Second
	start   = 1000 * time.Second // the mono time at which every test begins
)

var secret = flow.Secret{11, 12}

// world is the shared memory of one instance, on the heap.
type world struct {
	t      testing.TB
	dir    *directory.Directory
	blocks *counters.Set
	tables [directory.MaxSlots]*table.Table
	now    time.Duration
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: start}
	var err error
	if w.dir, err = directory.Format(shm.Heap(directory.RegionSize)); err != nil {
		t.Fatal(err)
	}
	if w.blocks, err = counters.Format(shm.Heap(counters.RegionSize)); err != nil {
		t.Fatal(err)
	}
	return w
}

// open puts an active generation into slot. Generations are opened in the order
// of their epochs.
func (w *world) open(slot int) {
	w.t.Helper()
	if err := w.dir.Open(slot, w.dir.NewEpoch(), workers, lanes, nil); err != nil {
		w.t.Fatal(err)
	}
	w.dir.SetState(slot, directory.Active)
	var err error
	if w.tables[slot], err = table.Format(shm.Heap(table.RegionSize(1024)), 1024, idle, secret); err != nil {
		w.t.Fatal(err)
	}
}

// drain makes the generation in slot publish its flows in a new window.
func (w *world) drain(slot int) (wid uint32) {
	w.t.Helper()
	wid = w.dir.NewWindow()
	w.dir.SetWindow(slot, wid)
	for i := range workers {
		w.header(slot, i, table.Publishing, wid)
	}
	w.dir.SetState(slot, directory.Draining)
	return wid
}

func (w *world) header(slot, worker int, st table.State, wid uint32) {
	w.t.Helper()
	if err := w.tables[slot].SetHeader(worker, st, wid); err != nil {
		w.t.Fatal(err)
	}
}

// rings makes the rings from the lanes of one generation to the workers of
// another, or of the same.
func (w *world) rings(bytes int) *ring.Rings {
	w.t.Helper()
	r, err := ring.Format(shm.Heap(ring.RegionSize(workers*lanes, workers, bytes)), workers*lanes, workers, bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// lane is a dispatcher and all that a test wants to see of it.
type lane struct {
	*Lane
	w     *world
	wakes []string // "slot/worker" of each call of Wake
	rings [directory.MaxSlots]*ring.Rings
}

// lane returns a lane of a worker of the generation in slot, with rings to the
// workers of these slots.
func (w *world) lane(slot, worker int, to ...int) *lane {
	w.t.Helper()
	l := &lane{w: w}
	s := Setup{
		Slot: slot, Worker: worker, Block: w.blocks.Block(slot, worker*lanes), Table: w.tables[slot],
		Wake: func(slot, worker int) { l.wakes = append(l.wakes, fmt.Sprintf("%d/%d", slot, worker)) },
	}
	var outlets [directory.MaxSlots][]*ring.Producer
	for _, consumer := range to {
		l.rings[consumer] = w.rings(64 << 10)
		for i := range workers {
			outlets[consumer] = append(outlets[consumer], l.rings[consumer].Producer(worker*lanes, i))
		}
	}
	s.Siblings = outlets[slot]
	l.Lane = New(s)
	for _, consumer := range to {
		if consumer != slot {
			l.Know(consumer, w.dir.Generation(consumer).Epoch, w.tables[consumer], outlets[consumer])
		}
	}
	l.Look(w.dir)
	return l
}

func (w *world) millis() uint32 { return uint32(w.now / time.Millisecond) }

// client is the endpoint of the i-th client.
func client(i int) burst.Endpoint {
	return burst.EndpointOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 40000))
}

var local = burst.EndpointOf(netip.MustParseAddrPort("192.0.2.1:5399"))

func hashOf(i int) uint64 {
	remote := client(i)
	return flow.Hash(&secret, flow.UDP, &local, &remote)
}

// own records the flow of the i-th client as one of worker's, with two packets.
func (w *world) own(slot, worker, i int) {
	w.t.Helper()
	for range 2 {
		if o, owner := w.tables[slot].Record(hashOf(i), worker, w.millis()); o != table.Mine || owner != worker {
			w.t.Fatalf("recording flow %d: %v of %d", i, o, owner)
		}
	}
}

// owner returns whose flow the i-th client's is, -1 if it is not alive.
func (w *world) owner(slot, i int) int {
	if worker, ok := w.tables[slot].Find(hashOf(i), w.millis()); ok {
		return worker
	}
	return -1
}

// burst returns one datagram of each of these clients, numbered by its place.
func (w *world) burst(clients ...int) *burst.Burst {
	b := &burst.Burst{N: len(clients), Now: int64(w.now)}
	for n, c := range clients {
		id := make([]byte, 8)
		binary.BigEndian.PutUint32(id, uint32(c))
		binary.BigEndian.PutUint32(id[4:], uint32(n))
		b.Packets[n] = burst.Packet{Payload: id, Remote: client(c), Local: local, Socket: 17, IfIndex: 3, Reply: make([]byte, 0, 8+n)}
	}
	return b
}

// name says which client and which place in its burst a datagram had.
func name(p *burst.Packet) string {
	return fmt.Sprintf("%d#%d", binary.BigEndian.Uint32(p.Payload), binary.BigEndian.Uint32(p.Payload[4:]))
}

// kept returns what is left in b.
func kept(b *burst.Burst) (names []string) {
	for i := range b.N {
		names = append(names, name(&b.Packets[i]))
	}
	return names
}

// got reads the ring from the lane to a worker of slot.
func (l *lane) got(slot, worker int) (names []string) {
	c := l.rings[slot].Consumer(l.Worker*lanes, worker)
	var p burst.Packet
	var m ring.Meta
	for tail := c.Tail(); c.Next(tail, &p, &m); {
		if p.Socket != 17 || p.IfIndex != 3 || p.Local != local || m.Rx != int64(l.w.now) {
			l.w.t.Errorf("record of %s: socket %d, interface %d, local %v, received at %d", name(&p), p.Socket, p.IfIndex, p.Local.AddrPort(), m.Rx)
		}
		names = append(names, name(&p))
	}
	if c.Damaged() != 0 {
		l.w.t.Error("the ring is damaged")
	}
	c.Release()
	return names
}

// counted runs f and returns every counter of the lane that it changed.
func (l *lane) counted(f func()) map[counters.ID]uint64 {
	last := counters.LatencyID(counters.TCP, counters.NumClasses-1, 1<<62)
	before := make([]uint64, last+1)
	for id := range before {
		before[id] = l.Block.Load(counters.ID(id))
	}
	f()
	delta := make(map[counters.ID]uint64)
	for id := range before {
		if d := l.Block.Load(counters.ID(id)) - before[id]; d != 0 {
			delta[counters.ID(id)] = d
		}
	}
	return delta
}
