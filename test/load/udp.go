package load

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// UDPConfig describes a group of UDP flows.
type UDPConfig struct {
	// Targets are the addresses asked; flow i asks Targets[i % len(Targets)].
	Targets []netip.AddrPort

	Flows int // number of flows, at least one
	Rate  int // requests per second of the whole group, at least one

	// Sources are local addresses to send from, beside 127.0.0.0/8 for an IPv4
	// target on loopback, which needs no mention. With none of the target's
	// family, each flow has a socket of its own.
	Sources []netip.Prefix

	// Sockets is how many sockets the flows of one target share at least (default
	// 4); a reuseport group spreads flows by address and port alike.
	Sockets int

	Protocol Protocol

	// Once sends one request per flow, in order, and then no more: one-shot
	// flows. Rate is then new flows per second.
	Once bool
}

// window is how long a request may stay open before its slot is needed for
// another one.
const window = 4 * time.Second

// slot is one request of a flow.
type slot struct {
	at    time.Duration // when it was sent, since the start
	seq   uint32
	state slotState
}

type slotState uint8

const (
	slotUnused slotState = iota
	slotOpen
	slotAnswered
)

// flow is one (source address, source port, target).
type flow struct {
	index   int
	target  []byte // sockaddr
	control []byte // chooses the source address; nil: the socket's
	next    uint32 // number of the next request
	oldest  uint32 // no request below it is open
	newest  uint32 // 1 + the highest number answered
	slots   []slot // power of two; request n is in slot n % len
}

// source is a socket and the flows that share it.
type source struct {
	fd     int
	target netip.AddrPort
	flows  []*flow
	byAddr map[netip.Addr]*flow // nil where there is one flow
}

// UDP is a running group of flows. Its methods are safe for concurrent use.
type UDP struct {
	c       UDPConfig
	epoll   int
	sources []*source
	order   []sending

	// The rest belongs to the loop's goroutine until done is closed.
	start    time.Time
	offered  uint64 // requests that were due
	cursor   int    // in order
	report   Report
	lastSeen time.Duration // of an answer
	tx       transmit
	rx       receive

	mu       sync.Mutex // guards stopping
	stopping bool
	stop     chan time.Duration // the grace
	ask      chan chan Report
	done     chan struct{}
	closed   sync.Once
}

// sending is one entry of the order in which flows take turns.
type sending struct {
	source *source
	flow   *flow
}

// StartUDP opens the sockets of a group and begins to send.
func StartUDP(c UDPConfig) (*UDP, error) {
	switch {
	case len(c.Targets) == 0:
		return nil, errors.New("starting UDP load: no target")
	case c.Flows < 1 || c.Rate < 1:
		return nil, fmt.Errorf("starting UDP load: %d flows at %d requests/s", c.Flows, c.Rate)
	case c.Protocol == nil:
		return nil, errors.New("starting UDP load: no protocol")
	}
	g := &UDP{c: c, epoll: -1, stop: make(chan time.Duration, 1), ask: make(chan chan Report), done: make(chan struct{})}
	g.report.init()
	if err := g.open(); err != nil {
		g.closeSockets()
		return nil, fmt.Errorf("starting UDP load: %w", err)
	}
	go g.run()
	return g, nil
}

// open lays the flows out over sockets and opens them.
func (g *UDP) open() error {
	var err error
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	slots := 64
	for int64(slots)*int64(g.c.Flows) < int64(g.c.Rate)*int64(window/time.Second) && slots < 1<<15 {
		slots *= 2
	}
	for t, target := range g.c.Targets {
		count := (g.c.Flows - t + len(g.c.Targets) - 1) / len(g.c.Targets)
		addrs := g.addresses(target.Addr())
		sockets := max(g.c.Sockets, 4)
		perSocket := 1
		if addrs != nil {
			perSocket = (count + sockets - 1) / sockets
		}
		for made := 0; made < count; {
			s, err := g.openSource(target)
			if err != nil {
				return err
			}
			for i := 0; i < perSocket && made < count; i++ {
				f := &flow{index: t + made*len(g.c.Targets), target: sockaddr(target), slots: make([]slot, slots)}
				if addrs != nil {
					addr := addrs(i)
					if !addr.IsValid() {
						break // the sources are used up: another socket
					}
					f.control = sourceControl(addr)
					s.byAddr[addr] = f
				}
				s.flows = append(s.flows, f)
				g.order = append(g.order, sending{s, f})
				made++
			}
		}
	}
	return nil
}

// addresses returns a function that gives the n-th local address for flows to
// target (invalid: there are no more), or nil where there is none to choose.
func (g *UDP) addresses(target netip.Addr) func(n int) netip.Addr {
	for _, p := range g.c.Sources {
		if p.Addr().Is4() == target.Is4() {
			return func(n int) netip.Addr { return nth(p, n+1) }
		}
	}
	if target.Is4() && target.IsLoopback() {
		return func(n int) netip.Addr { return nth(manyFrom, n+1) }
	}
	return nil
}

// nth returns address n of p, or the zero Addr where p has fewer.
func nth(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := len(b) - 1; i >= 0 && n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	if n > 0 || !p.Contains(a) {
		return netip.Addr{}
	}
	return a
}

func (g *UDP) openSource(target netip.AddrPort) (*source, error) {
	fd, err := openSocket(target.Addr())
	if err != nil {
		return nil, err
	}
	s := &source{fd: fd, target: target, byAddr: map[netip.Addr]*flow{}}
	g.sources = append(g.sources, s)
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(len(g.sources) - 1)} // an index: it is our data
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return nil, fmt.Errorf("epoll_ctl: %w", err)
	}
	return s, nil
}

// tick is how long the loop waits for answers before it looks whether requests
// are due: the granularity of pacing.
const tick = time.Millisecond

