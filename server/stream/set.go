package stream

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
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
	log    *slog.Logger
	limits Limits

	draining atomic.Bool
	queries  atomic.Int64

	mu      sync.Mutex
	conns   map[*Conn]struct{} // guarded by mu
	clients map[netip.Addr]int // their connections; guarded by mu
	changed chan struct{}      // capacity 1: a connection has ended
	done    sync.WaitGroup
}

// NewSet returns an empty set.
func NewSet(l Limits, log *slog.Logger) *Set {
	return &Set{
		log: log, limits: l, conns: make(map[*Conn]struct{}), clients: make(map[netip.Addr]int), changed: make(chan struct{}, 1),
	}
}

// Conn is one connection of a Set.
type Conn struct {
	net.Conn
	Block  *counters.Block // counters of the lane that accepted it
	set    *Set
	remote netip.AddrPort // zero: not known
	client netip.Addr     // zero: not counted
	end    time.Time      // of its lifetime; zero: none

	looked bool // once more, since AwaitQuery. Belongs to the goroutine that reads
}

// Serve takes nc over and serves it in a goroutine of its own. It counts it in
// block. Over a limit it closes nc at once.
func (s *Set) Serve(nc net.Conn, block *counters.Block, h Handler) {
	c := &Conn{Conn: nc, Block: block, set: s, remote: remoteOf(nc)}
	c.client = clientOf(c.remote.Addr())
	if s.limits.Lifetime > 0 {
		c.end = time.Now().Add(s.limits.Lifetime)
	}
	s.mu.Lock()
	refused := s.admit(c)
	s.mu.Unlock()
	block.Add(counters.TCPAccepted, 1)
	if refused != counters.NotDropped {
		block.Add(counters.TCPClosed, 1)
		block.Add(counters.DroppedTCP+counters.ID(refused), 1)
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
	s.remove(c)
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
	if tc, ok := c.Conn.(interface{ CloseWrite() error }); ok && tc.CloseWrite() == nil {
		if c.SetReadDeadline(time.Now().Add(linger)) == nil {
			// Whatever ends the copy ends the wait.
			_, _ = io.Copy(io.Discard, c.Conn)
		}
	}
}

// errLifetime ends a connection that asks on and on.
var errLifetime = errors.New("the lifetime of the connection is over")

// AwaitQuery sets the read deadline for the next query: the idle time, or what
// a drain leaves of it. At the end of its lifetime a connection has as little as
// in a drain, and after as long as it may be idle, none: a client that pauses
// loses no query by the end.
func (c *Conn) AwaitQuery() error {
	c.looked = false
	idle := c.set.limits.Idle
	if c.set.draining.Load() {
		idle = min(idle, DrainIdle)
	}
	if !c.end.IsZero() {
		left := time.Until(c.end)
		if left < -c.set.limits.Idle {
			return errLifetime
		}
		idle = min(idle, max(left, DrainIdle))
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
	deadline := time.Now().Add(min(s.limits.Idle, DrainIdle))
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
	deadline := time.Now().Add(s.limits.Idle)
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
