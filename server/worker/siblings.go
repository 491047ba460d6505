package worker

import (
	"slices"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/netio"
)

// lookAtSiblings reads who reads the sockets of each worker of this generation:
// those of this worker, which may just have been started again, and those of
// siblings that are dead.
func (l *lane) lookAtSiblings() {
	w := l.worker
	mine, asked := w.view.Claim()
	l.absent = !mine
	if asked >= 0 {
		w.wakeSibling(asked)
	}
	for i := range w.m.Config.Workers {
		if i == w.index {
			continue
		}
		v := w.dir.Worker(w.slot, i)
		switch reads, joined := v.Reader(i) == w.index, l.standsIn>>i&1 != 0; {
		case joined && !reads:
			l.giveBack(i, v)
		case !joined && reads && !l.stopping && v.Join(w.index):
			l.takeOver(i)
		}
	}
}

// takeOver adds the sockets that the lane with this lane's number has in a dead
// sibling.
func (l *lane) takeOver(sibling int) {
	w := l.worker
	lanes := w.m.Config.Lanes
	of := sibling*lanes + l.global%lanes
	for _, s := range w.m.Sockets {
		if s.TCP || s.Lane != of {
			continue
		}
		l.udp = append(l.udp, &udpSocket{
			UDP: w.sockets[s.ID], owner: sibling,
			dispatch: w.m.Config.Listeners[s.Listener].Affinity == config.AffinityFlow,
		})
	}
	l.standsIn |= 1 << sibling
}

// giveBack drops the sockets of a sibling that is back, and says so. Those of other
// siblings get other numbers by it: setReading, which follows, watches them anew.
func (l *lane) giveBack(sibling int, v directory.WorkerView) {
	for _, s := range l.udp {
		if s.owner == l.worker.index || !s.reading {
			continue
		}
		s.reading = false
		if err := l.poller.Remove(s.FD); err != nil {
			l.log.Error("the socket of a sibling", "lane", l.global, "error", err)
		}
	}
	// The list may be gone through at the moment.
	l.udp = slices.DeleteFunc(slices.Clone(l.udp), func(s *udpSocket) bool { return s.owner == sibling })
	l.standsIn &^= 1 << sibling
	if v.Leave() {
		l.worker.wakeSibling(sibling)
	}
}

// wakeSibling hastens every lane of another worker of this generation.
func (w *Worker) wakeSibling(i int) {
	wakes, lanes := *w.wakes[w.slot].Load(), w.m.Config.Lanes
	for lane := i * lanes; lane < min((i+1)*lanes, len(wakes)); lane++ {
		netio.Wake(wakes[lane])
	}
}
