package dispatch

import (
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// Setup is what one lane dispatches with.
type Setup struct {
	Slot   int // of this generation
	Worker int // of this generation; the owner it records
	Block  *counters.Block

	// Table is the flow table of this generation. Those of all others, see Know,
	// share its secret.
	Table *table.Table

	// Siblings are the rings that this lane fills for the workers of its own
	// generation, by worker; nil where there are none.
	Siblings []*ring.Producer

	// Wake hastens the worker, when its reader sleeps.
	Wake func(slot, worker int)
}

// Lane dispatches for one lane. It belongs to that lane's goroutine.
type Lane struct {
	Setup
	secret flow.Secret

	tables  [directory.MaxSlots]*table.Table     // of the generations it knows; nil: none
	epochs  [directory.MaxSlots]uint32           // theirs
	outlets [directory.MaxSlots][]*ring.Producer // the rings it fills, by slot and worker

	drains [directory.MaxSlots - 1]drain // the first n, newest epoch first
	n      int
	gone   [directory.MaxSlots]uint64 // dead workers by slot, a bit each; of this generation those, too, that are not back yet

	hashes [burst.Max]uint64          // of the burst
	pushed [directory.MaxSlots]uint64 // rings that hold unpublished records, by worker
	back   []*ring.Consumer           // rings of dead owners that hold records
}

// drain is a generation whose window is open.
type drain struct {
	table  *table.Table
	slot   int
	epoch  uint32
	window uint32
}

// New returns the dispatcher of one lane. It knows of no other generation until
// Know and Look.
func New(s Setup) *Lane {
	l := &Lane{Setup: s, secret: s.Table.Secret()}
	l.tables[s.Slot], l.outlets[s.Slot] = s.Table, s.Siblings
	return l
}

// Know gives the lane the flow table of the generation with this epoch, in another
// slot, and the rings to its workers, which it fills. It counts from the next Look
// on.
func (l *Lane) Know(slot int, epoch uint32, t *table.Table, outlets []*ring.Producer) {
	l.epochs[slot], l.tables[slot], l.outlets[slot] = epoch, t, outlets
	l.forgetDrains()
}

// Forget drops what Know gave. It is not used any more when Forget returns.
func (l *Lane) Forget(slot int) { l.Know(slot, 0, nil, nil) }

func (l *Lane) forgetDrains() { l.n, l.back = 0, l.back[:0] }

// Look reads the generation slots: which of them have a window open, and which
// workers are dead. The lane calls it at a boundary whenever they have changed.
func (l *Lane) Look(dir *directory.Directory) {
	l.forgetDrains()
	own := dir.Generation(l.Slot)
	for slot := range directory.MaxSlots {
		g := dir.Generation(slot)
		l.gone[slot] = 0
		if g.State == directory.Free {
			continue
		}
		for w := range g.Workers {
			v := dir.Worker(slot, w)
			if v.IsGone() || slot == l.Slot && v.Absent() { // its next process does not serve yet
				l.gone[slot] |= 1 << w
			}
		}
		if slot == l.Slot || g.Window == 0 || g.Epoch != l.epochs[slot] {
			continue
		}
		if g.Epoch > own.Epoch && g.State < directory.Draining {
			continue // a newer one counts when it has had to give the wire back
		}
		l.lookAtDead(slot)
		at := l.n
		for at > 0 && l.drains[at-1].epoch < g.Epoch {
			l.drains[at] = l.drains[at-1]
			at--
		}
		l.drains[at] = drain{table: l.tables[slot], slot: slot, epoch: g.Epoch, window: g.Window}
		l.n++
	}
}

// lookAtDead finds what workers of a draining generation have died over. They
// are not started again, so nobody else reads their rings.
func (l *Lane) lookAtDead(slot int) {
	for w, out := range l.outlets[slot] {
		if l.gone[slot]>>w&1 == 0 {
			continue
		}
		if c := out.TakeBack(); !c.Empty() {
			l.back = append(l.back, c)
		}
	}
}

// TakenBack returns, until the next Look, the rings whose records fall to this
// lane because their owner is dead. They are to be served here without another
// look.
func (l *Lane) TakenBack() []*ring.Consumer { return l.back }

// Split gives the datagrams of b that belong to others into their rings, and
// leaves in b, in their order, those to serve here. It counts the former.
func (l *Lane) Split(b *burst.Burst) {
	now := uint32(b.Now / int64(time.Millisecond))
	l.fetch(b)
	kept := 0
	for i := range b.N {
		if !l.serveHere(&b.Packets[i], l.hashes[i], b.Now, now) {
			continue
		}
		if kept != i {
			b.Packets[kept], b.Packets[i] = b.Packets[i], b.Packets[kept]
		}
		kept++
	}
	if kept != b.N {
		l.publish()
		b.N = kept
	}
}

// fetch hashes the flows of b, and brings where the tables have them into the
// cache: the lookups that follow would wait for one after the other.
func (l *Lane) fetch(b *burst.Burst) {
	for i := range b.N {
		p := &b.Packets[i]
		p.Hash = flow.Hash(&l.secret, flow.UDP, &p.Local, &p.Remote)
		l.hashes[i] = p.Hash
	}
	hashes := l.hashes[:b.N]
	l.Table.Fetch(hashes)
	for i := range l.n {
		l.drains[i].table.Fetch(hashes)
	}
}

// serveHere applies the rules to one datagram.
func (l *Lane) serveHere(p *burst.Packet, hash uint64, stamp int64, now uint32) bool {
	var outcome table.Outcome
	var owner int
	if l.n == 0 {
		outcome, owner = l.Table.Record(hash, l.Worker, now)
	} else if outcome, owner = l.Table.Refresh(hash, l.Worker, now); outcome == table.Absent {
		for i := range l.n {
			d := &l.drains[i]
			if w, alive := d.table.Find(hash, now); alive && w < len(l.outlets[d.slot]) && d.table.Valid(w, d.window) {
				if l.push(d.slot, w, p, stamp) {
					d.table.Touch(hash, now)
					l.Block.Add(counters.ForwardedTo+counters.ID(d.slot), 1)
				}
				return false
			}
		}
		outcome, owner = l.Table.Record(hash, l.Worker, now)
	}
	switch outcome {
	case table.Sibling:
		if l.gone[l.Slot]>>owner&1 != 0 || owner >= len(l.outlets[l.Slot]) {
			l.Table.Adopt(hash, owner, l.Worker, now)
			return true
		}
		if l.push(l.Slot, owner, p, stamp) {
			l.Table.Touch(hash, now)
			l.Block.Add(counters.Sibling, 1)
		}
		return false
	case table.NotRecorded:
		l.Block.Add(counters.NotRecorded, 1)
	}
	return true
}

// push puts p into the ring of a worker. A full ring drops p, and counts it.
func (l *Lane) push(slot, worker int, p *burst.Packet, stamp int64) bool {
	if !l.outlets[slot][worker].Push(p, stamp, 0) {
		l.Block.Add(counters.Dropped+counters.ID(counters.DropRingFull), 1)
		return false
	}
	l.pushed[slot] |= 1 << worker
	return true
}

// publish shows the consumers what was pushed, and wakes those that sleep.
func (l *Lane) publish() {
	for slot := range l.pushed {
		for worker := 0; l.pushed[slot] != 0; worker++ {
			if l.pushed[slot]>>worker&1 == 0 {
				continue
			}
			l.pushed[slot] &^= 1 << worker
			out := l.outlets[slot][worker]
			out.Publish()
			if out.NeedsWake() {
				l.Wake(slot, worker)
			}
		}
	}
}

// Owner returns who serves a flow that was recorded; known is false where none was.
// now is a mono.Now.
func (l *Lane) Owner(local, remote *burst.Endpoint, now int64) (slot, worker int, known bool) {
	hash, ms := flow.Hash(&l.secret, flow.UDP, local, remote), uint32(now/int64(time.Millisecond))
	if w, alive := l.Table.Find(hash, ms); alive {
		return l.Slot, w, l.gone[l.Slot]>>w&1 == 0
	}
	for i := range l.n {
		d := &l.drains[i]
		if w, alive := d.table.Find(hash, ms); alive && d.table.Valid(w, d.window) {
			return d.slot, w, true
		}
	}
	return 0, 0, false
}
