package table

// Sweep frees every slot that nobody lives in and returns how many it freed. One
// process a table must call it hourly: the clock of the stamps wraps after 49.7
// days, and a slot that old would read as alive again.
func (t *Table) Sweep(now uint32) (freed int) {
	for i := range t.slots {
		s := &t.slots[i]
		e := s.entry()
		if e == 0 || e&(claimFlag|freeFlag) == freeFlag || !e.claimable(now, t.idle) {
			continue
		}
		if s.swap(e, e&^claimFlag|freeFlag) {
			freed++
		}
	}
	return freed
}

// Scan returns how many flows of worker are alive, and how long ago, in
// milliseconds, the newest of them had a packet: until Idle less that has passed,
// another scan cannot find none. newest is 0 if none is alive.
//
// A drain report scans a whole table, whose entries are a random mix: so there
// is no branch in the loop. A mispredicted one costs more than all the rest.
func (t *Table) Scan(worker int, now uint32) (alive int, newest uint32) {
	const key = 0xffff_00ff // worker and flags
	want := uint64(uint16(worker)) << 16
	span := uint64(t.idle) + maxAheadMs
	least := ^uint64(0) // of the ages, each maxAheadMs more than it is
	slots := t.slots
	for i := range slots {
		e := slots[i].entry()
		// 0 if worker and flags are as wanted. Without a packet, which is a slot
		// that was never used, the subtraction takes from the worker.
		other := uint64(uint32(e)-1<<8)&key ^ want
		age := uint64(now - e.last() + maxAheadMs)
		ok := ((other - 1) & (age - span - 1)) >> 63 // both borrow: other is 0, age at most span
		alive += int(ok)
		least = min(least, age|(ok-1))
	}
	if alive == 0 {
		return 0, 0
	}
	return alive, uint32(max(least, maxAheadMs) - maxAheadMs)
}
