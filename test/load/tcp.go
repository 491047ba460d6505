package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// TCPConfig describes a group of clients that ask over TCP.
type TCPConfig struct {
	// Targets are the addresses asked; client i asks Targets[i % len(Targets)].
	Targets []netip.AddrPort

	Clients int // each keeps one connection at a time, at least one
	Rate    int // requests per second of the whole group, at least one

	// PerConn is how many requests a connection carries before its client closes
	// it: 1 is a connection per request, 0 goes on until the server closes it.
	// Requests are pipelined: they leave when they are due, answered or not.
	PerConn int

	Protocol Protocol
}

// TCP is a running group of clients. Its methods are safe for concurrent use.
type TCP struct {
	c       TCPConfig
	start   time.Time
	ctx     context.Context // ends the sending
	cancel  context.CancelFunc
	clients sync.WaitGroup // senders
	readers sync.WaitGroup

	mu       sync.Mutex // guards what follows
	report   Report
	live     map[*stream]struct{}
	stopped  bool
	deadline time.Time // of reads, once stopped
	last     time.Duration
}

// StartTCP begins to connect and to send.
func StartTCP(c TCPConfig) (*TCP, error) {
	switch {
	case len(c.Targets) == 0:
		return nil, errors.New("starting TCP load: no target")
	case c.Clients < 1 || c.Rate < 1:
		return nil, fmt.Errorf("starting TCP load: %d clients at %d requests/s", c.Clients, c.Rate)
	case c.Protocol == nil:
		return nil, errors.New("starting TCP load: no protocol")
	}
	g := &TCP{c: c, start: time.Now(), live: map[*stream]struct{}{}}
	g.report.init()
	g.ctx, g.cancel = context.WithCancel(context.Background())
	for i := range c.Clients {
		g.clients.Go(func() { g.client(i) })
	}
	return g, nil
}

// client sends one client's share of the load.
func (g *TCP) client(i int) {
	target := g.c.Targets[i%len(g.c.Targets)]
	interval := time.Duration(float64(time.Second) * float64(g.c.Clients) / float64(g.c.Rate))
	next := g.start.Add(interval * time.Duration(i) / time.Duration(g.c.Clients)) // clients take turns
	timer := time.NewTimer(0)
	defer timer.Stop()
	var s *stream
	for connections := 0; ; {
		timer.Reset(time.Until(next))
		select {
		case <-g.ctx.Done():
			return
		case <-timer.C:
		}
		// As with UDP: what is over 50 ms late is skipped.
		due := 1 + int(time.Since(next)/interval)
		skip := max(0, due-max(1, int(50*time.Millisecond/interval)))
		next = next.Add(interval * time.Duration(skip+1))
		g.count(func(r *Report) { r.Offered += uint64(skip) + 1; r.Skipped += uint64(skip) })
		if s == nil || !s.usable() {
			conn, err := g.dial(target, i, connections)
			if err != nil {
				if g.ctx.Err() != nil {
					err = nil
				}
				g.count(func(r *Report) {
					r.Skipped++
					if err != nil {
						r.Refused++
						r.fail(err)
					}
				})
				continue
			}
			s = g.newStream(conn, i)
			connections++
		}
		s.send(g)
	}
}

// dial connects from an address of its own where the target allows it, so that
// connections by the thousand do not use up the ports.
func (g *TCP) dial(target netip.AddrPort, client, connection int) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if target.Addr().Is4() && target.Addr().IsLoopback() {
		from := nth(netip.MustParsePrefix("127.128.0.0/10"), 1+client*4096+connection%4096)
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	conn, err := d.DialContext(g.ctx, "tcp", target.String())
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}

func (g *TCP) count(f func(*Report)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.report)
}

// stream is one connection.
type stream struct {
	conn   net.Conn
	client int
	buf    []byte // of the sender

	mu     sync.Mutex // guards what follows
	open   map[uint32]time.Duration
	sent   uint32 // number of the next request
	oldest uint32 // no request below it is open
	over   bool   // no further request may be sent
}

