package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/internal/hold"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/trace"
	"github.com/dnsapp/dnsapp/udpflow/dispatch"
	"github.com/dnsapp/dnsapp/udpflow/proxy"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// How often a lane looks at the owner word unasked. Eventfds only hasten; these
// bound what a lost wake-up, or a dead supervisor, costs.
const (
	pollParked  = time.Millisecond       // while the word is a park
	pollWaiting = 5 * time.Millisecond   // ready, before the first flip
	pollStarved = 100 * time.Millisecond // out of descriptors for new connections
)

// pollEvery is how many bursts a busy lane serves between two looks at the
// sockets that were idle. A lane with a proxy looks every time: one flow's answers
// would not fit into its socket meanwhile.
const pollEvery = 8

// acceptMax bounds the connections accepted in one go, so that a flood of them
// does not keep datagrams waiting.
const acceptMax = 16

// stopBursts bounds what a lane still serves of a socket that it leaves for good.
const stopBursts = 1024

// Tokens of the poller: UDP sockets are numbered from 0 on, those of a proxy
// towards its servers from tokenFlow on, listeners from tokenTCP on down.
const (
	tokenWake int32 = -1
	tokenTCP  int32 = -2
	tokenFlow int32 = 1 << 16 // above directory.MaxSockets
)

// udpSocket is a UDP socket with the service behind it, in one lane.
type udpSocket struct {
	*netio.UDP
	owner    int  // worker that it is of: a sibling may stand in
	dispatch bool // affinity: flow
	reading  bool // this generation is its reader: it is in the poller
	ready    bool // it may have datagrams
	emptied  bool // the generation leaves, and what had waited is served
	errors   int  // in a row
}

// maxErrors is how many errors in a row a socket may give before it is left
// alone until its next event.
const maxErrors = 64

// tcpSocket is a listening socket, in one lane.
type tcpSocket struct {
	fd       int
	id       uint32
	listener int
	reading  bool
	ready    bool
}

// lane is one receive loop. Everything in it belongs to its goroutine.
type lane struct {
	log    *slog.Logger
	worker *Worker
	global int // number over all workers of the generation
	view   directory.LaneView
	block  *counters.Block
	wake   int // eventfd

	zoneUse *grace.Lane // nothing of a zone is held over a boundary

	poller *netio.Poller
	batch  *netio.Batch
	in     burst.Burst
	group  burst.Burst               // datagrams out of rings for one socket
	tap    atomic.Pointer[trace.Tap] // nil: nothing is traced

	sources  [burst.Max]ring.Source
	handlers []burst.Handler // by listener; nil where it has no UDP

	udp []*udpSocket // those this lane may read: its own, and those of siblings that it stands in for
	tcp []*tcpSocket

	absent   bool   // this worker may not read its sockets yet: a sibling still does
	standsIn uint64 // siblings whose sockets this lane reads, a bit each

	// Valid for the words below, which were read in this order.
	answered uint64
	version  uint64
	owner    directory.Word
	started  bool // has read since its generation first owned the wire
	noteRead bool // the next receive call is the first of this owner
	stopping bool // takes no new work, by order of the supervisor

	starved time.Time // until when no connection is accepted, for want of resources; zero: now

	proxy *proxy.Lane // nil: there is no proxy
	nic   *nic        // nil: the data path is sockets
	split *dispatch.Lane
	peers [directory.MaxSlots]*peer // those that split knows
	rings *ringReader               // nil unless this lane empties the worker's rings
}

// run serves until the worker quits.
func (l *lane) run() error {
	if l.nic != nil {
		defer l.nic.close()
	}
	return l.poller.Run(l.turn)
}

// attach joins the devices, where the data path is DPDK.
func (l *lane) attach(ctx context.Context) error {
	if l.nic == nil {
		return nil
	}
	return l.nic.attach(ctx)
}

// prepare gives the lane's burst empty answer buffers, to be filled from rings.
func (l *lane) prepare() {
	if l.nic != nil {
		l.nic.prepare(&l.in, burst.Max)
		return
	}
	l.batch.Prepare(&l.in, burst.Max)
}

