package fragment

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/counters"
)

var small = Config{Memory: 64 << 10, PerSource: 16 << 10, Timeout: 1000, Done: 128 << 10}

type harness struct {
	*Reassembler
	dropped [counters.NumReasons]uint64
	held    uint64
}

func newHarness(t testing.TB, cfg Config) *harness {
	t.Helper()
	h := &harness{}
	r, err := New(cfg, &h.dropped)
	if err != nil {
		t.Fatal(err)
	}
	h.Reassembler = r
	return h
}

func (h *harness) add(p *Part, now int64) (Datagram, Result) {
	d, res := h.Add(p, now)
	if res == Held {
		h.held++
	}
	return d, res
}

// check checks the ledger and the bounds.
func (h *harness) check(t interface{ Fatalf(string, ...any) }) {
	sum := h.Merged + uint64(h.Pending())
	for _, n := range h.dropped {
		sum += n
	}
	if sum != h.held {
		t.Fatalf("held %d, merged %d, pending %d, dropped %v", h.held, h.Merged, h.Pending(), h.dropped)
	}
	if h.Memory() > h.cfg.Memory {
		t.Fatalf("%d bytes held, allowed %d", h.Memory(), h.cfg.Memory)
	}
	used := 0
	for _, s := range h.bySource {
		if c := h.sources[s].charge * chunkSize; c > h.cfg.PerSource {
			t.Fatalf("one source holds %d bytes, allowed %d", c, h.cfg.PerSource)
		}
		used += h.sources[s].charge
	}
	if used*chunkSize < h.Memory() {
		t.Fatalf("%d bytes held, sources charged for %d", h.Memory(), used*chunkSize)
	}
}

func key(n int) Key { return Key{Src: [16]byte{15: byte(n), 14: byte(n >> 8)}, ID: 7, Proto: 17} }

// cut returns the fragments of payload, each of at most size bytes.
func cut(k Key, payload []byte, size int) (parts []Part) {
	for at := 0; at < len(payload); at += size {
		end := min(at+size, len(payload))
		parts = append(parts, Part{Key: k, Offset: at, More: end < len(payload), Next: 17, Data: payload[at:end]})
	}
	return parts
}

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// Fragments in any order, with duplicates among them, give the datagram, once.
func TestAnyOrder(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		h := newHarness(outer, Config{Memory: 256 << 10, PerSource: 256 << 10, Timeout: 1000, Done: 128 << 10})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		payload := random(rng, rapid.IntRange(1, maxDatagram).Draw(t, "length"))
		size := rapid.IntRange((len(payload)+8*maxFragments-1)/(8*maxFragments), 190).Draw(t, "size") * 8
		parts := cut(key(1), payload, size)
		for range rapid.IntRange(0, 5).Draw(t, "duplicates") {
			parts = append(parts, parts[rng.IntN(len(parts))])
		}
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		n := 0
		for i := range parts {
			d, res := h.add(&parts[i], 0)
			switch {
			case res == Complete:
				n++
				if !bytes.Equal(d.Buf[Room:], payload) || d.Next != 17 {
					t.Fatalf("%d bytes in fragments of %d came out changed", len(payload), size)
				}
			case res == Held, res == Duplicate:
			default:
				t.Fatalf("fragment %d of %d: result %d", i, len(parts), res)
			}
			h.check(t)
		}
		if n == 0 {
			t.Fatalf("%d bytes in fragments of %d, %d fragments: nothing came out", len(payload), size, len(parts))
		}
		h.Expire(1 << 40) // a duplicate after the last begins a datagram that nothing completes
		h.check(t)
		if n := h.Memory(); n != 0 {
			t.Fatalf("%d bytes still held", n)
		}
	})
}

