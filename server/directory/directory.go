package directory

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/dnsapp/dnsapp/internal/step"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/shm"
)

// ErrMoved is returned by an operation on the owner word that lost to another.
var ErrMoved = errors.New("the owner word has moved")

// Directory is the whole region, as the supervisor uses it.
type Directory struct {
	region *shm.Region
	top    *top
}

// Format makes r, a zeroed region of RegionSize, a directory without
// generations.
func Format(r *shm.Region) (*Directory, error) {
	r.Format(shm.KindDirectory, Layout)
	r.Publish()
	return Attach(r)
}

// Attach returns the directory in r. Its errors match shm.ErrLayout.
func Attach(r *shm.Region) (*Directory, error) {
	if err := r.Check(shm.KindDirectory, Layout); err != nil {
		return nil, fmt.Errorf("attaching directory: %w", err)
	}
	if r.Size() < RegionSize {
		return nil, fmt.Errorf("attaching directory: region has %d bytes, needs %d: %w", r.Size(), RegionSize, shm.ErrLayout)
	}
	return &Directory{region: r, top: shm.View[top](r, topOffset)}, nil
}

func (d *Directory) slot(i int) *slot {
	if i < 0 || i >= MaxSlots {
		panic(fmt.Sprintf("directory: no slot %d", i))
	}
	return shm.View[slot](d.region, slotOffset(i))
}

// Owner returns the owner word.
func (d *Directory) Owner() Word {
	step.Read(&d.top.Owner)
	return Word(d.top.Owner.Load())
}

// move changes the owner word from old to next, and reports whether it did.
func (d *Directory) move(old, next Word) bool {
	step.Write(&d.top.Owner)
	return d.top.Owner.CompareAndSwap(uint64(old), uint64(next))
}

// SetOwner gives the wire to epoch without a park: to the first generation, or
// where nothing is handed over.
func (d *Directory) SetOwner(epoch uint32) { d.top.Owner.Store(uint64(Run(epoch))) }

// Park orders every reader to stop, from a RUN word, until deadline
// (mono.Millis, in the future). It returns the park word, which acks must
// equal.
func (d *Directory) Park(deadline uint32) (Word, error) {
	old := d.Owner()
	if old.IsPark() {
		return 0, fmt.Errorf("parking: already %v: %w", old, ErrMoved)
	}
	w := Parked(old.Epoch(), deadline)
	if !d.move(old, w) {
		return 0, fmt.Errorf("parking: %w", ErrMoved)
	}
	return w, nil
}

// Flip gives the wire to epoch, from exactly the park word that was acked.
func (d *Directory) Flip(park Word, epoch uint32) error {
	d.top.FirstReadAt.Store(0)
	if !d.move(park, Run(epoch)) {
		return fmt.Errorf("flipping to epoch %d: now %v: %w", epoch, d.Owner(), ErrMoved)
	}
	return nil
}

// Unpark gives the wire back to the owner that was parked.
func (d *Directory) Unpark(park Word) error { return d.Flip(park, park.Epoch()) }

// NewEpoch returns the next epoch. Epochs are never reused.
func (d *Directory) NewEpoch() uint32 { return d.top.NextEpoch.Add(1) }

// NewWindow returns the next window id.
func (d *Directory) NewWindow() uint32 { return d.top.NextWindow.Add(1) }

// Changed tells the lanes that slots have changed: they look again at their
// next boundary. The setters below call it.
func (d *Directory) Changed() { d.top.Windows.Add(1) }

// Version changes with every change of a slot.
func (d *Directory) Version() uint64 { return d.top.Windows.Load() }