// turn does everything there is to do, and reports whether the lane is to end.
func (l *lane) turn() bool {
	polled := false
	for round := 0; ; round++ {
		quit := l.worker.quit.Load()
		l.boundary() // a last one: what only this generation reads may have become its turn meanwhile
		if quit {
			return true
		}
		if !l.stopping && l.worker.stopping.Load() {
			l.stop()
		}
		busy := l.rings != nil && !l.mustHold() && l.rings.serve(l)
		if l.rings != nil && l.stopping && int(l.worker.stopped.Load()) == len(l.worker.lanes) {
			l.worker.closeUDP()
		}
		if l.nic != nil && l.nic.turn(busy) {
			continue
		}
		for _, s := range l.udp {
			if s.ready && s.reading {
				l.serve(s)
				busy = true
				l.boundary()
			}
		}
		if l.proxy != nil && l.proxy.Serve() {
			busy = true
		}
		for _, s := range l.tcp {
			if s.ready && s.reading && l.starved.IsZero() {
				l.accept(s)
				busy = true
			}
		}
		switch {
		case busy && l.proxy == nil && round%pollEvery != pollEvery-1:
		case !busy && polled:
			// Registration is edge-triggered: what became readable after the last
			// look wakes the poller again.
			if (l.rings == nil || l.rings.sleep()) && (l.proxy == nil || l.proxy.Sleep()) {
				l.setTimer()
				return false
			}
		default:
			polled = !l.poller.Ready(l.mark)
			l.acceptAgain()
		}
	}
}

// mustHold reports whether the lane can send nothing now: on a NIC, which the parked
// owner may not touch. It then serves nothing, for as long as a park is.
func (l *lane) mustHold() bool { return l.nic != nil && l.nic.parked }

// acceptAgain ends the wait for resources when its time has come. No event
// announces the connections that are queued.
func (l *lane) acceptAgain() {
	if l.starved.IsZero() || time.Now().Before(l.starved) {
		return
	}
	l.starved = time.Time{}
	for _, s := range l.tcp {
		s.ready = true
	}
}

// mark notes that the descriptor behind token may be readable.
func (l *lane) mark(token int32) {
	switch {
	case token == tokenWake: // the words are looked at at every boundary
	case token <= tokenTCP:
		l.tcp[tokenTCP-token].ready = true
	case l.nic != nil && token >= 0:
		l.nic.taps[token].ready = true
	case token >= tokenFlow:
		l.proxy.Ready(token - tokenFlow)
	case int(token) < len(l.udp): // else of a sibling that has come back
		l.udp[token].ready = true
	}
}

// boundary is the moment before each burst: the lane obeys the owner word and
// answers what the supervisor has asked.
func (l *lane) boundary() {
	l.zoneUse.Pass()
	if ask := l.view.Asked(); ask != l.answered {
		// The answer comes first: whoever sees it knows that everything it wrote
		// before it asked is loaded after this.
		l.view.SetAnswer(ask)
		l.answered = ask
		l.lookAtSlots()
	}
	if l.absent || l.view.Version() != l.version {
		l.lookAtSlots()
	}
	if w := l.view.Owner(); w != l.owner {
		l.ownerMoved(w)
	} else if w.IsPark() {
		l.stayParked()
	}
}

// ownerMoved obeys a new owner word.
func (l *lane) ownerMoved(w directory.Word) {
	wasParked := l.owner.IsPark()
	l.owner = w
	if w.IsPark() {
		if l.nic != nil {
			l.nic.park()
		}
		l.setReading(func(uint32) bool { return false })
		hold.At("ack")
		l.view.SetAck(w, l.started)
		return
	}
	l.lookAtSlots()
	if wasParked && w.Epoch() != l.worker.epoch && !l.view.Taken() {
		// The supervisor may have died right after the flip: whoever sees it
		// first tells the new readers.
		l.worker.wakeOwners(w.Epoch())
	}
}

// stayParked takes the wire back for the parked owner once the lease is over.
func (l *lane) stayParked() {
	now := mono.Millis()
	if hold.Enabled && l.owner.Lapsed(now) {
		hold.At("lapse")
	}
	if !l.view.Lapse(l.owner, now) {
		return
	}
	w := l.view.Owner()
	if w == directory.Run(l.owner.Epoch()) && l.owner.Lapsed(now) {
		l.log.Warn("the park lapsed before the flip", "lane", l.global, "word", w)
	}
	if w != l.owner {
		l.ownerMoved(w)
	}
}

