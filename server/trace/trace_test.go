package trace

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/shm"
)

// pair returns the taps of so many lanes, and whom they feed.
func pair(t testing.TB, lanes, bytes int, filter string, snap int) ([]*Tap, *Source) {
	t.Helper()
	r := shm.Heap(regionSize(lanes, bytes))
	if err := Format(r, lanes, bytes); err != nil {
		t.Fatal(err)
	}
	f, err := Parse(filter)
	if err != nil {
		t.Fatal(err)
	}
	taps, err := Taps(r, f, snap)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(r)
	if err != nil {
		t.Fatal(err)
	}
	return taps, s
}

// exchange fills b with a query and an answer of this size each, from a client with this port.
func exchange(b *burst.Burst, port uint16, size int, now int64) {
	p := &b.Packets[b.N]
	*p = burst.Packet{
		Remote: burst.EndpointOf(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), Local: burst.EndpointOf(netip.MustParseAddrPort("198.51.100.9:53")),
		Payload: bytes.Repeat([]byte{byte(port)}, size), Reply: bytes.Repeat([]byte{^byte(port)}, size),
	}
	b.N++
	b.Now = now
}

// all takes everything that is there, as text.
func all(s *Source) (list []string) {
	s.Look()
	for r := s.Peek(); r != nil; r = s.Peek() {
		list = append(list, fmt.Sprintf("%d %v>%v %x/%d %v %v", r.Time, r.Src.AddrPort(), r.Dst.AddrPort(), r.Data, r.Length, r.Sent, r.Frame))
		s.Take()
	}
	s.Release()
	return list
}

// What lanes copy comes out by time, with addresses turned for what was sent, and
// cut to the snap length. What was dropped was not sent.
func TestCopies(t *testing.T) {
	taps, s := pair(t, 2, minRing, "", 2)
	var b burst.Burst
	exchange(&b, 7, 3, 200)
	taps[0].Received(&b)
	taps[0].Sent(&b, 300)
	b.N = 0
	exchange(&b, 8, 1, 100)
	exchange(&b, 9, 1, 100)
	exchange(&b, 10, 0, 100) // an answer that is an empty datagram
	exchange(&b, 11, 0, 100) // and one that is none
	b.Packets[1].Drop = counters.DropMalformed
	b.Packets[2].Empty = true
	taps[1].Received(&b)
	taps[1].Sent(&b, 250)
	frame := []byte{1, 2, 3}
	taps[1].Frame(frame, 400, true)
	if got := all(s); len(got) != 8 { // the frame waits for Flush
		t.Fatalf("%q", got)
	}
	taps[1].Flush()
	taps[0].Datagram(&b.Packets[0].Local, &b.Packets[0].Remote, []byte{1}, []byte{2, 3, 4}, 500, true)
	taps[0].Datagram(&b.Packets[0].Local, &b.Packets[0].Remote, []byte{1, 5, 6}, []byte{2}, 501, true)
	taps[0].Flush()
	got := all(s)
	want := []string{
		"400 invalid AddrPort>invalid AddrPort 0102/3 true true",
		"500 198.51.100.9:53>192.0.2.1:8 0102/4 true false",
		"501 198.51.100.9:53>192.0.2.1:8 0105/4 true false",
	}
	want[0] = fmt.Sprintf("400 %v>%v 0102/3 true true", burst.Endpoint{}.AddrPort(), burst.Endpoint{}.AddrPort())
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if copied, dropped := s.Counts(); copied != 11 || dropped != 0 {
		t.Errorf("%d copied, %d dropped", copied, dropped)
	}
	taps, s = pair(t, 2, minRing, "outbound and port 8", 100)
	b.Packets[1].Drop = counters.NotDropped
	for _, tap := range taps {
		tap.Received(&b)
		tap.Sent(&b, 7)
	}
	if got := all(s); fmt.Sprint(got) != "[7 198.51.100.9:53>192.0.2.1:8 f7/1 true false 7 198.51.100.9:53>192.0.2.1:8 f7/1 true false]" {
		t.Errorf("%q", got)
	}
}

// A ring that is full drops and counts, and takes copies again when it was read.
func TestFull(t *testing.T) {
	taps, s := pair(t, 1, minRing, "", 1<<16)
	taken := 0
	for round := range 3 {
		var b burst.Burst
		for range burst.Max {
			exchange(&b, 1, 1000, int64(round))
		}
		before := taken
		for range 4 {
			taps[0].Received(&b)
		}
		taken += len(all(s))
		copied, dropped := s.Counts()
		if taken == before || int(copied) != taken || int(copied+dropped) != (round+1)*4*burst.Max || dropped == 0 {
			t.Fatalf("round %d: %d taken, %d copied, %d dropped", round, taken, copied, dropped)
		}
	}
}