// An overlap of any kind condemns the datagram, also its later fragments
// (RFC 5722 4), until the time-out; then the same name is good again.
func TestOverlap(t *testing.T) {
	data := random(rand.New(rand.NewPCG(1, 1)), 4000)
	part := func(from, to int, more bool) Part {
		return Part{Key: key(1), Offset: from, More: more, Data: data[from:to]}
	}
	changed := part(800, 1600, true)
	changed.Data = bytes.Repeat([]byte{1}, 800)
	for name, bad := range map[string]Part{
		"front":               part(400, 1200, true),
		"back":                part(1200, 2000, true),
		"inside":              part(808, 1000, true),
		"around":              part(0, 2400, true),
		"same start, shorter": part(800, 1000, true),
		"same end, shorter":   part(1000, 1600, true),
		"other bytes":         changed,
		"no longer the last":  part(3200, 4000, true),
		"an earlier last":     part(1600, 2400, false),
		"past the last":       {Key: key(1), Offset: 4000, More: true, Data: data[:8]},
	} {
		h := newHarness(t, small)
		good, last := part(800, 1600, true), part(3200, 4000, false)
		for _, p := range []*Part{&good, &last} {
			if _, res := h.add(p, 0); res != Held {
				t.Fatalf("%s: result %d", name, res)
			}
		}
		rest := part(1600, 3200, true)
		first := part(0, 800, true)
		for _, p := range []*Part{&bad, &first, &rest, &good, &last} {
			if _, res := h.add(p, 999); res != Overlap {
				t.Errorf("%s: result %d, want Overlap", name, res)
			}
		}
		if h.dropped[counters.DropFragOverlap] != 2 || h.Pending() != 0 || h.Memory() != 0 {
			t.Errorf("%s: %d dropped, %d pending, %d bytes", name, h.dropped[counters.DropFragOverlap], h.Pending(), h.Memory())
		}
		for i, p := range []*Part{&first, &good, &last, &rest} {
			if _, res := h.add(p, 1000); (res == Complete) != (i == 3) {
				t.Errorf("%s: after the time-out, fragment %d: result %d", name, i, res)
			}
		}
		h.check(t)
	}
}

func TestRefused(t *testing.T) {
	h := newHarness(t, small)
	for name, c := range map[string]struct {
		part Part
		want Result
	}{
		"empty":                  {Part{Offset: 8, More: true}, Odd},
		"not a multiple of 8":    {Part{More: true, Data: make([]byte, 12)}, Odd},
		"past 65,535 bytes":      {Part{Offset: 65528, Data: make([]byte, 8)}, TooLong}, // the ping of death
		"up to 65,535 bytes":     {Part{Offset: 65528, Data: make([]byte, 7)}, Held},
		"last, no multiple of 8": {Part{Key: key(2), Offset: 16, Data: make([]byte, 3)}, Held},
	} {
		if _, res := h.add(&c.part, 0); res != c.want {
			t.Errorf("%s: result %d, want %d", name, res, c.want)
		}
	}
	h.check(t)
}

// RFC 8200 4.5: what is not complete in time is given up, and counted.
func TestTimeout(t *testing.T) {
	h := newHarness(t, small)
	parts := cut(key(1), make([]byte, 24), 8)
	h.add(&parts[0], 10)
	h.add(&parts[1], 500)
	if at, ok := h.Deadline(); !ok || at != 1010 {
		t.Errorf("deadline %d, %v: later fragments must not extend it", at, ok)
	}
	if h.Expire(1009); h.Pending() != 2 {
		t.Errorf("given up early")
	}
	if h.Expire(1010); h.Pending() != 0 || h.dropped[counters.DropFragTimeout] != 2 {
		t.Errorf("%d pending, %d timed out", h.Pending(), h.dropped[counters.DropFragTimeout])
	}
	if _, res := h.add(&parts[2], 1010); res != Held {
		t.Errorf("the last fragment alone: result %d", res)
	}
	h.check(t)
}

// One source cannot hold more than its share; what it has over gives up its own
// oldest. A flood of sources gives up the oldest of all, so a datagram whose
// fragments come together is put together beside it.
func TestFlood(t *testing.T) {
	h := newHarness(t, small)
	for i := range 1000 {
		k := key(1)
		k.ID = uint32(i)
		h.add(&Part{Key: k, More: true, Data: make([]byte, 8)}, 0)
		h.check(t)
	}
	if h.Memory() != small.PerSource {
		t.Errorf("one source holds %d bytes, want %d", h.Memory(), small.PerSource)
	}
	for i := range 1000 {
		h.add(&Part{Key: key(1000 + i), More: true, Data: make([]byte, 8)}, 0)
		if i%10 == 0 {
			h.Reset()
			parts := cut(key(2), make([]byte, 4096), 1480)
			for j := range parts {
				if _, res := h.add(&parts[j], 0); (res == Complete) != (j == 2) {
					t.Fatalf("beside %d first fragments, fragment %d: result %d", i, j, res)
				}
			}
		}
		h.check(t)
	}
	big := cut(key(3), make([]byte, 60000), 1480) // more than one source may have
	for i := range big {
		if _, res := h.add(&big[i], 0); res == Complete {
			t.Error("a datagram larger than its source's share came out")
		}
		h.check(t)
	}
}

