package server

import (
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/worker"
)

// On the data path DPDK the queues of devices are what sockets are otherwise: each
// generation lists all of them, and the directory says which one reads them. They have
// no descriptor; workers find them by a lease of the primary.

// queues puts a use of each queue of cfg into r.
func (ss *sockets) queues(cfg *config.Config, r *bindResult) error {
	for _, d := range cfg.DPDK.Devices {
		for q := range d.Queues {
			k := socketKey{device: d.Name, lane: q}
			s := ss.byKey[k]
			if s == nil {
				id, err := ss.freeID()
				if err != nil {
					ss.release(r.uses)
					return err
				}
				s = newQueue(k, id)
				ss.add(s)
				r.fresh = append(r.fresh, s)
			}
			s.users++
			r.uses = append(r.uses, use{socket: s, listener: noListener})
		}
	}
	return nil
}

// noListener is that of a queue: what comes by it is for any.
const noListener = -1

func newQueue(k socketKey, id uint32) *socket {
	return &socket{socketKey: k, id: id, fd: -1, bound: true}
}

// isQueue reports whether s is a queue of a device.
func (s *socket) isQueue() bool { return s.device != "" }

// worker returns the worker of g that reads s. Of a socket there may be none: a
// group may have more than g has lanes.
func (g *generation) worker(s *socket) int {
	if s.isQueue() {
		return s.lane % g.cfg.Workers
	}
	return s.lane / g.cfg.Lanes
}

// queueRef describes a queue of g to its workers.
func (g *generation) queueRef(s *socket) worker.QueueRef {
	ref := worker.QueueRef{ID: s.id, Queue: s.lane}
	for i, d := range g.cfg.DPDK.Devices {
		if d.Name == s.device {
			ref.Device = i
		}
	}
	return ref
}

// inheritQueues takes the queues that g lists.
func (ss *sockets) inheritQueues(g *generation, refs []worker.QueueRef) {
	for _, ref := range refs {
		k := socketKey{device: g.cfg.DPDK.Devices[ref.Device].Name, lane: ref.Queue}
		have := ss.byID[ref.ID]
		if have == nil {
			have = newQueue(k, ref.ID)
			ss.add(have)
		}
		have.users++
		g.uses = append(g.uses, use{socket: have, listener: noListener})
	}
}