// Open puts a new generation into a free slot, in state Starting.
func (d *Directory) Open(slot int, epoch uint32, workers, lanes int, sockets []uint32) error {
	s := d.slot(slot)
	if st := State(s.State.Load()); st != Free {
		return fmt.Errorf("opening generation slot %d: it is %v", slot, st)
	}
	if workers < 1 || workers > MaxWorkers || lanes < 1 || lanes > MaxLanes || workers*lanes > MaxLanes {
		return fmt.Errorf("opening generation slot %d: %d workers of %d lanes are outside 1..%d workers and %d lanes", slot, workers, lanes, MaxWorkers, MaxLanes)
	}
	for i := range s.Sockets {
		s.Sockets[i].Store(0)
	}
	for _, id := range sockets {
		if id >= MaxSockets {
			return fmt.Errorf("opening generation slot %d: socket id %d is above %d", slot, id, MaxSockets-1)
		}
		s.Sockets[id/64].Or(1 << (id % 64))
	}
	for i := range s.Worker {
		w := &s.Worker[i]
		w.PID.Store(0)
		w.Start.Store(0)
		w.Ready.Store(0)
		w.Gone.Store(0)
		w.Drain.Store(0)
		w.StandIn.Store(uint32(own))
		r := &w.Report
		r.Seq.Store(0)
		r.Reports.Store(0)
		r.Flows.Store(0)
		r.IdleMs.Store(0)
		r.TCP.Store(0)
		r.HalfOpen.Store(0)
		r.Queries.Store(0)
		r.QUIC.Store(0)
		r.Unsent.Store(0)
		r.Released.Store(0)
	}
	for i := range s.Lane {
		s.Lane[i].Ack.Store(0)
	}
	s.Window.Store(0)
	s.Deadline.Store(0)
	s.Epoch.Store(epoch)
	s.Workers.Store(uint32(workers))
	s.Lanes.Store(uint32(lanes))
	s.State.Store(uint32(Starting))
	d.Changed()
	return nil
}

// SetState moves a generation to another state.
func (d *Directory) SetState(slot int, st State) {
	d.slot(slot).State.Store(uint32(st))
	d.Changed()
}

// SetWindow records the id of the window opened against the generation in
// slot; 0 closes it.
func (d *Directory) SetWindow(slot int, wid uint32) {
	d.slot(slot).Window.Store(wid)
	d.Changed()
}

// SetDeadline records when the drain of slot ends, in mono.Millis.
func (d *Directory) SetDeadline(slot int, deadline uint32) { d.slot(slot).Deadline.Store(deadline) }

// Generation describes one slot.
type Generation struct {
	Slot    int
	Epoch   uint32
	State   State
	Window  uint32
	Workers int
	Lanes   int // per worker
	// Deadline is the mono.Millis at which its drain ends. Valid iff Draining.
	Deadline uint32
}

// Generation returns slot i.
func (d *Directory) Generation(i int) Generation {
	s := d.slot(i)
	return Generation{
		Slot:     i,
		Epoch:    s.Epoch.Load(),
		State:    State(s.State.Load()),
		Window:   s.Window.Load(),
		Workers:  min(int(s.Workers.Load()), MaxWorkers),
		Lanes:    min(int(s.Lanes.Load()), MaxLanes),
		Deadline: s.Deadline.Load(),
	}
}

// Lists reports whether the generation in slot i lists the socket.
func (d *Directory) Lists(i int, socket uint32) bool {
	if socket >= MaxSockets {
		return false
	}
	return d.slot(i).Sockets[socket/64].Load()>>(socket%64)&1 != 0
}

// SocketIDs returns the sockets that slot i lists, ascending.
func (d *Directory) SocketIDs(i int) []uint32 {
	var ids []uint32
	s := d.slot(i)
	for w := range s.Sockets {
		for b := s.Sockets[w].Load(); b != 0; b &= b - 1 {
			ids = append(ids, uint32(w*64+bits.TrailingZeros64(b)))
		}
	}
	return ids
}

// Reader returns the slot of the generation that reads the socket while the
// word says epoch: the newest live generation not above epoch that lists it,
// or, if there is none, the oldest live one that does; -1 if no live
// generation lists it, or if the one that is to read it is leaving: its lanes
// may not have seen it yet, so nobody else begins before it has left.
func (d *Directory) Reader(epoch uint32, socket uint32) int {
	reader := d.turn(epoch, socket)
	if reader >= 0 && !State(d.slot(reader).State.Load()).Live() {
		return -1
	}
	return reader
}

