package dispatch

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// While two lanes split bursts as fast as they can, the window of the old
// generation closes worker by worker, one of its workers dies, and its consumers
// come and go to sleep: every datagram is served once, by one process.
func TestConcurrent(t *testing.T) {
	const (
		rounds = 1500
		flows  = 48 // of the old generation
	)
	w := newWorld(t)
	w.open(0)
	for i := range flows {
		w.own(0, i%workers, i)
	}
	w.open(1)
	wid := w.drain(0)
	shared := w.rings(1 << 20)
	var wake [workers]chan struct{}
	for i := range wake {
		wake[i] = make(chan struct{}, 1)
	}
	seen := make([]atomic.Uint32, 2*rounds*burst.Max) // by datagram
	count := func(p *burst.Packet) { seen[binary.BigEndian.Uint32(p.Payload[4:])].Add(1) }

	var reading, consuming sync.WaitGroup
	var progress atomic.Int64
	var all [2]*Lane
	for n := range all {
		s := Setup{
			Slot: 1, Worker: n, Block: w.blocks.Block(1, n*lanes), Table: w.tables[1],
			Wake: func(_, worker int) {
				select {
				case wake[worker] <- struct{}{}:
				default:
				}
			},
		}
		var outlets []*ring.Producer
		for consumer := range workers {
			outlets = append(outlets, shared.Producer(n, consumer))
		}
		l := New(s)
		l.Know(0, w.dir.Generation(0).Epoch, w.tables[0], outlets)
		all[n] = l
		reading.Go(func() {
			version := uint64(0)
			look := func() {
				if v := w.dir.Version(); v != version {
					version = v
					l.Look(w.dir)
					takeBack(l, count)
				}
			}
			for r := range rounds {
				look()
				b := &burst.Burst{N: burst.Max, Now: int64(w.now)}
				for i := range b.N {
					id := make([]byte, 8)
					binary.BigEndian.PutUint32(id[4:], uint32((n*rounds+r)*burst.Max+i))
					b.Packets[i] = burst.Packet{Payload: id, Remote: client((r + i) % (2 * flows)), Local: local}
				}
				l.Split(b)
				for i := range b.N {
					count(&b.Packets[i])
				}
				progress.Add(1)
			}
			look()
		})
	}
	dead, gone := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	for worker := range workers {
		consuming.Go(func() {
			if worker == 1 {
				defer close(gone)
			}
			in := shared.Inbox(worker)
			d := ring.NewDrainer(in.Consumers())
			var b burst.Burst
			var from [burst.Max]ring.Source
			for {
				if worker == 1 {
					select {
					case <-dead:
						return
					default:
					}
				}
				in.Awake()
				if d.Fill(&b, &from) > 0 {
					for i := range b.N {
						count(&b.Packets[i])
					}
					d.Release()
					continue
				}
				if !in.PrepareSleep() {
					continue
				}
				select {
				case <-wake[worker]:
				case <-done:
					return
				case <-deadOf(worker, dead):
					return
				}
			}
		})
	}
	reach := func(part int64) { // of the bursts, in tenths
		for progress.Load() < part*2*rounds/10 {
			runtime.Gosched()
		}
	}
	reach(3)
	w.header(0, 0, table.Handed, wid)
	reach(5)
	close(dead)
	<-gone // a process is said to be gone when it is
	w.dir.Worker(0, 1).SetGone()
	reach(6)
	w.header(0, 1, table.Handed, wid)
	w.dir.Changed()
	reading.Wait()
	for _, l := range all { // the boundary after the last burst
		l.Look(w.dir)
		takeBack(l, count)
	}
	for worker := range workers {
		for lane := range all {
			for worker != 1 && !shared.Consumer(lane, worker).Empty() {
				runtime.Gosched()
			}
		}
	}
	close(done)
	consuming.Wait()

	dropped := uint64(0)
	for _, l := range all {
		dropped += l.Block.Load(ringFull)
	}
	missing := uint64(0)
	for id := range seen {
		switch n := seen[id].Load(); n {
		case 0:
			missing++
		case 1:
		default:
			t.Fatalf("datagram %d was served %d times", id, n)
		}
	}
	if missing != dropped {
		t.Errorf("%d datagrams are missing, %d were counted as dropped", missing, dropped)
	}
	if f := all[0].Block.Load(counters.ForwardedTo); f == 0 {
		t.Error("nothing was forwarded")
	}
}

// takeBack serves what the lane has taken back.
func takeBack(l *Lane, count func(*burst.Packet)) {
	d := ring.NewDrainer(l.TakenBack())
	var b burst.Burst
	var from [burst.Max]ring.Source
	for d.Fill(&b, &from) > 0 {
		for i := range b.N {
			count(&b.Packets[i])
		}
		d.Release()
	}
}

// deadOf returns when worker is to die: only worker 1 is.
func deadOf(worker int, dead <-chan struct{}) <-chan struct{} {
	if worker == 1 {
		return dead
	}
	return nil
}
