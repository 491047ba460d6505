package reload

// This file is what the lanes do, and who counts their acks.

// reader returns the slot of the generation that reads, as directory.Reader
// does for a socket that all of them list.
func (w *world) reader() int {
	newest, oldest := -1, -1
	for i := range w.gens {
		g := &w.gens[i]
		if g.epoch == 0 || !g.mark.Live() {
			continue
		}
		if g.epoch <= w.owner.epoch && (newest < 0 || g.epoch > w.gens[newest].epoch) {
			newest = i
		}
		if oldest < 0 || g.epoch < w.gens[oldest].epoch {
			oldest = i
		}
	}
	if newest >= 0 {
		return newest
	}
	return oldest
}

// boundary is the moment before a batch: the lane loads the word and obeys.
func (w *world) boundary(g, i int) {
	p := &w.gens[g].workers[i]
	p.asked, p.behind = false, false
	switch {
	case w.gens[g].own && w.owner.epoch < w.gens[g].epoch:
		p.reading = true
	case w.owner.park:
		p.reading, p.ack = false, ackCurrent
	default:
		p.reading = w.reader() == g
	}
}

// barrier reports whether every lane that may read has acknowledged.
func (md *model) barrier(w *world) bool {
	for g := range w.gens {
		for _, p := range w.gens[g].workers {
			if p.life == none || p.off || !w.gens[g].mark.Live() || p.ack == ackCurrent {
				continue
			}
			if !md.defects.staleAcks || p.ack == ackNone {
				return false
			}
		}
	}
	return true
}

func (p *process) die() {
	p.life = dead
	p.stopped, p.reading, p.asked, p.behind, p.off, p.ack, p.doom = false, false, false, false, false, ackNone, NoSignal
}
