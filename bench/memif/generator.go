//go:build dpdk

package main

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dnsapp/dnsapp/bench/memif/link"
	"github.com/dnsapp/dnsapp/dpdk/eal"
)

// generator keeps a window of queries on their way. An answer's buffer takes the next
// query, so that buffers come from the pool and go back there in the beginning and
// for what is lost only.
type generator struct {
	q      eal.Queue
	frames []link.Frame
	window int
	b      *eal.Burst

	next   int
	flying int // sent and not answered
	stats  link.Result
}

// lostAfter is how long nothing must come for what is on its way to be lost.
const lostAfter = 20 * time.Millisecond

func (g *generator) run(warmup, length time.Duration) link.Result {
	g.spin(warmup)
	fmt.Println("begin")
	before, began := g.stats, time.Now()
	g.spin(length)
	elapsed := time.Since(began)
	fmt.Println("end")
	r := g.stats.Since(before)
	r.Elapsed = elapsed
	return r
}

// spin asks for so long.
func (g *generator) spin(length time.Duration) {
	began := time.Now()
	for heard, now := began, began; now.Sub(began) < length; now = time.Now() {
		switch got := g.q.Receive(g.b); {
		case got > 0:
			for i := range g.b.N {
				g.check(g.b.Data(i))
				g.fill(i)
			}
			heard = now
		case g.flying < g.window:
			if n := min(eal.MaxBurst, g.window-g.flying); g.b.Alloc(n) {
				for i := range n {
					g.fill(i)
				}
				g.flying += n
			}
		case now.Sub(heard) > lostAfter:
			g.stats.Lost += uint64(g.flying)
			g.flying, heard = 0, now
		}
		g.send()
	}
}

// send sends all that is in the burst. The other end makes room.
func (g *generator) send() {
	g.stats.Sent += uint64(g.b.N)
	began := time.Now()
	for g.b.N > 0 {
		if g.q.Send(g.b) == 0 && time.Since(began) > lostAfter {
			g.stats.Lost += uint64(g.b.N)
			g.flying -= g.b.N
			g.b.Free()
		}
	}
}

// fill makes buffer i the next query.
func (g *generator) fill(i int) {
	f := &g.frames[g.next]
	if g.next++; g.next == len(g.frames) {
		g.next = 0
	}
	g.b.Resize(i, copy(g.b.Buffer(i), f.Data))
}

// Where a DNS message begins in an Ethernet frame with IPv4 without options.
const atDNS = 14 + 20 + 8

// check looks whether a frame is the answer to one of the queries, whose number is
// its DNS identifier.
func (g *generator) check(b []byte) {
	if len(b) < atDNS+12 || b[12] != 8 || b[13] != 0 || b[14] != 0x45 || b[23] != 17 {
		g.stats.Other++
		return
	}
	id := int(binary.BigEndian.Uint16(b[atDNS:]))
	if id >= len(g.frames) || b[atDNS+2]&0x80 == 0 || b[atDNS+3]&15 != g.frames[id].Rcode {
		g.stats.Wrong++
		return
	}
	g.stats.Answered++
}

// echo answers each query with itself.
type echo struct {
	q eal.Queue
	b *eal.Burst
}

func (e *echo) run(warmup, length time.Duration) (r link.Result) {
	var driver time.Duration
	packets, polls := uint64(0), uint64(0)
	began, begun := time.Now(), false
	for {
		start := time.Now()
		if !begun && start.Sub(began) > warmup {
			begun = true
			fmt.Println("begin")
			began, driver, packets, polls = start, 0, 0, 0
		} else if begun && start.Sub(began) > length {
			break
		}
		n := e.q.Receive(e.b)
		if n == 0 {
			continue
		}
		received := time.Now()
		for i := range n {
			turn(e.b.Data(i))
		}
		sending := time.Now()
		for e.b.N > 0 {
			if e.q.Send(e.b) == 0 && time.Since(sending) > lostAfter { // the other end has gone
				e.b.Free()
			}
		}
		driver += received.Sub(start) + time.Since(sending)
		packets += uint64(n)
		polls++
	}
	fmt.Println("end")
	r.Elapsed, r.Answered, r.Bursts = time.Since(began), packets, polls
	if packets > 0 {
		r.DriverNs = float64(driver.Nanoseconds()) / float64(packets)
	}
	return r
}

// turn makes a query its own answer: addresses and ports change places, and the
// answer bit is set. Checksums stay right but for that bit, which nobody looks at.
func turn(b []byte) {
	if len(b) < atDNS+12 {
		return
	}
	swap(b[0:6], b[6:12])
	swap(b[26:30], b[30:34])
	swap(b[34:36], b[36:38])
	b[atDNS+2] |= 0x80
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