// Leftover reports whether what waits on a socket is left to the generation in
// slot, which is leaving, or has left: nobody else reads it now.
func (d *Directory) Leftover(epoch, socket uint32, slot int) bool {
	switch reader := d.turn(epoch, socket); State(d.slot(slot).State.Load()) {
	case Leaving:
		return reader == slot
	case Left:
		return reader < 0
	}
	return false
}

// turn returns the slot whose turn it is to read a socket, though its generation
// may be leaving; -1: no generation lists it that may read.
func (d *Directory) turn(epoch, socket uint32) int {
	newest, oldest := -1, -1
	var newestEpoch, oldestEpoch uint32
	for i := range MaxSlots {
		s := d.slot(i)
		if !State(s.State.Load()).MayRead() || !d.Lists(i, socket) {
			continue
		}
		e := s.Epoch.Load()
		if e <= epoch && (newest < 0 || e > newestEpoch) {
			newest, newestEpoch = i, e
		}
		if oldest < 0 || e < oldestEpoch {
			oldest, oldestEpoch = i, e
		}
	}
	reader := newest
	if reader < 0 {
		reader = oldest
	}
	return reader
}

// Signs changes with every park ack and every answer.
func (d *Directory) Signs() uint32 { return d.top.Signs.Load() }

// AwaitSign waits, for at most limit, until Signs is no longer seen. It may return
// early. See shm.Await.
func (d *Directory) AwaitSign(seen uint32, limit time.Duration) { shm.Await(&d.top.Signs, seen, limit) }

// Gap returns the time between the moment the last lane stopped reading and
// the first receive call after the flip, in nanoseconds; 0 if not known yet.
func (d *Directory) Gap() int64 {
	first, parked := d.top.FirstReadAt.Load(), d.top.ParkedAt.Load()
	if first == 0 || parked == 0 || first < parked {
		return 0
	}
	return int64(first - parked)
}

// WorkerView is one worker's words.
type WorkerView struct {
	d *Directory
	w *worker
	s *slot
}

// Worker returns the words of worker i of the generation in slot.
func (d *Directory) Worker(slot, i int) WorkerView {
	s := d.slot(slot)
	return WorkerView{d: d, w: &s.Worker[i], s: s}
}

// SetProcess records the process that is worker from now on.
func (v WorkerView) SetProcess(pid int, start uint64) {
	v.w.PID.Store(uint64(pid))
	v.w.Start.Store(start)
	v.w.Gone.Store(0)
	v.d.Changed()
}

// PID returns the process id, 0 before the first start.
func (v WorkerView) PID() int { return int(v.w.PID.Load()) }

// SetReady is the worker's word that it can serve.
func (v WorkerView) SetReady(epoch uint32, pid int) {
	v.w.Ready.Store(uint64(epoch)<<32 | uint64(uint32(pid)))
}

// IsReady reports whether this process of this epoch is ready.
func (v WorkerView) IsReady(epoch uint32, pid int) bool {
	return v.w.Ready.Load() == uint64(epoch)<<32|uint64(uint32(pid))
}

// SetGone records that the process is dead (pidfd said so).
func (v WorkerView) SetGone() {
	v.w.Gone.Store(1)
	v.d.Changed()
}

// IsGone reports whether the process is dead.
func (v WorkerView) IsGone() bool { return v.w.Gone.Load() != 0 }

// AskDrain asks the worker to report what it still serves, and returns the
// number that the answering report carries.
func (v WorkerView) AskDrain() uint32 { return v.w.Drain.Add(1) }

// DrainAsked returns the number of the last AskDrain.
func (v WorkerView) DrainAsked() uint32 { return v.w.Drain.Load() }

// Report is what a draining worker still serves.
type Report struct {
	Asked    uint32 // the AskDrain it answers
	Reports  uint32 // how many reports the worker has made
	Flows    uint32 // UDP flows alive
	IdleMs   uint32 // how long ago the newest of them had a packet
	TCP      uint32 // open connections
	HalfOpen uint32
	Queries  uint32 // in flight
	QUIC     uint32
	Unsent   uint64 // bytes
}

