package server

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/priority"
)

// How long the supervisor may be in haste at a time. What a reload waits for takes a
// few milliseconds of a processor; where it takes more (a long configuration, many
// workers), the traffic is not to wait for it.
const (
	hastePreparing = 10 * time.Millisecond  // in T0
	hasteHandover  = 100 * time.Millisecond // in T1 and T2, most of which it sleeps
)

// haste has the supervisor take its turns before others, while a reload waits for it.
// It belongs to the loop.
type haste struct {
	nice    int // otherwise
	hasty   bool
	end     *time.Timer // nil: it has never been in haste
	refused bool        // it is not permitted
}

// hasten begins haste, or prolongs it, for at most d from now on.
func (s *Supervisor) hasten(d time.Duration) {
	h := &s.haste
	if h.refused {
		return
	}
	if h.end == nil {
		h.end = time.AfterFunc(d, func() { s.post(s.calm) })
	} else {
		h.end.Reset(d)
	}
	if h.hasty {
		return
	}
	if err := priority.Set(priority.Hasty(h.nice)); err != nil {
		h.refused = errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
		s.log.Debug("reloads compete with the traffic as equals", "error", err)
		return
	}
	h.hasty = true
}

// calm ends haste.
func (s *Supervisor) calm() {
	h := &s.haste
	if !h.hasty {
		return
	}
	h.end.Stop()
	h.hasty = false
	if err := priority.Set(h.nice); err != nil {
		s.log.Error("ending the haste of a reload", "error", err)
	}
}
