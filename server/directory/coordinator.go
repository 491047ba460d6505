package directory

// Coordinator is the supervisor that steps the machine, starts workers, folds
// counters and exports them. There is one at a time.
type Coordinator struct {
	PID   int
	Start uint64 // start time in clock ticks, the low 32 bits
}

// SetCoordinator records who coordinates from now on. start is the start time of
// the process in clock ticks.
func (d *Directory) SetCoordinator(pid int, start uint64) {
	d.top.Coordinator.Store(uint64(pid)<<32 | start&(1<<32-1))
}

// Coordinator returns who coordinates, or did last.
func (d *Directory) Coordinator() Coordinator {
	w := d.top.Coordinator.Load()
	return Coordinator{PID: int(w >> 32), Start: w & (1<<32 - 1)}
}

// Tally returns a tally.
func (d *Directory) Tally(t Tally) uint64 { return d.top.Tallies[t].Load() }

// SetTally stores a tally. Only the coordinator does.
func (d *Directory) SetTally(t Tally, n uint64) { d.top.Tallies[t].Store(n) }

// LastPark returns the latest deadline, in mono.Millis, of the parks that the
// owner word or any lane still names: a new one must be later to be told from
// them all. It returns false if none is named.
func (d *Directory) LastPark() (deadline uint32, ok bool) {
	see := func(w Word) {
		if w.IsPark() && (!ok || int32(w.Deadline()-deadline) > 0) {
			deadline, ok = w.Deadline(), true
		}
	}
	see(d.Owner())
	for i := range MaxSlots {
		for lane := range MaxLanes {
			see(d.Ack(i, lane))
		}
	}
	return deadline, ok
}

// Process returns the pid and the start time that SetProcess recorded.
func (v WorkerView) Process() (pid int, start uint64) {
	return int(v.w.PID.Load()), v.w.Start.Load()
}