func (g *TCP) newStream(conn net.Conn, client int) *stream {
	s := &stream{conn: conn, client: client, open: map[uint32]time.Duration{}}
	g.mu.Lock()
	g.report.Connected++
	g.live[s] = struct{}{}
	if g.stopped {
		_ = conn.SetReadDeadline(g.deadline)
	}
	g.mu.Unlock()
	g.readers.Go(func() { s.read(g) })
	return s
}

func (s *stream) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over
}

// send sends the next request. Once it is registered it counts as sent: a
// connection that breaks under it has lost it.
func (s *stream) send(g *TCP) {
	s.mu.Lock()
	if s.over { // ended since the caller looked: the request goes unsent
		s.mu.Unlock()
		g.count(func(r *Report) { r.Skipped++ })
		return
	}
	seq := s.sent
	s.sent++
	s.open[seq] = time.Since(g.start)
	s.over = g.c.PerConn > 0 && int(s.sent) == g.c.PerConn
	request := g.c.Protocol.AppendRequest(nil, s.client, seq)
	s.buf = g.c.Protocol.AppendFrame(s.buf[:0], request)
	s.mu.Unlock()
	g.count(func(r *Report) { r.Sent++ })
	// A failed write shows on the reading side, where it is accounted for.
	_, _ = s.conn.Write(s.buf)
}

// read accounts for answers until the connection ends.
func (s *stream) read(g *TCP) {
	r := bufio.NewReaderSize(s.conn, maxDatagram)
	var frame []byte
	var err error
	for !s.finished() {
		if frame, err = g.c.Protocol.ReadFrame(r, frame); err != nil {
			break
		}
		s.answer(g, frame)
	}
	s.mu.Lock()
	s.over = true
	open := len(s.open)
	s.mu.Unlock()
	s.conn.Close()

	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, s)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return // the client is done with it
	}
	g.report.ServerClose++
	if open > 0 {
		g.report.CutOff++
	}
	if open > 0 || !errors.Is(err, io.EOF) {
		g.report.fail(fmt.Errorf("connection of client %d ended after %d requests with %d open: %w", s.client, s.sent, open, err))
	}
}

// finished reports whether the client has nothing more to do on s.
func (s *stream) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over && len(s.open) == 0
}

func (s *stream) answer(g *TCP, frame []byte) {
	s.mu.Lock()
	seq := s.oldest
	if id, ok := g.c.Protocol.ID(frame); ok {
		seq = s.sent - 1 - (s.sent-1-uint32(id))&0xffff
	}
	at, open := s.open[seq]
	delete(s.open, seq)
	reordered := open && seq != s.oldest
	for s.oldest < s.sent {
		if _, still := s.open[s.oldest]; still {
			break
		}
		s.oldest++
	}
	known := seq < s.sent
	s.over = s.over || g.c.Protocol.Leave(frame)
	tag, err := g.c.Protocol.Check(frame, s.client, seq)
	s.mu.Unlock()

	now := time.Since(g.start)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !open && known:
		g.report.Duplicate++
		return
	case !open:
		g.report.Stray++
		return
	case err != nil:
		g.report.Malformed++
		g.report.fail(err)
	case tag != (Tag{}):
		g.report.Tags[tag]++
	}
	if reordered {
		g.report.Reordered++
	}
	g.report.Answered++
	g.report.Latency.Add(now - at)
	g.report.Silence = max(g.report.Silence, now-max(g.last, at))
	g.last = now
}

// Report returns the counts so far.
func (g *TCP) Report() Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.report.clone()
	if r.Elapsed == 0 {
		r.Elapsed = time.Since(g.start)
	}
	return r
}

// Stop ends the sending, waits up to grace for open requests to be answered,
// closes the connections and returns the final report.
func (g *TCP) Stop(grace time.Duration) Report {
	g.cancel()
	g.clients.Wait()
	g.mu.Lock()
	if !g.stopped {
		g.stopped = true
		g.report.Elapsed = time.Since(g.start)
		g.deadline = time.Now().Add(grace)
		for s := range g.live {
			s.retire(g.deadline)
		}
	}
	g.mu.Unlock()
	g.readers.Wait()
	return g.Report()
}

// retire lets the reader end: at once where nothing is open, else with the last
// answer or at the deadline.
func (s *stream) retire(deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if len(s.open) == 0 {
		deadline = time.Now()
	}
	_ = s.conn.SetReadDeadline(deadline)
}
