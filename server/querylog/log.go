package querylog

import (
	"bytes"
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

	// pipeBuf is the octets that a pipe takes whole or not at all (PIPE_BUF,
	// pipe(7)), so that no line is cut when its reader is slow.
	pipeBuf = 4096
)

// A write to a pipe has one line at least.
var _ [pipeBuf - maxLine]struct{}

// Log is the query log of one process. A nil Log logs nothing.
type Log struct {
	log   *slog.Logger
	block *counters.Block
	queue *queue
	every uint64 // one query in so many
	tail  string // of every line

	fd      int
	limit   int  // octets that one write may have
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
		fd: fd, limit: writeSize + maxLine, stop: make(chan struct{}),
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		l.limit = pipeBuf
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
	add := func(r *Record) { buf = appendLine(buf, r, l.tail) }
	for {
		buf = buf[:0]
		for len(buf) < writeSize && l.queue.next(add) {
		}
		if len(buf) == 0 {
			return
		}
		l.write(buf)
	}
}

// write writes lines, and counts each as logged or not. It does not wait for a
// pipe that is full.
func (l *Log) write(lines []byte) {
	err := error(nil)
	if l.torn {
		if _, err = l.put([]byte{'\n'}); err == nil {
			l.torn = false
		}
	}
	for len(lines) > 0 && err == nil {
		part := lines
		if len(part) > l.limit {
			part = part[:bytes.LastIndexByte(part[:l.limit], '\n')+1]
		}
		var n int
		n, err = l.put(part)
		l.torn = n > 0 && part[n-1] != '\n'
		l.block.Add(counters.QueriesLogged, uint64(bytes.Count(part[:n], []byte{'\n'})))
		lines = lines[n:]
	}
	if err == nil {
		if l.failing {
			l.failing = false
			l.log.Info("the query log is written again")
		}
		return
	}
	l.block.Add(counters.QueriesNotLogged, uint64(bytes.Count(lines, []byte{'\n'})))
	if !l.failing && !errors.Is(err, unix.EAGAIN) {
		l.failing = true
		l.log.Warn("the query log is not written", "error", err)
	}
}

// put writes b, and says how much of it was written before an error.
func (l *Log) put(b []byte) (n int, err error) {
	for n < len(b) {
		m, err := unix.Write(l.fd, b[n:])
		if m > 0 {
			n += m
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
	return n, nil
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
