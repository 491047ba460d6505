package stream

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
)

const (
	// DrainIdle is how long a connection of a draining Set may be idle.
	DrainIdle = 500 * time.Millisecond

	// lastLook is how long an idle connection is given after its deadline, to find
	// what is there, not to wait for more. It is as long as a busy machine may keep
	// this process off the CPU between setting a deadline and reading.
	lastLook = 10 * time.Millisecond

	// linger bounds how long a connection waits for the client's FIN.
	linger = time.Second

	// writeTimeout bounds one answer to a client that does not read.
	writeTimeout = 10 * time.Second
)

// Handler serves one connection. It returns when the connection shall be
// closed: at the client's FIN, on any error, and when idle times out.
type Handler interface {
	ServeStream(c *Conn)
}

// Set is the open connections of one worker. Its methods are safe for
// concurrent use.
type Set struct {
	log   *slog.Logger
	limit int
	idle  time.Duration

	draining atomic.Bool
	queries  atomic.Int64

	mu      sync.Mutex
	conns   map[*Conn]struct{} // guarded by mu
	changed chan struct{}      // capacity 1: a connection has ended
	done    sync.WaitGroup
}

// NewSet returns an empty set that holds at most limit connections, and closes
// those that ask nothing for idle.
func NewSet(limit int, idle time.Duration, log *slog.Logger) *Set {
	return &Set{log: log, limit: limit, idle: idle, conns: make(map[*Conn]struct{}), changed: make(chan struct{}, 1)}
}

// Conn is one connection of a Set.
type Conn struct {
	net.Conn
	Block *counters.Block // counters of the lane that accepted it
	set   *Set

	looked bool // once more, since AwaitQuery. Belongs to the goroutine that reads
}

// Serve takes nc over and serves it in a goroutine of its own. It counts it in
// block. Over the limit it closes nc at once.
func (s *Set) Serve(nc net.Conn, block *counters.Block, h Handler) {
	c := &Conn{Conn: nc, Block: block, set: s}
	s.mu.Lock()
	full := len(s.conns) >= s.limit
	if !full {
		s.conns[c] = struct{}{}
		s.done.Add(1)
	}
	s.mu.Unlock()
	block.Add(counters.TCPAccepted, 1)
	if full {
		block.Add(counters.TCPClosed, 1)
		block.Add(counters.DroppedTCP+counters.ID(counters.DropLimit), 1)
		nc.Close()
		return
	}
	go func() {
		defer s.done.Done()
		defer s.forget(c)
		defer c.finish()
		h.ServeStream(c)
	}()
}

func (s *Set) forget(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.Block.Add(counters.TCPClosed, 1)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// finish closes c without resetting it: what it wrote last may still be on its
// way, and closing with unread input would discard it.
func (c *Conn) finish() {
	defer c.Close()
	if tc, ok := c.Conn.(*net.TCPConn); ok && tc.CloseWrite() == nil {
		if c.SetReadDeadline(time.Now().Add(linger)) == nil {
			// Whatever ends the copy ends the wait.
			_, _ = io.Copy(io.Discard, c.Conn)
		}
	}
}

// AwaitQuery sets the read deadline for the next query: the idle time, or what
// a drain leaves of it.
func (c *Conn) AwaitQuery() error {
	c.looked = false
	idle := c.set.idle
	if c.set.draining.Load() {
		idle = min(idle, DrainIdle)
	}
	if err := c.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return err
	}
	// Drain may have begun in between, and then it saw the older deadline.
	if idle > DrainIdle && c.set.draining.Load() {
		return c.SetReadDeadline(time.Now().Add(DrainIdle))
	}
	return nil
}

// Read reads what there is. When the deadline has passed it looks once more: a
// process that was off the CPU for that long may have queries waiting, and the
// runtime reports the deadline without reading. It does so once a query, or a
// client could live on by an octet for each look.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 && !c.looked && errors.Is(err, os.ErrDeadlineExceeded) {
		c.looked = true
		if err := c.SetReadDeadline(time.Now().Add(lastLook)); err != nil {
			return 0, err
		}
		return c.Conn.Read(b)
	}
	return n, err
}

// Begin and End bracket a query in flight.
func (c *Conn) Begin() { c.set.queries.Add(1) }

// End ends what Begin began.
func (c *Conn) End() { c.set.queries.Add(-1) }

// WriteAnswer writes b within a bounded time.
func (c *Conn) WriteAnswer(b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// LogEnd logs at debug level why a connection ended, unless it is what every
// connection ends with.
func (c *Conn) LogEnd(err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		c.set.log.Debug("connection ended", "remote", c.RemoteAddr(), "error", err)
	}
}

// Drain shortens the idle time of all connections, now and from now on.
func (s *Set) Drain() {
	s.draining.Store(true)
	deadline := time.Now().Add(min(s.idle, DrainIdle))
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		// An error means that it is closed already.
		_ = c.SetReadDeadline(deadline)
	}
}

// Resume takes Drain back: connections may be idle again for as long as before.
func (s *Set) Resume() {
	s.draining.Store(false)
	deadline := time.Now().Add(s.idle)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		// An error means that it is closed already.
		_ = c.SetReadDeadline(deadline)
	}
}

// Open returns how many connections are open and how many queries are in
// flight on them.
func (s *Set) Open() (conns, queries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns), int(s.queries.Load())
}

// Changed receives after connections have ended.
func (s *Set) Changed() <-chan struct{} { return s.changed }

// Close closes all connections at once and waits for their goroutines.
func (s *Set) Close() {
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}
