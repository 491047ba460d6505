package logging

import (
	"sync"
	"sync/atomic"
	"testing"
)

// However many ask, one line is written in an interval, and the next one says how
// many were not.
func TestSeldom(t *testing.T) {
	var s Seldom
	var written atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if _, ok := s.Now(); ok {
					written.Add(1)
				}
			}
		})
	}
	all.Wait()
	if written.Load() != 1 {
		t.Errorf("%d lines", written.Load())
	}
	s.next.Store(0) // the interval is over
	if skipped, ok := s.Now(); !ok || skipped != 799 {
		t.Errorf("%v, %d skipped", ok, skipped)
	}
}
