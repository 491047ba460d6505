package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// inbox is the rings that one generation fills for this worker.
type inbox struct {
	*ring.Inbox
	region *shm.Region
	epoch  uint32
	slot   int
}

// ringReader empties the rings of its worker. It belongs to the worker's first
// lane, except for what the control goroutine steers it by.
type ringReader struct {
	inboxes atomic.Pointer[[]inbox] // newest epoch first; replaced as a whole
	release atomic.Uint32           // window to release, 0: none

	mu      sync.Mutex
	retired []*shm.Region // of inboxes that were replaced; guarded by mu

	seen     *[]inbox
	slots    []int // by ring of the drainer: the slot that fills it
	drainer  *ring.Drainer
	released uint32
	damage   uint64 // seen so far in the rings of seen
}

// add makes the reader read in, from the next turn of its lane on, in place of
// what it reads from that slot. Only one goroutine may call it.
func (r *ringReader) add(in inbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append(r.without(in.slot), in)
	slices.SortFunc(list, func(a, b inbox) int { return int(b.epoch) - int(a.epoch) })
	r.inboxes.Store(&list)
}

// remove makes the reader no longer read what comes from a slot. The same goroutine
// may call it.
func (r *ringReader) remove(slot int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.without(slot)
	r.inboxes.Store(&list)
}

// without retires what is read from a slot, and returns the rest. ringReader.mu is
// held.
func (r *ringReader) without(slot int) (list []inbox) {
	old := r.inboxes.Load()
	if old == nil {
		return nil
	}
	for _, o := range *old {
		if o.slot == slot {
			r.retired = append(r.retired, o.region)
		} else {
			list = append(list, o)
		}
	}
	return list
}

// look takes over a new list of inboxes.
func (r *ringReader) look() {
	if r.inboxes.Load() == r.seen {
		return
	}
	r.mu.Lock()
	list, retired := r.inboxes.Load(), r.retired // none of these is in list
	r.retired = nil
	r.mu.Unlock()
	r.seen = list
	r.slots = nil
	var from []*ring.Consumer
	for _, in := range *list {
		for _, c := range in.Consumers() {
			from = append(from, c)
			r.slots = append(r.slots, in.slot)
		}
	}
	r.drainer = ring.NewDrainer(from)
	for _, old := range retired { // nothing else uses it; a failure to unmap has no remedy
		_ = old.Close()
	}
}

// serve serves one burst from the rings, and reports whether there was one.
func (r *ringReader) serve(l *lane) bool {
	r.look()
	if r.seen == nil {
		return false
	}
	for _, in := range *r.seen {
		in.Awake()
	}
	// The order to release is looked at before the rings: what was in them when it
	// came is still seen.
	wid := r.release.Load()
	l.prepare()
	n := r.drainer.Fill(&l.in, &l.sources)
	if n == 0 {
		if wid != r.released {
			// The window's producers have passed a boundary since HANDED was
			// written, so the rings stay empty.
			r.released = wid
			l.worker.view.SetReleased(wid)
		}
		return false
	}
	for i := range n {
		slot := r.slots[l.sources[i].Ring]
		if slot == l.worker.slot {
			l.block.Add(counters.FromSibling, 1)
		} else {
			l.block.Add(counters.ForwardedFrom+counters.ID(slot), 1)
		}
	}
	l.answerRecords(counters.ServedRing, counters.DroppedRing)
	r.drainer.Release()
	r.noteDamage(l)
	return true
}

// noteDamage logs when a ring held what no producer of ours writes: an unknown
// number of datagrams is lost then.
func (r *ringReader) noteDamage(l *lane) {
	damage := uint64(0)
	for _, in := range *r.seen {
		for _, c := range in.Consumers() {
			damage += c.Damaged()
		}
	}
	if damage > r.damage {
		l.log.Error("damaged ring: datagrams are lost", "lane", l.global, "times", damage-r.damage)
	}
	r.damage = damage
}

// sleep reports whether the rings allow the lane to wait: from then on whoever
// fills them wakes it.
func (r *ringReader) sleep() bool {
	r.look()
	if r.seen == nil {
		return true
	}
	for _, in := range *r.seen {
		if !in.PrepareSleep() {
			return false
		}
	}
	return r.release.Load() == r.released
}

// answerRecords serves the datagrams in l.in, which came out of rings: those of
// one socket in a row together.
func (l *lane) answerRecords(served, dropped counters.ID) {
	b, g := &l.in, &l.group
	if l.nic != nil {
		l.nic.answerRecords(b, served, dropped)
		return
	}
	for at := 0; at < b.N; {
		id := b.Packets[at].Socket
		g.N = 0
		for ; at < b.N && b.Packets[at].Socket == id; at++ {
			g.Packets[g.N] = b.Packets[at]
			g.N++
		}
		g.Now = mono.Now()
		s := l.worker.socket(id)
		if s == nil { // the reader has it by another address: see socketOf
			s = l.worker.socketOf(&g.Packets[0].Local)
		}
		if s != nil {
			l.answerVia(s, l.handlers[s.Listener], g, served, dropped)
		} else {
			l.block.Add(dropped+counters.ID(counters.DropNoSocket), uint64(g.N))
		}
	}
}

// takeBack serves what dead owners have left in the rings that this lane fills.
// It was counted as forwarded when it went in, so it counts as served from a
// ring.
func (l *lane) takeBack(from []*ring.Consumer) {
	d := ring.NewDrainer(from)
	for {
		l.prepare()
		n := d.Fill(&l.in, &l.sources)
		if n == 0 {
			return
		}
		l.block.Add(counters.TakenBack, uint64(n))
		l.answerRecords(counters.ServedRing, counters.DroppedRing)
		d.Release()
	}
}

// ringBytes is the size of each ring between two generations: 100 ms at
// 100,000 datagrams of 60 octets a second, and room for the largest datagram.
const ringBytes = 1 << 20

// RingBytes returns the size of each ring in a matrix of lanes x workers: less
// where there are many, so that a window does not cost more than about 64 MiB.
func RingBytes(lanes, workers int) int {
	n := ringBytes
	for n > 256<<10 && n*lanes*workers > 64<<20 {
		n /= 2
	}
	return n
}

var _ = [1]struct{}{}[directory.MaxSlots-counters.NumSlots] // one counter for each slot