// lookAtSlots reads the generation slots again: which sockets are this
// generation's to read, and which draining generations own flows.
func (l *lane) lookAtSlots() {
	l.version = l.view.Version()
	l.worker.meet(l)
	l.split.Look(l.worker.dir)
	if back := l.split.TakenBack(); len(back) > 0 && !l.mustHold() {
		l.takeBack(back)
	}
	if l.owner.IsPark() {
		return
	}
	epoch := l.owner.Epoch()
	l.lookAtSiblings()
	if l.nic != nil {
		l.nic.look()
		l.nic.leave(epoch)
	}
	for _, s := range l.udp {
		// Nobody reads on after us: what is queued would be lost with the socket.
		// (It may not be in the poller: the generation may have begun to leave before
		// this lane came to look after a park.)
		if !s.emptied && l.mayRead(s) && l.worker.dir.Leftover(epoch, s.ID, l.worker.slot) {
			s.emptied = true
			l.emptySocket(s)
		}
	}
	l.setReading(func(socket uint32) bool {
		return l.worker.dir.Reader(epoch, socket) == l.worker.slot
	})
	if !l.started && epoch == l.worker.epoch {
		l.started = true
		l.noteRead = true
	}
}

// mayRead reports whether this lane may read s when its generation may: no sibling
// does, and it has not been told to stop.
func (l *lane) mayRead(s *udpSocket) bool {
	return !l.stopping && !(l.absent && s.owner == l.worker.index)
}

// emptySocket serves what is queued on s.
func (l *lane) emptySocket(s *udpSocket) {
	s.ready = true
	for n := 0; s.ready && n < stopBursts; n++ {
		l.serve(s)
	}
}

// stop serves what is queued and then reads no more. A listener stops
// listening: new clients are refused at once and go elsewhere.
func (l *lane) stop() {
	for _, s := range l.tcp {
		if !s.reading {
			continue
		}
		for s.ready = true; s.ready; {
			l.accept(s)
		}
		if err := unix.Shutdown(s.fd, unix.SHUT_RD); err != nil && !errors.Is(err, unix.ENOTCONN) {
			l.log.Warn("a listener does not stop", "lane", l.global, "error", err)
		}
	}
	for _, s := range l.udp {
		if s.reading {
			l.emptySocket(s)
		}
	}
	if l.nic != nil {
		l.nic.empty()
	}
	l.stopping = true
	l.lookAtSlots()
	if int(l.worker.stopped.Add(1)) == len(l.worker.lanes) {
		netio.Wake(l.worker.lanes[0].wake)
		l.worker.reportDue()
	}
}

// setReading puts the sockets into the poller that this lane is to read, and
// takes the others out: a parked socket left in it would wake the lane for every
// datagram that another generation reads.
func (l *lane) setReading(want func(socket uint32) bool) {
	if l.nic != nil {
		l.nic.setReading(want)
	}
	for i, s := range l.udp {
		w := l.mayRead(s) && want(s.ID)
		if w == s.reading {
			continue
		}
		var err error
		if w {
			err = l.poller.Add(s.FD, int32(i))
		} else {
			err = l.poller.Remove(s.FD)
		}
		// What arrived meanwhile raised no event here: read until it is empty.
		s.reading, s.ready = w, w
		if err != nil {
			l.log.Error("socket is not watched", "lane", l.global, "error", err)
		}
	}
	for i, s := range l.tcp {
		w := !l.stopping && want(s.id)
		if w == s.reading {
			continue
		}
		var err error
		if w {
			err = l.poller.AddExclusive(s.fd, tokenTCP-int32(i))
		} else {
			err = l.poller.Remove(s.fd)
		}
		s.reading, s.ready = w, w
		if err != nil {
			l.log.Error("listener is not watched", "lane", l.global, "error", err)
		}
	}
}

// setTimer makes the lane take a turn without an event where nobody may be
// left to send one. A lane that has begun to read waits for events only.
func (l *lane) setTimer() {
	d := time.Duration(math.MaxInt64)
	switch {
	case l.owner.IsPark():
		d = pollParked
	case (!l.started || l.absent) && !l.stopping:
		d = pollWaiting
	case !l.starved.IsZero():
		d = time.Until(l.starved)
	}
	if l.nic != nil && l.nic.ticks != math.MaxInt64 {
		d = min(d, max(time.Duration(l.nic.ticks-mono.Now()), 0))
	}
	if l.proxy != nil {
		if wait, ok := l.proxy.Wait(); ok {
			d = min(d, wait)
		}
	}
	if d != math.MaxInt64 {
		l.poller.WakeAt(time.Now().Add(d))
	}
}

