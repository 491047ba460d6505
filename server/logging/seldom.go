package logging

import (
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/mono"
)

// Seldom lets one line in a while through, for what clients can bring about as
// often as they like. Its zero value is ready, and it may be used concurrently.
type Seldom struct {
	next    atomic.Int64 // mono.Now from which on a line may be written
	skipped atomic.Uint64
}

// SeldomInterval is how far lines that Seldom lets through are apart.
const SeldomInterval = 10 * time.Second

// Now reports whether to write a line now, and how many were not written since the
// last one.
func (s *Seldom) Now() (skipped uint64, ok bool) {
	now, next := mono.Now(), s.next.Load()
	if now < next || !s.next.CompareAndSwap(next, now+int64(SeldomInterval)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}