// run sends and receives until it is stopped and all is answered, or the grace
// is over. One goroutine does both, on its own thread: it blocks in epoll_wait.
func (g *UDP) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(g.done)
	g.start = time.Now()
	events := make([]unix.EpollEvent, 128)
	sending, deadline := true, time.Duration(0)
	for {
		now := time.Since(g.start)
		wait := int(tick / time.Millisecond)
		if sending {
			if more := g.sendDue(now); more {
				wait = 0
			}
		} else if g.report.Answered >= g.report.Sent || now > deadline {
			return
		}
		n, err := unix.EpollWait(g.epoll, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			g.report.fail(fmt.Errorf("waiting for answers: %w", err))
			return
		}
		for _, e := range events[:max(n, 0)] {
			g.receive(g.sources[e.Fd])
		}
		select {
		case grace := <-g.stop:
			if sending {
				g.report.Elapsed = time.Since(g.start)
			}
			sending, deadline = false, time.Since(g.start)+grace
		case reply := <-g.ask:
			reply <- g.snapshot()
		default:
		}
	}
}

// sendDue sends a batch of what is due and reports whether more is due at once.
func (g *UDP) sendDue(now time.Duration) (more bool) {
	due := uint64(now.Seconds() * float64(g.c.Rate))
	if g.c.Once {
		due = min(due, uint64(len(g.order)))
	}
	if due <= g.offered {
		return false
	}
	// What is over 50 ms late is not sent late, which would be another load than
	// the one asked for: it is skipped, and counted.
	if limit := uint64(max(g.c.Rate/20, batchSize)); due-g.offered > limit && !g.c.Once {
		skipped := due - g.offered - limit
		g.report.Skipped += skipped
		g.offered += skipped
	}
	g.offered += uint64(g.sendBatch(int(min(due-g.offered, batchSize)), now))
	return due > g.offered
}

// receive empties a socket.
func (g *UDP) receive(s *source) {
	for {
		n, err := g.rx.fill(s.fd)
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				g.report.fail(fmt.Errorf("receiving: %w", err))
			}
			return
		}
		now := time.Since(g.start)
		for i := range n {
			payload, from, at := g.rx.datagram(i)
			g.answer(s, payload, from, at, now)
		}
		if n < batchSize {
			return
		}
	}
}

// answer accounts for one datagram that came in.
func (g *UDP) answer(s *source, payload []byte, from netip.AddrPort, at netip.Addr, now time.Duration) {
	f := s.byAddr[at]
	if len(s.flows) == 1 {
		f = s.flows[0]
	}
	if f == nil || from != s.target {
		g.report.Stray++
		g.report.fail(fmt.Errorf("datagram from %v to %v, which no flow has asked", from, at))
		return
	}
	seq := f.oldest
	if id, ok := g.c.Protocol.ID(payload); ok {
		// The newest request sent with this ID.
		seq = f.next - 1 - (f.next-1-uint32(id))&0xffff
	}
	sl := &f.slots[seq%uint32(len(f.slots))]
	switch {
	case seq >= f.next, sl.seq != seq, sl.state == slotUnused:
		// With no request open, an answer without an ID is one too many.
		if f.next > 0 && seq == f.next {
			g.report.Duplicate++
		} else {
			g.report.Stray++
			g.report.fail(fmt.Errorf("answer to request %d of flow %d, which is not open", seq, f.index))
		}
		return
	case sl.state == slotAnswered:
		g.report.Duplicate++
		return
	}
	sl.state = slotAnswered
	g.report.Answered++
	for f.oldest < f.next && f.slots[f.oldest%uint32(len(f.slots))].state != slotOpen {
		f.oldest++
	}
	if seq+1 < f.newest {
		g.report.Reordered++
	}
	f.newest = max(f.newest, seq+1)
	g.report.Latency.Add(now - sl.at)
	// Silence only counts from when something was asked.
	if gap := now - max(g.lastSeen, sl.at); gap > g.report.Silence {
		g.report.Silence = gap
	}
	g.lastSeen = now
	tag, err := g.c.Protocol.Check(payload, f.index, seq)
	if err != nil {
		g.report.Malformed++
		g.report.fail(err)
		return
	}
	if tag != (Tag{}) {
		g.report.Tags[tag]++
	}
}

// snapshot returns a copy of the report so far.
func (g *UDP) snapshot() Report {
	r := g.report.clone()
	if r.Elapsed == 0 {
		r.Elapsed = time.Since(g.start)
	}
	r.Offered = g.offered
	for _, s := range g.sources {
		drops, err := socketDrops(s.fd)
		if err != nil {
			r.fail(fmt.Errorf("reading kernel drops: %w", err))
		}
		r.KernelDrops += uint64(drops)
	}
	return r
}

// Report returns the counts so far.
func (g *UDP) Report() Report {
	reply := make(chan Report, 1)
	select {
	case g.ask <- reply:
		return <-reply
	case <-g.done:
		return g.snapshot()
	}
}

// Stop ends the sending, waits up to grace for open requests to be answered and
// returns the final report. The sockets stay open; a second Stop returns the
// same report.
func (g *UDP) Stop(grace time.Duration) Report {
	g.mu.Lock()
	if !g.stopping {
		g.stopping = true
		g.stop <- grace
	}
	g.mu.Unlock()
	<-g.done
	return g.snapshot()
}

// Close stops the group, if it still runs, and closes its sockets.
func (g *UDP) Close() {
	g.Stop(0)
	g.closed.Do(g.closeSockets)
}

func (g *UDP) closeSockets() {
	for _, s := range g.sources {
		unix.Close(s.fd)
	}
	if g.epoll >= 0 {
		unix.Close(g.epoll)
	}
}
