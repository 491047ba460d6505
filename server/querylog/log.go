package querylog

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
)

const (
	// queueSize is the records that may wait: with flushEvery, 80,000 a second.
	queueSize = 4096

	// flushEvery is how long a record may wait.
	flushEvery = 50 * time.Millisecond

	// writeSize is the octets that are written together.
	writeSize = 64 << 10
)

// Log is the query log of one process. A nil Log logs nothing.
type Log struct {
	log   *slog.Logger
	block *counters.Block
	queue *queue
	every uint64 // one query in so many
	tail  string // of every line

	fd      int
	torn    bool // the last line in the file is not whole
	failing bool // the last write has failed

	stop chan struct{}
	done sync.WaitGroup
}

// New returns a log that writes one query in every to the file behind fd, which it
// takes over, and counts in block. Lines say who writes them.
func New(fd, every int, epoch uint32, worker int, block *counters.Block, log *slog.Logger) *Log {
	l := &Log{
		log: log, block: block, queue: newQueue(queueSize), every: uint64(max(every, 1)), tail: lineTail(epoch, worker),
		fd: fd, stop: make(chan struct{}),
	}
	l.done.Go(l.run)
	return l
}

// Close writes what is queued and closes the file. Nobody may log any more.
func (l *Log) Close() {
	if l == nil {
		return
	}
	close(l.stop)
	l.done.Wait()
}

func (l *Log) run() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	buf := make([]byte, 0, writeSize+maxLine)
	for {
		select {
		case <-tick.C:
			l.drain(buf)
		case <-l.stop:
			l.drain(buf)
			if err := unix.Close(l.fd); err != nil {
				l.log.Warn("closing the query log", "error", err)
			}
			return
		}
	}
}

// drain writes everything that is queued.
func (l *Log) drain(buf []byte) {
	lines := uint64(0)
	add := func(r *Record) {
		buf = appendLine(buf, r, l.tail)
		lines++
	}
	for {
		buf, lines = buf[:0], 0
		if l.torn {
			buf = append(buf, '\n')
		}
		for len(buf) < writeSize && l.queue.next(add) {
		}
		if lines == 0 {
			return
		}
		l.write(buf, lines)
	}
}

// write writes lines, and counts them as logged or dropped. It does not wait for
// a pipe that is full.
func (l *Log) write(b []byte, lines uint64) {
	n, err := 0, error(nil)
	for n < len(b) && err == nil {
		var m int
		if m, err = unix.Write(l.fd, b[n:]); m > 0 {
			n += m
		}
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err == nil {
		l.torn = false
		l.block.Add(counters.QueriesLogged, lines)
		if l.failing {
			l.failing = false
			l.log.Info("the query log is written again")
		}
		return
	}
	l.torn = l.torn && n == 0 || n > 0 && b[n-1] != '\n'
	l.block.Add(counters.QueriesNotLogged, lines) // those that got out are few
	if !l.failing && !errors.Is(err, unix.EAGAIN) {
		l.failing = true
		l.log.Warn("the query log is not written", "error", err)
	}
}

// Sampler chooses the queries of one lane or stream that are logged. It belongs to
// one goroutine. A nil Sampler chooses none.
type Sampler struct {
	l     *Log
	block *counters.Block
	left  uint64
	rnd   rand.PCG

	slot *slot
	at   uint64
}

// Sampler returns a sampler that counts what it has to drop in block; nil for a nil
// Log.
func (l *Log) Sampler(block *counters.Block) *Sampler {
	if l == nil {
		return nil
	}
	s := &Sampler{l: l, block: block}
	s.rnd.Seed(rand.Uint64(), rand.Uint64())
	s.left = s.gap()
	return s
}

// gap returns to which of the next queries it is the turn, counted from 1: every on
// the average.
func (s *Sampler) gap() uint64 {
	if s.l.every == 1 {
		return 1
	}
	return 1 + s.rnd.Uint64()%(2*s.l.every-1)
}

// Begin returns a record to fill if it is this query's turn and there is room, else
// nil. Commit must follow at once.
func (s *Sampler) Begin() *Record {
	if s == nil {
		return nil
	}
	if s.left--; s.left > 0 {
		return nil
	}
	return s.begin()
}

func (s *Sampler) begin() *Record {
	s.left = s.gap()
	if s.slot, s.at = s.l.queue.begin(); s.slot == nil {
		s.block.Add(counters.QueriesNotLogged, 1)
		return nil
	}
	return &s.slot.Record
}

// Commit lets the record of Begin be written.
func (s *Sampler) Commit() { s.l.queue.commit(s.slot, s.at) }