// serve moves one burst of s.
func (l *lane) serve(s *udpSocket) {
	if l.noteRead {
		l.view.NoteRead()
		l.noteRead = false
	}
	b := &l.in
	bytes, err := l.batch.Recv(s.UDP, b)
	if err != nil {
		switch {
		case errors.Is(err, unix.EAGAIN):
			s.ready = false
		case errors.Is(err, unix.EINTR):
		default: // an ICMP error of an earlier answer: the socket itself is fine
			l.log.Debug("receiving", "lane", l.global, "socket", s.ID, "error", err)
			if s.errors++; s.errors == maxErrors { // it is not: wait for its next event
				l.log.Error("a socket gives nothing but errors", "lane", l.global, "socket", s.ID, "error", err)
				s.ready, s.errors = false, 0
			}
		}
		return
	}
	s.errors = 0
	if b.N < burst.Max {
		s.ready = false
	}
	l.block.Add(counters.Received, uint64(b.N))
	l.block.Add(counters.RxBytes, bytes)
	l.block.Add(counters.Bursts, 1)
	b.Now = mono.Now()
	l.dropUnusable(b)
	if s.dispatch {
		l.split.Split(b)
	}
	l.answerVia(s.UDP, l.handlers[s.Listener], b, counters.Served, counters.Dropped)
}

// dropUnusable takes the datagrams out of b that no service can answer.
func (l *lane) dropUnusable(b *burst.Burst) {
	kept := 0
	for i := range b.N {
		if d := b.Packets[i].Drop; d != counters.NotDropped {
			l.block.Add(counters.Dropped+counters.ID(d), 1)
			continue
		}
		if kept != i {
			b.Packets[kept], b.Packets[i] = b.Packets[i], b.Packets[kept]
		}
		kept++
	}
	b.N = kept
}

// answerVia gives b to a service, sends the answers through u, and counts what
// became of each datagram.
func (l *lane) answerVia(u *netio.UDP, h burst.Handler, b *burst.Burst, served, dropped counters.ID) {
	if b.N == 0 {
		return
	}
	l.traceReceived(b)
	h.ServeBurst(b)
	sent := l.batch.Send(u, b)
	l.traceSent(b)
	l.block.Add(counters.Sent, sent.Packets)
	l.block.Add(counters.TxBytes, sent.Bytes)
	l.account(b, served, dropped)
}

// account counts what became of the datagrams of b, which has been answered.
func (l *lane) account(b *burst.Burst, served, dropped counters.ID) {
	gone := uint64(0)
	var classes [counters.NumClasses]uint64
	for i := range b.N {
		p := &b.Packets[i]
		if p.Drop != counters.NotDropped {
			l.block.Add(dropped+counters.ID(p.Drop), 1)
			gone++
			continue
		}
		if len(p.Reply) > 0 { // else it was consumed
			classes[min(p.Class, counters.NumClasses-1)]++
		}
	}
	n := uint64(b.N) - gone
	l.block.Add(served, n)
	took := mono.Now() - b.Now // for every datagram of the burst: they were answered together
	for c, n := range classes {
		if n != 0 {
			l.block.Add(counters.LatencyID(counters.UDP, counters.Class(c), took), n)
			l.block.Add(counters.LatencyNsID(counters.UDP, counters.Class(c)), n*uint64(took))
		}
	}
}

// accept takes connections from s.
func (l *lane) accept(s *tcpSocket) {
	for range acceptMax {
		fd, from, err := unix.Accept4(s.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.worker.serveConn(fd, from, s.listener, l.global%len(l.worker.lanes), l.block)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			l.block.Add(counters.TCPAcceptFailed, 1)
			if skipped, ok := l.worker.starved.Now(); ok {
				l.log.Warn("connections wait for resources: raise the limit of open files, or lower dns.tcp_connections", "lane", l.global, "error", err, "not_logged", skipped)
			}
			s.ready, l.starved = false, time.Now().Add(pollStarved)
			return
		default: // EAGAIN: all taken; EINVAL: not listening yet, which an event will end
			s.ready = false
			return
		}
	}
}
