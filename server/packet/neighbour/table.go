package neighbour

import (
	"fmt"
	"math"

	"github.com/dnsapp/dnsapp/server/packet/header"
)

// Timers in nanoseconds and counts (RFC 4861 10).
const (
	RetransTime   = int64(1e9)
	ReachableTime = int64(30e9)
	DelayTime     = int64(5e9)
	MaxProbes     = 3
)

// State is what is known of a neighbour.
type State uint8

// The states.
const (
	None       State = iota
	Incomplete       // asked for; frames wait
	Reachable        // it answered within ReachableTime
	Stale            // its address is used; the next frame starts a check
	Delay            // used, and checked soon
	Probe            // used, and being checked
	Static           // configured; never changes
)

var stateNames = [...]string{"none", "incomplete", "reachable", "stale", "delay", "probe", "static"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// Key names a neighbour.
type Key struct {
	IP   [16]byte // IPv4-mapped for IPv4
	VLAN uint16
}

// Effects is what a Table wants done. It must not call the Table.
type Effects interface {
	// Probe asks for k: the neighbour itself at mac, or everybody where mac is zero.
	Probe(k Key, mac header.MAC)

	// Release sends a frame that waited; its destination is filled in. It is not
	// kept.
	Release(frame []byte)
}

// Config is the limits of a Table.
type Config struct {
	Neighbours int // most entries; at least 1
	Waiting    int // most frames that wait, in all
	PerWaiting int // most that wait for one neighbour; the oldest gives way
	Frame      int // longest frame, bytes
}

type entry struct {
	key      Key
	state    State
	router   bool
	mac      header.MAC
	probes   int   // sent in this state
	deadline int64 // of the state; none for stale and static
	used     int64 // last Resolve, 0 never
	first    int32 // of the frames that wait, -1
	last     int32
	waiting  int
	free     int32 // next free entry
}

// Table is the neighbours of one link. It is for one goroutine.
type Table struct {
	// Released and Lost count frames that were held.
	Released, Lost uint64

	cfg     Config
	effects Effects
	index   map[Key]int32
	entries []entry
	free    int32
	next    int64 // the earliest deadline, or earlier

	frames  []byte
	lengths []int
	chain   []int32 // the next frame that waits for the same, or the next free one
	slot    int32   // free
	waiting int
}

// New returns an empty table.
func New(cfg Config, effects Effects) (*Table, error) {
	if cfg.Neighbours < 1 || cfg.Waiting < 1 || cfg.PerWaiting < 1 || cfg.Frame < header.LinkMax {
		return nil, fmt.Errorf("neighbour: limits %+v: give at least one of each, and frames of at least %d bytes", cfg, header.LinkMax)
	}
	t := &Table{
		cfg: cfg, effects: effects, next: math.MaxInt64,
		index: make(map[Key]int32, cfg.Neighbours), entries: make([]entry, cfg.Neighbours),
		frames: make([]byte, cfg.Waiting*cfg.Frame), lengths: make([]int, cfg.Waiting), chain: make([]int32, cfg.Waiting),
	}
	for i := range t.entries {
		t.entries[i].free = int32(i) + 1
	}
	t.entries[cfg.Neighbours-1].free = -1
	for i := range t.chain {
		t.chain[i] = int32(i) + 1
	}
	t.chain[cfg.Waiting-1] = -1
	return t, nil
}

// Waiting returns how many frames wait.
func (t *Table) Waiting() int { return t.waiting }

// Len returns how many neighbours are known or asked for.
func (t *Table) Len() int { return len(t.index) }

// Get returns what is known of k.
func (t *Table) Get(k Key) (mac header.MAC, s State, router bool) {
	i, ok := t.index[k]
	if !ok {
		return mac, None, false
	}
	e := &t.entries[i]
	return e.mac, e.state, e.router
}

// Set makes k a static neighbour. It is false where the table is full of them.
func (t *Table) Set(k Key, mac header.MAC) bool {
	e := t.entry(k)
	if e == nil {
		return false
	}
	e.state, e.mac, e.deadline = Static, mac, math.MaxInt64
	t.release(e)
	return true
}

// Resolve returns the link address of k. Without one ok is false, k is being asked
// for, and the frame can be held.
func (t *Table) Resolve(k Key, now int64) (mac header.MAC, ok bool) {
	i, known := t.index[k]
	if !known {
		e := t.entry(k)
		if e == nil {
			return mac, false
		}
		e.used = now
		t.enter(e, Incomplete, now+RetransTime)
		t.probe(e)
		return mac, false
	}
	e := &t.entries[i]
	e.used = now
	switch e.state {
	case Incomplete:
		return mac, false
	case Reachable:
		if now >= e.deadline {
			t.enter(e, Delay, now+DelayTime)
		}
	case Stale:
		t.enter(e, Delay, now+DelayTime)
	}
	return e.mac, true
}

// Hold copies frame, whose destination is still unknown, until k has answered. It
// is false where that cannot be: the frame is dropped, by the caller. The oldest
// frame that waits for k gives way to the newest.
func (t *Table) Hold(k Key, frame []byte) bool {
	i, ok := t.index[k]
	if !ok || t.entries[i].state != Incomplete || len(frame) > t.cfg.Frame {
		return false
	}
	e := &t.entries[i]
	if e.waiting == t.cfg.PerWaiting {
		t.pop(e)
		t.Lost++
	}
	if t.slot < 0 {
		return false
	}
	s := t.slot
	t.slot = t.chain[s]
	t.chain[s] = -1
	t.lengths[s] = copy(t.frames[int(s)*t.cfg.Frame:][:t.cfg.Frame], frame)
	if e.first < 0 {
		e.first = s
	} else {
		t.chain[e.last] = s
	}
	e.last = s
	e.waiting++
	t.waiting++
	return true
}

// Solicited learns from a neighbour that asked for us and told its address
// (RFC 826, RFC 4861 7.2.3).
func (t *Table) Solicited(k Key, mac header.MAC) {
	if mac.Group() {
		return
	}
	e := t.entry(k)
	if e == nil || e.state == Static || e.state != None && e.state != Incomplete && e.mac == mac {
		return
	}
	e.mac = mac
	t.enter(e, Stale, math.MaxInt64)
	t.release(e)
}

// Advert is what a neighbour tells of itself.
type Advert struct {
	MAC       header.MAC
	HasMAC    bool
	Solicited bool // we had asked
	Override  bool // it replaces what is known
	Router    bool
}

// Advertised learns from an advertisement or ARP reply (RFC 4861 7.2.5). One of a
// neighbour that nobody asked for is ignored.
func (t *Table) Advertised(k Key, a Advert, now int64) {
	i, ok := t.index[k]
	if !ok || a.HasMAC && a.MAC.Group() {
		return
	}
	e := &t.entries[i]
	switch {
	case e.state == Static:
		return
	case e.state == Incomplete:
		if !a.HasMAC {
			return
		}
	case a.HasMAC && a.MAC != e.mac && !a.Override:
		if e.state == Reachable {
			t.enter(e, Stale, math.MaxInt64)
		}
		return
	}
	changed := a.HasMAC && a.MAC != e.mac
	if a.HasMAC {
		e.mac = a.MAC
	}
	e.router = a.Router
	switch {
	case a.Solicited:
		t.enter(e, Reachable, now+ReachableTime)
	case changed || e.state == Incomplete:
		t.enter(e, Stale, math.MaxInt64)
	}
	t.release(e)
}

// Tick does what is due at now and returns when it wants to be called again
// (math.MaxInt64: never).
func (t *Table) Tick(now int64) (next int64) {
	if now < t.next {
		return t.next
	}
	t.next = math.MaxInt64
	for i := range t.entries {
		e := &t.entries[i]
		if e.state == None {
			continue
		}
		if now >= e.deadline {
			t.due(e, now)
		}
		if e.state != None && e.state != Reachable { // an unused neighbour may go stale late: Resolve looks
			t.next = min(t.next, e.deadline)
		}
	}
	return t.next
}

// due ends the time of a state.
func (t *Table) due(e *entry, now int64) {
	switch e.state {
	case Reachable:
		t.enter(e, Stale, math.MaxInt64)
	case Delay:
		t.enter(e, Probe, now+RetransTime)
		t.probe(e)
	case Incomplete, Probe:
		if e.probes >= MaxProbes {
			t.forget(e)
			return
		}
		e.deadline = now + RetransTime
		t.probe(e)
	}
}

// enter is the only place where a state begins.
func (t *Table) enter(e *entry, s State, deadline int64) {
	e.state, e.deadline, e.probes = s, deadline, 0
	t.next = min(t.next, deadline)
}

func (t *Table) probe(e *entry) {
	e.probes++
	to := e.mac
	if e.state == Incomplete {
		to = header.MAC{}
	}
	t.effects.Probe(e.key, to)
}

// entry returns the entry of k, a new one in state None where there was none, nil
// where the table is full and nothing can be given up.
func (t *Table) entry(k Key) *entry {
	if i, ok := t.index[k]; ok {
		return &t.entries[i]
	}
	if t.free < 0 && !t.evict() {
		return nil
	}
	i := t.free
	e := &t.entries[i]
	t.free = e.free
	*e = entry{key: k, first: -1, last: -1, deadline: math.MaxInt64}
	t.index[k] = i
	return e
}

// evict gives up the neighbour that was used least recently; those that only
// asked for us and were never used go first.
func (t *Table) evict() bool {
	var victim *entry
	for i := range t.entries {
		if e := &t.entries[i]; e.state != Static && e.state != Incomplete && (victim == nil || e.used < victim.used) {
			victim = e
		}
	}
	if victim == nil {
		return false
	}
	t.forget(victim)
	return true
}

// forget removes e and what waits for it.
func (t *Table) forget(e *entry) {
	for e.first >= 0 {
		t.pop(e)
		t.Lost++
	}
	i := t.index[e.key]
	delete(t.index, e.key)
	e.state, e.free = None, t.free
	t.free = i
}

// release sends what waits for e.
func (t *Table) release(e *entry) {
	for e.first >= 0 {
		frame := t.frames[int(e.first)*t.cfg.Frame:][:t.lengths[e.first]]
		copy(frame, e.mac[:])
		t.effects.Release(frame)
		t.Released++
		t.pop(e)
	}
}

// pop frees the first frame that waits for e.
func (t *Table) pop(e *entry) {
	s := e.first
	e.first = t.chain[s]
	t.chain[s], t.slot = t.slot, s
	e.waiting--
	t.waiting--
}
