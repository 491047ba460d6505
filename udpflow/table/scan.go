package table

import "github.com/dnsapp/dnsapp/server/mono"

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
func (t *Table) Scan(worker int, now uint32) (alive int, newest uint32) {
	least := t.idle
	for i := range t.slots {
		e := t.slots[i].entry()
		if e == 0 || e.worker() != worker || !e.alive(now, t.idle) {
			continue
		}
		alive++
		least = min(least, mono.Age(now, e.last()))
	}
	if alive == 0 {
		return 0, 0
	}
	return alive, uint32(max(least, 0))
}