// The largest datagram comes whole through a ring of the usual size; through the
// smallest, as much of it as the ring takes.
func TestLargest(t *testing.T) {
	for bytes, want := range map[int]int{maxRing: burst.MaxPayload, minRing: minRing/2 - 80} {
		taps, s := pair(t, 1, bytes, "", 1<<16)
		var b burst.Burst
		exchange(&b, 1, burst.MaxPayload, 1)
		taps[0].Received(&b)
		s.Look()
		r := s.Peek()
		if r == nil {
			t.Fatalf("ring of %d: nothing", bytes)
		}
		if len(r.Data) != want || r.Length != burst.MaxPayload {
			t.Errorf("ring of %d: %d octets, want %d, of %d", bytes, len(r.Data), want, r.Length)
		}
	}
}

// A lane and the watcher at the same time, in memory that the race detector sees.
func TestConcurrent(t *testing.T) {
	taps, s := pair(t, 1, minRing, "", 1<<16)
	const bursts = 20_000
	var over atomic.Bool
	go func() {
		var b burst.Burst
		for i := range bursts {
			b.N = 0
			exchange(&b, uint16(i), i%50, int64(i))
			taps[0].Received(&b)
		}
		over.Store(true)
	}()
	taken, last := uint64(0), int64(-1)
	for done := false; !done; {
		done = over.Load()
		s.Look()
		for r := s.Peek(); r != nil; r = s.Peek() {
			if r.Time <= last || len(r.Data) != int(r.Time%50) || len(r.Data) > 0 && r.Data[0] != byte(r.Time) {
				t.Fatalf("after %d: %+v", last, r)
			}
			last = r.Time
			taken++
			s.Take()
		}
		s.Release()
	}
	copied, dropped := s.Counts()
	t.Logf("%d taken, %d dropped", copied, dropped)
	if taken != copied || copied+dropped != bursts || taken < bursts/100 {
		t.Errorf("%d taken, %d copied, %d dropped", taken, copied, dropped)
	}
}

// The memory of four generations is bounded, and a region that is none is refused.
func TestRegion(t *testing.T) {
	for lanes, want := range map[int]int{1: maxRing, 8: maxRing, 9: maxRing / 2, 64: 256 << 10, 256: minRing} {
		if got := RingBytes(lanes); got != want || 4*lanes*got > maxMemory {
			t.Errorf("%d lanes: rings of %d", lanes, got)
		}
	}
	r := shm.Heap(regionSize(2, minRing))
	if _, err := Taps(r, nil, 1); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("an empty region: %v", err)
	}
	short := shm.Heap(regionSize(2, minRing) - countsSize)
	if err := Format(short, 2, minRing); err != nil {
		t.Fatal(err)
	}
	if _, err := NewSource(short); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("a region without room for counts: %v", err)
	}
	m, err := Create(2, minRing)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoAllocation(t *testing.T) {
	taps, s := pair(t, 1, maxRing, "udp port 53 and not host 192.0.2.9", 1<<16)
	var b burst.Burst
	for i := range burst.Max {
		exchange(&b, uint16(i), 60, 1)
	}
	frame := make([]byte, 100)
	if n := testing.AllocsPerRun(1000, func() {
		taps[0].Received(&b)
		taps[0].Sent(&b, 2)
		taps[0].Datagram(&b.Packets[0].Local, &b.Packets[0].Remote, frame[:10], frame, 3, true)
		taps[0].Frame(frame, 4, false)
		taps[0].Flush()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if copied, dropped := s.Counts(); copied == 0 || dropped == 0 {
		t.Errorf("%d copied, %d dropped: not both ways were taken", copied, dropped)
	}
}

// What a burst of 64 costs a lane: nothing is traced, nothing is wanted, all is.
func BenchmarkBurst(b *testing.B) {
	var in burst.Burst
	for i := range burst.Max {
		exchange(&in, uint16(i), 60, 1)
	}
	b.Run("off", func(b *testing.B) {
		var tap atomic.Pointer[Tap]
		for b.Loop() {
			if t := tap.Load(); t != nil {
				t.Received(&in)
			}
			if t := tap.Load(); t != nil {
				t.Sent(&in, 1)
			}
		}
	})
	for name, filter := range map[string]string{"none-matches": "host 203.0.113.1", "all": ""} {
		b.Run(name, func(b *testing.B) {
			taps, s := pair(b, 1, maxRing, filter, 1<<16)
			for b.Loop() {
				taps[0].Received(&in)
				taps[0].Sent(&in, 1)
				s.Look()
				for s.Peek() != nil {
					s.Take()
				}
				s.Release()
			}
		})
	}
}
