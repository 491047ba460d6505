package table

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is what a map would say of the flows, on a clock that neither wraps nor
// is read differently by two processes.
type model struct {
	t     *Table
	idle  int64
	now   int64 // milliseconds; the table sees the low 32 bits
	swept int64
	flows map[uint64]*modelFlow
}

type modelFlow struct {
	last    int64
	worker  int
	packets int // at least so many, and at most so many:
	most    int
	// shaky: a new flow may have taken its slot.
	shaky bool
}

func (m *model) alive(f *modelFlow, now int64) bool {
	return f != nil && now-f.last >= -maxAheadMs && now-f.last <= m.idle
}

// stays reports whether no new flow may evict f, which is alive and has this many
// packets.
func (f *modelFlow) stays(packets int, now int64) bool { return packets >= 2 || now-f.last < onceMs }

// near reports whether the windows of two hashes overlap.
func (m *model) near(a, b uint64) bool {
	d := (a - b) & m.t.mask
	return d < probes || d > m.t.mask-probes
}

// claimed notes that h has been recorded anew: one-packet flows nearby, and those
// that are old by the clock of who recorded it, may have made room.
func (m *model) claimed(h uint64, worker int, now int64) {
	for o, f := range m.flows {
		if o != h && m.near(o, h) && !(m.alive(f, now) && f.stays(f.packets, now)) {
			f.shaky = true
		}
	}
	m.flows[h] = &modelFlow{last: now, worker: worker, packets: 1, most: 1}
}

// packet notes another packet of a flow that was found alive.
func (f *modelFlow) packet(now int64) {
	f.last = max(f.last, now)
	f.packets++
	f.most++
	f.shaky = false
}