// Without room to give datagrams out they are dropped and counted, and Reset makes
// room.
func TestDone(t *testing.T) {
	h := newHarness(t, Config{Memory: 128 << 10, PerSource: 128 << 10, Timeout: 1000, Done: Room + maxDatagram})
	parts := cut(key(1), make([]byte, 40000), 1480)
	run := func() (res Result) {
		for i := range parts {
			_, res = h.add(&parts[i], 0)
		}
		h.check(t)
		return res
	}
	if a, b := run(), run(); a != Complete || b != Limit {
		t.Errorf("results %d and %d", a, b)
	}
	if h.dropped[counters.DropFragLimit] != uint64(len(parts)-1) {
		t.Errorf("%d dropped of %d", h.dropped[counters.DropFragLimit], len(parts))
	}
	h.Reset()
	if res := run(); res != Complete {
		t.Errorf("after Reset: result %d", res)
	}
}

// RFC 3168 5.3: congestion met by any fragment was met by the datagram.
func TestECN(t *testing.T) {
	h := newHarness(t, small)
	parts := cut(key(1), make([]byte, 24), 8)
	for i := range parts {
		parts[i].ECN = 2
	}
	parts[1].ECN = 3
	for i := range parts {
		if d, res := h.add(&parts[i], 0); res == Complete && d.ECN != 3 {
			t.Errorf("ECN %d, want 3", d.ECN)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	h := newHarness(t, small)
	parts := cut(key(1), make([]byte, 4096), 1480)
	if n := testing.AllocsPerRun(1000, func() {
		h.Reset()
		for i := range parts {
			h.add(&parts[i], 0)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a datagram", n)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{}, {Memory: 65<<10 + 1, PerSource: 4096, Timeout: 1, Done: 1 << 20}, {Memory: 64 << 10, PerSource: 1 << 20, Timeout: 1, Done: 1 << 20},
		{Memory: 64 << 10, PerSource: 4096, Timeout: 61e9, Done: 1 << 20}, {Memory: 64 << 10, PerSource: 4096, Timeout: 1, Done: 1000},
	} {
		if _, err := New(cfg, new([counters.NumReasons]uint64)); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// FuzzReassembler feeds fragments that bytes describe: no panic, the ledger and
// the bounds hold, and whatever comes out was sent.
func FuzzReassembler(f *testing.F) {
	f.Add([]byte{0, 0, 1, 1, 0, 1, 1, 1, 0, 2, 1, 0})
	f.Add([]byte{0, 2, 1, 0, 0, 0, 2, 1})
	f.Add([]byte{0, 0, 4, 1, 0, 2, 1, 1, 0, 4, 1, 0, 1, 0, 8, 0})
	f.Add(bytes.Repeat([]byte{3, 0, 255, 1, 2, 9, 9, 9}, 20))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHarness(t, small)
		data := make([]byte, 1<<17)
		for i := range data {
			data[i] = byte(i * 31 >> 3)
		}
		now := int64(0)
		for i := 0; len(b) >= 4; i++ {
			o, n := int(b[1])*8, int(b[2])*8
			if b[3]&2 != 0 {
				o *= 32
			}
			if b[3]&4 != 0 {
				n = n*4 + int(b[3]>>3)
			}
			p := Part{Key: key(int(b[0] & 7)), Offset: o, More: b[3]&1 != 0, Data: data[o : o+n]}
			p.ID = uint32(b[0] >> 5)
			d, res := h.add(&p, now)
			if res == Complete && !bytes.Equal(d.Buf[Room:], data[:len(d.Buf)-Room]) {
				t.Fatalf("%d bytes came out changed", len(d.Buf)-Room)
			}
			h.check(t)
			if b[0]&8 != 0 {
				h.Reset()
				now += 300
			}
			b = b[4:]
		}
		h.Expire(now + small.Timeout)
		if h.check(t); h.Pending() != 0 || h.Memory() != 0 || len(h.bySource) != 0 {
			t.Fatalf("%d fragments, %d bytes, %d sources left", h.Pending(), h.Memory(), len(h.bySource))
		}
	})
}

func BenchmarkFourKilobytes(b *testing.B) {
	h := newHarness(b, small)
	parts := cut(key(1), make([]byte, 4096), 1480)
	b.ReportAllocs()
	for range b.N {
		h.Reset()
		for i := range parts {
			h.add(&parts[i], 0)
		}
	}
}
