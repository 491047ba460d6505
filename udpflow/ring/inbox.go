package ring

import (
	"sync/atomic"

	"github.com/dnsapp/dnsapp/internal/step"
)

// Inbox is all that one worker receives through one region: a Consumer for each
// producing lane, and the word by which its producers learn that it sleeps.
type Inbox struct {
	consumers []*Consumer
	sleeping  *atomic.Uint64
}

// Inbox returns the inbox of worker, for the one process that is it.
func (r *Rings) Inbox(worker int) *Inbox {
	in := &Inbox{sleeping: r.sleeping(worker)}
	for l := range r.lanes {
		in.consumers = append(in.consumers, r.Consumer(l, worker))
	}
	return in
}

// Consumers returns the receiving ends, by producing lane.
func (in *Inbox) Consumers() []*Consumer { return in.consumers }

// PrepareSleep announces that the worker is about to sleep and reports whether it
// may: if it reports true, whoever publishes from now on is told to wake it. A
// worker with several inboxes sleeps if all of them agree.
//
// The word is set first and the tails are looked at then; a producer publishes
// first and looks at the word then. All four accesses are sequentially
// consistent, so at least one side sees the other.
func (in *Inbox) PrepareSleep() bool {
	step.Write(in.sleeping)
	in.sleeping.Store(1)
	for _, c := range in.consumers {
		if !c.Empty() {
			in.Awake()
			return false
		}
	}
	return true
}

// Awake says that the worker does not sleep, whatever woke it.
func (in *Inbox) Awake() {
	step.Read(in.sleeping)
	if in.sleeping.Load() != 0 {
		step.Write(in.sleeping)
		in.sleeping.Store(0)
	}
}