// The table is a map of flows that age, from which nothing vanishes but what has
// aged, was removed, or had one packet when a new flow wanted its place; and a new
// flow is refused only when 16 neighbours must stay.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		idle := rapid.SampledFrom([]time.Duration{MinIdle, time.Second, MaxIdle}).Draw(rt, "idle")
		m := &model{
			t:     newTable(t, MinSlots, idle),
			idle:  idle.Milliseconds(),
			now:   int64(rapid.SampledFrom(starts).Draw(rt, "start")) + 1<<33,
			flows: map[uint64]*modelFlow{},
		}
		m.swept = m.now
		genHash := rapid.Custom(func(t *rapid.T) uint64 {
			// Two neighbouring windows, one of them over the end of the slots.
			return home(rapid.SampledFrom([]uint64{MinSlots - 10, MinSlots - 4}).Draw(t, "home"), rapid.Uint64Range(0, 19).Draw(t, "flow"))
		})
		genWorker := rapid.SampledFrom([]int{0, 1, 63})
		// clock is the clock of one process, a few milliseconds off.
		clock := func(t *rapid.T) (int64, uint32) {
			now := m.now + rapid.Int64Range(-3, 3).Draw(t, "skew")
			return now, uint32(now)
		}
		see := func(t *rapid.T, record bool) {
			h, me := genHash.Draw(t, "hash"), genWorker.Draw(t, "worker")
			now, ms := clock(t)
			f := m.flows[h]
			op, name := m.t.Refresh, "Refresh"
			if record {
				op, name = m.t.Record, "Record"
			}
			o, w := op(h, me, ms)
			switch {
			case o == Absent && !record || o == NotRecorded && record:
				if m.alive(f, now) {
					if !f.shaky {
						t.Fatalf("%s: outcome %v of a live flow", name, o)
					}
					delete(m.flows, h)
				}
				if record {
					stay := 0
					for other, f := range m.flows {
						if m.alive(f, now) && f.stays(f.most, now) && m.near(other, h) {
							stay++
						}
					}
					if stay < probes {
						t.Fatalf("Record: not recorded with %d neighbours that stay", stay)
					}
				}
			case o == Sibling:
				if !m.alive(f, now) || f.worker != w || w == me {
					t.Fatalf("%s: sibling %d, model %+v", name, w, f)
				}
			case o == Mine && m.alive(f, now) && !f.shaky:
				if f.worker != me || w != me {
					t.Fatalf("%s: mine, worker %d, model %+v", name, w, f)
				}
				f.packet(now)
			case o == Mine && m.alive(f, now) && f.worker == me: // refreshed, or evicted and recorded again
				f.last, f.packets, f.most = max(f.last, now), 1, f.most+1
				if !record {
					f.shaky = false
				}
			case o == Mine && record:
				m.claimed(h, me, now)
			default:
				t.Fatalf("%s: outcome %v, worker %d, model %+v", name, o, w, f)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"record":  func(t *rapid.T) { see(t, true) },
			"record2": func(t *rapid.T) { see(t, true) }, // more of these than of the others
			"refresh": func(t *rapid.T) { see(t, false) },
			"find": func(t *rapid.T) {
				h := genHash.Draw(t, "hash")
				now, ms := clock(t)
				f := m.flows[h]
				w, ok := m.t.Find(h, ms)
				if ok && (!m.alive(f, now) || f.worker != w) || !ok && m.alive(f, now) && !f.shaky {
					t.Fatalf("found %v at worker %d, model %+v", ok, w, f)
				}
			},
			"touch": func(t *rapid.T) {
				h := genHash.Draw(t, "hash")
				now, ms := clock(t)
				f := m.flows[h]
				ok := m.t.Touch(h, ms)
				switch {
				case ok && !m.alive(f, now), !ok && m.alive(f, now) && !f.shaky:
					t.Fatalf("touched %v, model %+v", ok, f)
				case ok:
					f.packet(now)
				}
			},
			"adopt": func(t *rapid.T) {
				h, from, me := genHash.Draw(t, "hash"), genWorker.Draw(t, "from"), genWorker.Draw(t, "worker")
				now, ms := clock(t)
				f := m.flows[h]
				ok := m.t.Adopt(h, from, me, ms)
				owned := m.alive(f, now) && f.worker == from
				switch {
				case ok && !owned, !ok && owned && !f.shaky:
					t.Fatalf("adopted %v from %d, model %+v", ok, from, f)
				case ok:
					f.packet(now)
					f.worker = me
				}
			},
			"remove": func(t *rapid.T) {
				h, me := genHash.Draw(t, "hash"), genWorker.Draw(t, "worker")
				f := m.flows[h]
				ok := m.t.Remove(h, me)
				if !ok && m.alive(f, m.now-3) && m.alive(f, m.now+3) && f.worker == me && !f.shaky {
					t.Fatalf("not removed: %+v", f)
				}
				if f != nil && f.worker == me {
					delete(m.flows, h)
				}
			},
			"scan": func(t *rapid.T) {
				w := genWorker.Draw(t, "worker")
				now, ms := clock(t)
				sure, maybe, newest := 0, 0, m.idle
				for _, f := range m.flows {
					if m.alive(f, now) && f.worker == w {
						maybe++
						if !f.shaky {
							sure++
							newest = min(newest, max(now-f.last, 0))
						}
					}
				}
				n, age := m.t.Scan(w, ms)
				if n < sure || n > maybe || sure > 0 && int64(age) > newest || sure == maybe && n > 0 && int64(age) != newest {
					t.Fatalf("scan: %d flows, newest %d ms; model %d to %d, %d ms", n, age, sure, maybe, newest)
				}
			},
			"wait": func(t *rapid.T) {
				step := rapid.SampledFrom([]int64{1, 2, 3, m.idle / 2, m.idle, 1_800_000}).Draw(t, "ms")
				if m.now+step-m.swept > 3_600_000 {
					m.t.Sweep(uint32(m.now))
					m.swept = m.now
					maps.DeleteFunc(m.flows, func(_ uint64, f *modelFlow) bool { return !m.alive(f, m.now) })
				}
				m.now += step
			},
			"": func(t *rapid.T) {
				seen := map[uint64]int{}
				for i := range m.t.slots {
					e, h := m.t.slots[i].entry(), m.t.slots[i].hash()
					if e.claimed() {
						t.Fatalf("slot %d is left under CLAIM", i)
					}
					if e != 0 && e.alive(uint32(m.now), m.t.idle) {
						if j, ok := seen[h]; ok {
							t.Fatalf("the flow %#x is alive in slots %d and %d", h, j, i)
						}
						seen[h] = i
					}
				}
			},
		})
	})
}
