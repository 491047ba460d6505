package proxy

import "math/bits"

// A tick of the wheel is 64 ms. One turn takes 16 s; what is due later goes
// around again.
const (
	tickBits   = 6
	wheelSlots = 256
)

// wheel holds the active conns by when they may be due. A datagram does not move
// its conn: one that turns out to have lived since goes to where it may be due
// next. So a conn costs O(1) per time-out, and nothing per datagram.
type wheel struct {
	slots [wheelSlots]int32
	full  [wheelSlots / 64]uint64 // slots that hold something, a bit each
	tick  uint32                  // every slot before this tick is done; only its lower 26 bits count
}

func newWheel(now uint32) *wheel {
	w := &wheel{tick: now >> tickBits}
	for i := range w.slots {
		w.slots[i] = none
	}
	return w
}

// add puts conn i where it is looked at when due (mono.Millis) has passed.
func (w *wheel) add(s *slab, i int32, due, now uint32) {
	if w.empty() { // it may have stood still for long
		w.tick = now >> tickBits
	}
	ticks := min(max(int32(due-w.tick<<tickBits)>>tickBits+1, 1), wheelSlots-1)
	slot := (w.tick + uint32(ticks)) % wheelSlots
	c := s.at(i)
	c.next, c.prev = w.slots[slot], -2-int32(slot)
	if c.next != none {
		s.at(c.next).prev = i
	}
	w.slots[slot] = i
	w.full[slot/64] |= 1 << (slot % 64)
}

func (w *wheel) remove(s *slab, i int32) {
	c := s.at(i)
	if c.next != none {
		s.at(c.next).prev = c.prev
	}
	if c.prev >= 0 {
		s.at(c.prev).next = c.next
		return
	}
	slot := -2 - c.prev
	w.slots[slot] = c.next
	if c.next == none {
		w.full[slot/64] &^= 1 << (slot % 64)
	}
}

// due takes out and returns a conn that is to be looked at by now, none if there
// is no more.
func (w *wheel) due(s *slab, now uint32) int32 {
	if w.empty() {
		return none
	}
	for int32(now-w.tick<<tickBits) >= 1<<tickBits {
		if i := w.slots[w.tick%wheelSlots]; i != none {
			w.remove(s, i)
			return i
		}
		w.tick++
	}
	return none
}

func (w *wheel) empty() bool { return w.full == [wheelSlots / 64]uint64{} }

// wait returns how many milliseconds from now on there is nothing to look at;
// false if there is nothing at all.
func (w *wheel) wait(now uint32) (ms int32, ok bool) {
	at := w.tick % wheelSlots
	for n := uint32(0); n < wheelSlots+64; {
		slot := (at + n) % wheelSlots
		if word := w.full[slot/64] >> (slot % 64); word != 0 {
			n += uint32(bits.TrailingZeros64(word))
			return max(int32((w.tick+n+1)<<tickBits-now), 0), true
		}
		n += 64 - slot%64
	}
	return 0, false
}