// Empty reports whether nothing is left to serve.
func (r Report) Empty() bool {
	return r.Flows == 0 && r.TCP == 0 && r.HalfOpen == 0 && r.Queries == 0 && r.QUIC == 0 && r.Unsent == 0
}

// SetReport publishes a report.
func (v WorkerView) SetReport(r Report) {
	p := &v.w.Report
	p.Flows.Store(r.Flows)
	p.IdleMs.Store(r.IdleMs)
	p.TCP.Store(r.TCP)
	p.HalfOpen.Store(r.HalfOpen)
	p.Queries.Store(r.Queries)
	p.QUIC.Store(r.QUIC)
	p.Unsent.Store(r.Unsent)
	p.Reports.Add(1)
	p.Seq.Store(r.Asked)
}

// Report returns the last report.
func (v WorkerView) Report() Report {
	p := &v.w.Report
	asked := p.Seq.Load()
	return Report{
		Asked: asked, Reports: p.Reports.Load(), Flows: p.Flows.Load(), IdleMs: p.IdleMs.Load(), TCP: p.TCP.Load(),
		HalfOpen: p.HalfOpen.Load(), Queries: p.Queries.Load(), QUIC: p.QUIC.Load(), Unsent: p.Unsent.Load(),
	}
}

// SetReleased says that the rings of the window are empty and stay so.
func (v WorkerView) SetReleased(wid uint32) { v.w.Report.Released.Store(wid) }

// Released returns the last window of SetReleased.
func (v WorkerView) Released() uint32 { return v.w.Report.Released.Load() }

// Ask bumps the ask word of a lane (numbered over all workers of the
// generation) and returns it: the lane's Answer reaches it at its next boundary.
func (d *Directory) Ask(slot, lane int) uint64 { return d.slot(slot).Lane[lane].Ask.Add(1) }

// Answer returns the last ask that the lane saw at a boundary.
func (d *Directory) Answer(slot, lane int) uint64 { return d.slot(slot).Lane[lane].Answer.Load() }

// Ack returns the park word that the lane last stopped for.
func (d *Directory) Ack(slot, lane int) Word { return Word(d.slot(slot).Lane[lane].Ack.Load()) }

// LaneView is a lane's own side of its words.
type LaneView struct {
	d *Directory
	l *lane
}

// Lane returns the words of a lane, for the lane.
func (d *Directory) Lane(slot, lane int) LaneView {
	return LaneView{d: d, l: &d.slot(slot).Lane[lane]}
}

// Owner returns the owner word.
func (v LaneView) Owner() Word { return v.d.Owner() }

// Version changes with every change of a slot.
func (v LaneView) Version() uint64 { return v.d.top.Windows.Load() }

// Asked returns the ask word.
func (v LaneView) Asked() uint64 { return v.l.Ask.Load() }

// SetAnswer stores the ask that was seen. The lane stores it first and loads
// everything that may have changed then: what the supervisor wrote before the
// ask is seen by every packet after it.
func (v LaneView) SetAnswer(ask uint64) {
	v.l.Answer.Store(ask)
	shm.Raise(&v.d.top.Signs)
}

// SetAck says that this lane reads nothing for the park w, and whether it had read
// before.
func (v LaneView) SetAck(w Word, hadRead bool) {
	if hadRead {
		v.d.top.ParkedAt.Store(uint64(mono.Now()))
	}
	v.l.Ack.Store(uint64(w))
	shm.Raise(&v.d.top.Signs)
}

// Lapse gives the wire back to the parked owner once the park's deadline has
// passed. It reports whether the word is no longer that park.
func (v LaneView) Lapse(park Word, now uint32) bool {
	if cur := v.Owner(); cur != park {
		return true
	}
	if !park.Lapsed(now) {
		return false
	}
	v.d.move(park, Run(park.Epoch()))
	return true
}

// Taken reports whether anybody has read since the last flip.
func (v LaneView) Taken() bool { return v.d.top.FirstReadAt.Load() != 0 }

// NoteRead records the first receive call after a flip.
func (v LaneView) NoteRead() {
	if !v.Taken() {
		v.d.top.FirstReadAt.CompareAndSwap(0, uint64(mono.Now()))
	}
}
