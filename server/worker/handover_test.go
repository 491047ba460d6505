package worker

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/stream"
)

// watch is a service that sends every datagram back, and knows when somebody
// reads who must not.
type watch struct {
	dir    *directory.Directory
	epoch  uint32
	wrong  *atomic.Int64
	served atomic.Int64
}

func (s *watch) lane(int, *counters.Block) burst.Handler     { return s }
func (s *watch) streams(int, *counters.Block) stream.Handler { return nil }
func (s *watch) drain()                                      {}

// ServeBurst is called with what has just been read. While this lane has not
// acknowledged a park nobody flips, so the wire is still its own.
func (s *watch) ServeBurst(b *burst.Burst) {
	if s.dir.Owner().Epoch() != s.epoch {
		s.wrong.Add(1)
	}
	for i := range b.N {
		p := &b.Packets[i]
		p.Reply = append(p.Reply, p.Payload...)
	}
	s.served.Add(int64(b.N))
}

// While the wire goes back and forth between two generations, and some parks
// lapse, at most one of them reads at any time, and every datagram is answered,
// once.
func TestNeverTwoReaders(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.warnings = "the park lapsed"
	ap := w.listen(config.AffinityNone, false)
	var wrong atomic.Int64
	open := func(slot int) (*generation, *watch) {
		g := w.open(slot)
		s := &watch{dir: w.dir, epoch: g.epoch, wrong: &wrong}
		for _, l := range g.workers[0].lanes {
			l.handlers[0] = s
		}
		g.run()
		return g, s
	}
	a, as := open(0)
	b, bs := open(1)
	w.boot(a)

	var load sync.WaitGroup
	var stop atomic.Bool
	for n := range 8 { // by their ports they fall to both lanes
		load.Go(func() { ping(t, ap, n, &stop) })
	}
	owner, other := a, b
	flips, lapses := 0, 0
	for round := range 150 {
		span := lease
		if round%5 == 4 { // the flip may come too late
			span = time.Millisecond
		}
		deadline := mono.Millis() + uint32(span/time.Millisecond)
		word, err := w.dir.Park(deadline)
		if err != nil {
			t.Fatal(err)
		}
		if round%3 == 0 { // else the traffic tells them
			w.wakeAll()
		}
		acked := func() bool {
			for lane := range 2 {
				if w.dir.Ack(owner.slot, lane) != word {
					owner.wake()
					return false
				}
			}
			return true
		}
		until(t, "parked or lapsed", func() bool { return acked() || w.dir.Owner() != word })
		if span != lease && rand.IntN(2) == 0 {
			until(t, "lapsed", func() bool { return w.dir.Owner() != word })
		}
		w.dir.SetState(other.slot, directory.Active)
		w.dir.SetState(owner.slot, directory.Active)
		if !acked() {
			if w.dir.Owner() == word {
				t.Fatal("neither acknowledged nor lapsed")
			}
			lapses++
			w.wakeAll()
			continue
		}
		switch err := w.dir.Flip(word, other.epoch); {
		case err == nil:
			flips++
			owner, other = other, owner
			if flips%8 == 0 { // a busy machine might never get to read in between
				w.wakeAll()
				by := map[*generation]*atomic.Int64{a: &as.served, b: &bs.served}[owner]
				n := by.Load()
				until(t, "a datagram read by the new owner", func() bool { return by.Load() > n })
			}
		case errors.Is(err, directory.ErrMoved):
			lapses++
		default:
			t.Fatal(err)
		}
		w.wakeAll()
	}
	stop.Store(true)
	load.Wait()
	t.Logf("%d flips, %d lapses; %d datagrams by one, %d by the other", flips, lapses, as.served.Load(), bs.served.Load())
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d bursts were read by a generation that did not own the wire", n)
	}
	if flips < 100 || as.served.Load() == 0 || bs.served.Load() == 0 {
		t.Error("the wire has not changed hands")
	}
}

// ping sends numbered datagrams, a few at a time, until stop, and checks that each
// is answered once.
func ping(t *testing.T, to netip.AddrPort, client int, stop *atomic.Bool) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	const window = 8
	buf := make([]byte, 16)
	for base := uint32(0); !stop.Load(); base += window {
		for i := range uint32(window) {
			if _, err := c.Write(binary.BigEndian.AppendUint32(nil, base+i)); err != nil {
				t.Error(err)
				return
			}
		}
		var seen [window]bool
		for range window {
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Error(err)
				return
			}
			n, err := c.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("client %d: no answer to one of %d..%d: %v", client, base, base+window-1, seen)
				return
			}
			if err != nil || n != 4 {
				t.Errorf("client %d: %d octets, %v", client, n, err)
				return
			}
			i := binary.BigEndian.Uint32(buf) - base
			if i >= window || seen[i] {
				t.Errorf("client %d: an answer to %d, again or late", client, base+i)
				return
			}
			seen[i] = true
		}
	}
}
