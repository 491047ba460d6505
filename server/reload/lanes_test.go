package reload

// This file is what the lanes do, and who counts their acks.

// reader returns the slot of the generation that reads a socket, -1 for nobody,
// as directory.Reader does.
func (w *world) reader(socket int) int {
	newest, oldest := -1, -1
	for i := range w.gens {
		g := &w.gens[i]
		if g.epoch == 0 || !g.mark.MayRead() || !g.lists.has(socket) {
			continue
		}
		if g.epoch <= w.owner.epoch && (newest < 0 || g.epoch > w.gens[newest].epoch) {
			newest = i
		}
		if oldest < 0 || g.epoch < w.gens[oldest].epoch {
			oldest = i
		}
	}
	reader := newest
	if reader < 0 {
		reader = oldest
	}
	if reader >= 0 && !w.gens[reader].mark.Live() {
		return -1
	}
	return reader
}

// boundary is the moment before a batch: the lane loads the word and obeys.
func (w *world) boundary(g, i int) {
	p := &w.gens[g].workers[i]
	p.behind = 0
	for o := range w.ops {
		if w.ops[o].kind == opAsk {
			w.ops[o].left[g] &^= OneWorker(i)
		}
	}
	p.reading = 0
	switch {
	case w.gens[g].own && w.owner.epoch < w.gens[g].epoch:
		p.reading = w.gens[g].lists
	case w.owner.park:
		p.ack = ackCurrent
	default:
		for s := range allSockets {
			if w.reader(s) == g {
				p.reading |= 1 << s
			}
		}
	}
}

// barrier reports whether every lane that may read has acknowledged.
func (md *model) barrier(w *world) bool {
	for g := range w.gens {
		for _, p := range w.gens[g].workers {
			if p.life == none || p.off || !w.gens[g].mark.MayRead() || p.ack == ackCurrent {
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
	*p = process{life: dead, header: p.header, respawn: p.respawn}
}
