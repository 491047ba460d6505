package server

import (
	"testing"
	"time"
)

// A worker that had served is started again at once, however often it ends; one
// that ends right after its start is given more time before each next one.
func TestBackoff(t *testing.T) {
	var p process
	for range 20 {
		if p.ended(time.Second); p.backoff() != 0 {
			t.Fatalf("%v before the start of a worker that lived for a second", p.backoff())
		}
	}
	p = process{}
	last := -time.Nanosecond
	for range 9 {
		if p.ended(10 * time.Millisecond); p.backoff() < last || p.backoff() > backoffMax {
			t.Errorf("%v after %v", p.backoff(), last)
		}
		last = p.backoff()
	}
	if last != backoffMax {
		t.Errorf("at most %v", last)
	}
	if p.ended(time.Second); p.backoff() != 0 {
		t.Errorf("%v after a worker that lasted", p.backoff())
	}
}
