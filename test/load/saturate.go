package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Saturation describes a closed-loop run that keeps a DNS server busy: a fixed
// number of queries is always on its way.
type Saturation struct {
	Target  netip.AddrPort
	Sockets int // each with a batch of 64 queries on its way
	Queries []Query

	// Flows is how many source addresses of 127.0.0.0/8 take turns: so many flows
	// for each socket, as far as the server can tell. 0 leaves each socket its own
	// address. More than it can ask within a flow's life make every query the first
	// of a flow, as random source ports do. Valid iff Target is IPv4 on loopback.
	Flows int

	Warmup time.Duration // not counted
	Length time.Duration // counted

	// Begin and End are called at the bounds of the counted time.
	Begin, End func()
}

// Saturated is what a closed-loop run came to.
type Saturated struct {
	Answered uint64
	Lost     uint64 // no answer within lostAfter
	Wrong    uint64 // another rcode than expected, or no answer at all
	Elapsed  time.Duration
}

// lostAfter is when a query that is not answered is given up: long after an
// answer must have come, and so soon that losses do not leave a server idle.
const lostAfter = 30 * time.Millisecond

// manyFrom has the source addresses of the flows of one socket.
var manyFrom = netip.MustParsePrefix("127.64.0.0/10")

// MaxFlows is how many flows a socket can have.
const MaxFlows = 1<<22 - 2

// nthOf4 returns address n of p, which must be IPv4 and have it, from 1 on.
func nthOf4(p netip.Prefix, n int) [4]byte {
	b := p.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n)+1)
	return b
}

// lane is one socket of a closed-loop run.
type lane struct {
	fd       int
	flows    int
	flow     int // the next one
	next     int // query
	inFlight int
	sentAt   time.Time // of the last batch
	slots    [batchSize]saturationSlot
	tx, rx   [batchSize]mmsghdr
	txIov    [batchSize]unix.Iovec
	rxIov    [batchSize]unix.Iovec
	txBuf    [batchSize][512]byte
	control  [batchSize][]byte // chooses the source address; valid iff flows > 0
	rxBuf    [batchSize][maxDatagram]byte
}

// saturationSlot is one query on its way; its index is the low 6 bits of the
// query's ID.
type saturationSlot struct {
	id    uint16
	open  bool
	query int32
	at    time.Time // when it was sent
}

// Run asks until the time is over. It spins: give it a processor of its own.
// An answer must have the ID and the rcode of its query; this is a measurement
// of speed, and the rest is for the tests.
func (c Saturation) Run() (Saturated, error) {
	if c.Flows < 0 || c.Flows > MaxFlows {
		return Saturated{}, fmt.Errorf("saturating: %d flows for each socket, at most %d can be had", c.Flows, MaxFlows)
	}
	wires := make([][]byte, len(c.Queries))
	for i, q := range c.Queries {
		var err error
		if wires[i], _, err = q.wire(); err != nil {
			return Saturated{}, err
		}
	}
	lanes := make([]*lane, c.Sockets)
	for i := range lanes {
		l, err := newLane(c.Target, c.Flows)
		if err != nil {
			return Saturated{}, err
		}
		defer unix.Close(l.fd)
		l.next = i * len(wires) / len(lanes)
		lanes[i] = l
	}
	var total, before Saturated
	counting := false
	start := time.Now()
	for {
		now := time.Now()
		switch {
		case !counting && now.Sub(start) >= c.Warmup:
			counting, before, start = true, total, now
			c.Begin()
		case counting && now.Sub(start) >= c.Length:
			c.End()
			return Saturated{
				Answered: total.Answered - before.Answered,
				Lost:     total.Lost - before.Lost,
				Wrong:    total.Wrong - before.Wrong,
				Elapsed:  now.Sub(start),
			}, nil
		}
		for _, l := range lanes {
			if err := l.refill(wires, now, &total); err != nil {
				return Saturated{}, err
			}
			if err := l.drain(c.Queries, &total); err != nil {
				return Saturated{}, err
			}
		}
	}
}

func newLane(target netip.AddrPort, flows int) (*lane, error) {
	fd, err := openSocket(target.Addr())
	if err != nil {
		return nil, err
	}
	l := &lane{fd: fd, flows: flows}
	if flows == 0 {
		var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(target.Port()), Addr: target.Addr().As16()}
		if target.Addr().Is4() {
			to = &unix.SockaddrInet4{Port: int(target.Port()), Addr: target.Addr().As4()}
		}
		if err := unix.Connect(fd, to); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("connecting a load socket: %w", err)
		}
	}
	for i := range batchSize {
		if flows > 0 { // a connected socket has one address
			name := sockaddr(target)
			h := &l.tx[i].hdr
			h.Name, h.Namelen = &name[0], uint32(len(name))
			l.control[i] = sourceControl(manyFrom.Addr())
			h.Control = &l.control[i][0]
			h.SetControllen(len(l.control[i]))
		}
		l.rxIov[i].Base = &l.rxBuf[i][0]
		l.rxIov[i].SetLen(maxDatagram)
		l.rx[i].hdr.Iov, l.rx[i].hdr.Iovlen = &l.rxIov[i], 1
		l.txIov[i].Base = &l.txBuf[i][0]
		l.tx[i].hdr.Iov, l.tx[i].hdr.Iovlen = &l.txIov[i], 1
	}
	return l, nil
}

// refill sends again once half of the batch has been answered.
func (l *lane) refill(wires [][]byte, now time.Time, total *Saturated) error {
	if l.inFlight > batchSize/2 && now.Sub(l.sentAt) < lostAfter {
		return nil
	}
	n := 0
	for i := range l.slots {
		s := &l.slots[i]
		if s.open {
			if now.Sub(s.at) < lostAfter {
				continue
			}
			total.Lost++
		}
		*s = saturationSlot{id: (s.id+batchSize)&^(batchSize-1) | uint16(i), query: int32(l.next), open: true, at: now}
		size := copy(l.txBuf[n][:], wires[l.next])
		binary.BigEndian.PutUint16(l.txBuf[n][:], s.id)
		l.txIov[n].SetLen(size)
		if l.flows > 0 {
			from := nthOf4(manyFrom, l.flow)
			copy(l.control[n][cmsgHeader+4:], from[:]) // as in sourceControl
			if l.flow++; l.flow == l.flows {
				l.flow = 0
			}
		}
		if l.next++; l.next == len(wires) {
			l.next = 0
		}
		n++
	}
	for sent := 0; sent < n; {
		k, err := sendmmsg(l.fd, l.tx[sent:n])
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("sending queries: %w", err)
		}
		sent += k
	}
	l.inFlight, l.sentAt = batchSize, now
	return nil
}

// drain takes what has been answered.
func (l *lane) drain(queries []Query, total *Saturated) error {
	n, err := recvmmsg(l.fd, l.rx[:])
	if err != nil {
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return nil
		}
		return fmt.Errorf("receiving answers: %w", err)
	}
	for i := range n {
		b := l.rxBuf[i][:l.rx[i].len]
		if len(b) < headerSize {
			total.Wrong++
			continue
		}
		id := binary.BigEndian.Uint16(b)
		s := &l.slots[id%batchSize]
		if !s.open || s.id != id {
			continue // given up, or answered twice
		}
		flags := binary.BigEndian.Uint16(b[2:])
		if want := queries[s.query].Rcode; flags&flagQR == 0 || flags&flagTC != 0 || want != AnyRcode && int(flags&maskRcode) != want {
			total.Wrong++
		}
		s.open = false
		l.inFlight--
		total.Answered++
	}
	return nil
}
