package logging

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// writer hands lines to a goroutine that writes them, so that whoever reads the
// log cannot hold up whoever writes it: a line that finds the queue full is
// dropped, and the next one that gets through is preceded by the number of those
// that did not.
type writer struct {
	lines   chan []byte
	dropped atomic.Uint64
	closing chan chan struct{}
}

// queueLines is how many lines may wait.
const queueLines = 1024

// closeTimeout bounds how long a process that ends waits for its reader.
const closeTimeout = 200 * time.Millisecond

// newWriter starts a writer to w. An error of w loses the line: there is nobody
// to tell.
func newWriter(w io.Writer) *writer {
	q := &writer{lines: make(chan []byte, queueLines), closing: make(chan chan struct{})}
	go q.run(w)
	return q
}

func (q *writer) run(w io.Writer) {
	write := func(line []byte) {
		if n := q.dropped.Swap(0); n > 0 {
			fmt.Fprintf(w, "(%d lines of the log were dropped: its reader was too slow)\n", n)
		}
		_, _ = w.Write(line)
	}
	for {
		select {
		case line := <-q.lines:
			write(line)
		case done := <-q.closing:
			for len(q.lines) > 0 {
				write(<-q.lines)
			}
			close(done)
			return
		}
	}
}

// Write implements io.Writer. slog calls it with whole lines, and not at the
// same time.
func (q *writer) Write(line []byte) (int, error) {
	select {
	case q.lines <- append([]byte(nil), line...):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// Close waits until what was written is out, or closeTimeout has passed.
func (q *writer) Close() {
	limit := time.NewTimer(closeTimeout)
	defer limit.Stop()
	done := make(chan struct{})
	select {
	case q.closing <- done:
	case <-limit.C:
		return
	}
	select {
	case <-done:
	case <-limit.C:
	}
}
