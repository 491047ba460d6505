package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/dnsapp/dnsapp/internal/layouttest"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/shm"
)

func TestLayout(t *testing.T) {
	var d layouttest.Dump
	d.Struct("top", &top{})
	d.Struct("wake", &wake{})
	d.Struct("control", &control{})
	d.Value("topOffset", topOffset)
	d.Value("wakeOffset", wakeOffset)
	d.Value("controlOffset(2)", controlOffset(2))
	d.Value("dataOffset(3, 2)", dataOffset(3, 2))
	d.Value("RegionSize(3, 2, 4096)", RegionSize(3, 2, 4096))
	d.Value("recordSize(0 1 8)", []uint64{recordSize(0), recordSize(1), recordSize(8)})
	d.Value("padLength", padLength)
	d.Value("mark(0 8)", []uint32{mark(0), mark(8)})
	b := make([]byte, recordSize(3))
	encode(b, 1<<35, numbered(0x0102, []byte("abc")), 0x1112131415161718, 0x2122)
	d.Value("record", b)
	layouttest.Check(t, Layout, &d)
	if MaxLanes != directory.MaxLanes || MaxWorkers != directory.MaxWorkers {
		t.Errorf("up to %d lanes and %d workers, not those of the directory", MaxLanes, MaxWorkers)
	}
}

// numbered returns a packet that carries n in every field of its record.
func numbered(n int, payload []byte) *burst.Packet {
	p := &burst.Packet{
		Payload: payload,
		Remote:  burst.EndpointOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), uint16(n+1))),
		Local:   burst.EndpointOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), uint16(n+2))),
		IfIndex: uint32(n + 3),
		Socket:  uint32(n + 4),
		ECN:     uint8(n & 3),
		Way:     uint64(n)<<32 + 7,
	}
	p.Remote.Scope, p.Local.Scope = uint32(n+5), uint32(n+6)
	return p
}

// fill returns n bytes that tell seq and every offset apart.
func fill(seq, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seq*31 + i)
	}
	return b
}

// push pushes the record with this number, and a payload of n bytes.
func push(p *Producer, seq, n int) bool {
	return p.Push(numbered(seq, fill(seq, n)), int64(seq)*1000, uint16(seq))
}

// check fails t if what was read is not the record with this number.
func check(t interface{ Fatalf(string, ...any) }, seq, n int, got *burst.Packet, m Meta) {
	want := numbered(seq, fill(seq, n))
	if !bytes.Equal(got.Payload, want.Payload) {
		t.Fatalf("record %d: payload of %d bytes, pushed with %d", seq, len(got.Payload), n)
	}
	if got.Remote != want.Remote || got.Local != want.Local || got.IfIndex != want.IfIndex || got.Socket != want.Socket || got.ECN != want.ECN || got.Way != want.Way {
		t.Fatalf("record %d: read %+v, pushed %+v", seq, got, want)
	}
	if m.Rx != int64(seq)*1000 || m.Segment != uint16(seq) {
		t.Fatalf("record %d: meta %+v", seq, m)
	}
}

func TestFormatRefuses(t *testing.T) {
	good := RegionSize(2, 2, MinBytes)
	for name, c := range map[string]struct{ lanes, workers, bytes, region int }{
		"no lanes":           {0, 2, MinBytes, good},
		"negative lanes":     {-1, 2, MinBytes, good},
		"too many lanes":     {MaxLanes + 1, 1, MinBytes, RegionSize(MaxLanes+1, 1, MinBytes)},
		"no workers":         {2, 0, MinBytes, good},
		"too many workers":   {1, MaxWorkers + 1, MinBytes, RegionSize(1, MaxWorkers+1, MinBytes)},
		"no bytes":           {2, 2, 0, good},
		"few bytes":          {2, 2, MinBytes / 2, good},
		"not a power of two": {2, 2, MinBytes + 8, 2 * good},
		"too many bytes":     {1, 1, 2 * MaxBytes, good},
		"region too small":   {2, 2, MinBytes, good - 8},
		"region of headers":  {1, 1, MinBytes, 128},
	} {
		if _, err := Format(shm.Heap(c.region), c.lanes, c.workers, c.bytes); !errors.Is(err, shm.ErrLayout) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A region whose numbers another process has rewritten is refused, not believed.
func TestAttachRefusesDamage(t *testing.T) {
	for name, damage := range map[string]func(*top){
		"no lanes":         func(h *top) { h.Lanes.Store(0) },
		"more lanes":       func(h *top) { h.Lanes.Store(200) },
		"endless lanes":    func(h *top) { h.Lanes.Store(1 << 63) },
		"more workers":     func(h *top) { h.Workers.Store(64) },
		"endless workers":  func(h *top) { h.Workers.Store(1 << 62) },
		"more bytes":       func(h *top) { h.Bytes.Store(MaxBytes) },
		"endless bytes":    func(h *top) { h.Bytes.Store(1 << 63) },
		"no power of two":  func(h *top) { h.Bytes.Store(MinBytes - 8) },
		"everything large": func(h *top) { h.Lanes.Store(MaxLanes); h.Workers.Store(MaxWorkers); h.Bytes.Store(MaxBytes) },
	} {
		r := shm.Heap(RegionSize(2, 2, MinBytes))
		if _, err := Format(r, 2, 2, MinBytes); err != nil {
			t.Fatal(err)
		}
		if _, err := Attach(r); err != nil {
			t.Fatal(err)
		}
		damage(shm.View[top](r, topOffset))
		if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Attach(shm.Heap(4096)); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("unformatted region: error %v", err)
	}
	r := shm.Heap(64)
	r.Format(shm.KindRings, Layout)
	r.Publish()
	if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("region without room for the headers: error %v", err)
	}
}

// The rings of a matrix do not touch each other, nor the words before them.
func TestRingsAreApart(t *testing.T) {
	const lanes, workers = 3, 2
	r := newRings(t, lanes, workers, MinBytes)
	for l := range lanes {
		for w := range workers {
			p := r.Producer(l, w)
			for push(p, l*workers+w, 500) {
			}
			p.Publish()
		}
	}
	for w := range workers {
		for l, c := range r.Inbox(w).Consumers() {
			n := 0
			var pkt burst.Packet
			var m Meta
			for c.Next(c.Tail(), &pkt, &m) {
				check(t, l*workers+w, 500, &pkt, m)
				n++
			}
			if want := MinBytes / int(recordSize(500)); n != want || c.Damaged() != 0 {
				t.Errorf("lane %d, worker %d: %d records, damage %d; want %d", l, w, n, c.Damaged(), want)
			}
		}
	}
}

// A record is seen when it is published, and its room is the producer's again when
// it is released.
// Fill is that of the fullest ring to a worker, of what is published.
func TestFill(t *testing.T) {
	r := newRings(t, 2, 2, MinBytes)
	p, c := r.Producer(1, 0), r.Consumer(1, 0)
	for range 4 {
		push(p, 1, 100)
	}
	if got := r.Fill(0); got != 0 {
		t.Errorf("before it is published: %v", got)
	}
	p.Publish()
	if got, want := r.Fill(0), 4*float64(recordSize(100))/MinBytes; got != want || r.Fill(1) != 0 {
		t.Errorf("%v and %v, want %v and 0", got, r.Fill(1), want)
	}
	var pkt burst.Packet
	var m Meta
	for c.Next(c.Tail(), &pkt, &m) {
		check(t, 1, 100, &pkt, m)
	}
	c.Release()
	if got := r.Fill(0); got != 0 {
		t.Errorf("once it is empty: %v", got)
	}
}

func TestPublishAndRelease(t *testing.T) {
	r := newRings(t, 1, 1, MinBytes)
	p, c := r.Producer(0, 0), r.Consumer(0, 0)
	var pkt burst.Packet
	var m Meta
	push(p, 1, 1000)
	if !c.Empty() || c.Next(c.Tail(), &pkt, &m) {
		t.Fatal("a record is seen before it was published")
	}
	p.Publish()
	if c.Empty() || !c.Next(c.Tail(), &pkt, &m) {
		t.Fatal("a published record is not seen")
	}
	check(t, 1, 1000, &pkt, m)
	pushed := 0
	for push(p, 2, 1000) {
		pushed++
	}
	if pushed != 2 {
		t.Fatalf("%d records of 1,072 bytes fit in 4,096 less an unreleased one", pushed)
	}
	check(t, 1, 1000, &pkt, m) // still there
	c.Release()
	if !push(p, 3, 1000) {
		t.Fatal("the released room is not used")
	}
	if c.Next(c.Tail(), &pkt, &m) {
		t.Fatal("a record is seen before it was published")
	}
}

// A payload of the largest datagram passes in a ring of 256 KiB, wherever it starts;
// an empty one passes too; and what does not fit is refused for good.
func TestPayloadSizes(t *testing.T) {
	r := newRings(t, 1, 1, 256<<10)
	p, c := r.Producer(0, 0), r.Consumer(0, 0)
	if p.MaxPayload() != burst.MaxPayload {
		t.Fatalf("largest payload %d", p.MaxPayload())
	}
	var pkt burst.Packet
	var m Meta
	for i := range 50 {
		for _, n := range []int{burst.MaxPayload, 0, i * 997} {
			if !push(p, i, n) {
				t.Fatalf("round %d: %d bytes refused by an empty ring", i, n)
			}
			p.Publish()
			if !c.Next(c.Tail(), &pkt, &m) {
				t.Fatalf("round %d: %d bytes not read", i, n)
			}
			check(t, i, n, &pkt, m)
			c.Release()
		}
	}
	if push(p, 1, burst.MaxPayload+1) {
		t.Error("more than a datagram was accepted")
	}
	small := newRings(t, 1, 1, MinBytes).Producer(0, 0)
	if n := small.MaxPayload(); n != MinBytes/2-headSize || !push(small, 1, n) || push(small, 1, n+1) {
		t.Errorf("a ring of %d bytes says it takes %d", MinBytes, n)
	}
}

// A new producer goes on at the tail, without what the last one did not publish; a
// new consumer at the head, with what the last one did not release.
func TestRespawn(t *testing.T) {
	r := newRings(t, 1, 1, MinBytes)
	p := r.Producer(0, 0)
	push(p, 1, 10)
	push(p, 2, 20)
	p.Publish()
	push(p, 99, 30) // dies before it publishes
	p = r.Producer(0, 0)
	push(p, 3, 40)
	p.Publish()

	c := r.Consumer(0, 0)
	var pkt burst.Packet
	var m Meta
	next := func(seq, n int) {
		t.Helper()
		if !c.Next(c.Tail(), &pkt, &m) {
			t.Fatalf("record %d is missing", seq)
		}
		check(t, seq, n, &pkt, m)
	}
	next(1, 10)
	c.Release()
	next(2, 20)
	next(3, 40) // dies before it releases
	c = r.Consumer(0, 0)
	next(2, 20)
	c.Release()
	push(p, 4, 50) // not published by anybody but TakeBack
	c = p.TakeBack()
	next(3, 40)
	next(4, 50)
	c.Release()
	if !c.Empty() || c.Damaged() != 0 {
		t.Errorf("empty %v, damage %d", c.Empty(), c.Damaged())
	}
}

// The reader announces its sleep and one producer is told to wake it.
func TestWake(t *testing.T) {
	r := newRings(t, 2, 2, MinBytes)
	a, b, other := r.Producer(0, 0), r.Producer(1, 0), r.Producer(0, 1)
	in := r.Inbox(0)
	needs := func(want ...bool) {
		t.Helper()
		for i, p := range []*Producer{other, a, b} {
			if got := p.NeedsWake(); got != want[i] {
				t.Errorf("producer %d is told %v", i, got)
			}
		}
	}
	needs(false, false, false)
	if !in.PrepareSleep() {
		t.Fatal("may not sleep before empty rings")
	}
	needs(false, true, false)
	needs(false, false, false)
	if !in.PrepareSleep() {
		t.Fatal("may not sleep again")
	}
	in.Awake()
	needs(false, false, false)
	push(b, 1, 10)
	b.Publish()
	if in.PrepareSleep() {
		t.Fatal("may sleep before a full ring")
	}
	needs(false, false, false)
	var pkt burst.Packet
	var m Meta
	c := in.Consumers()[1]
	c.Next(c.Tail(), &pkt, &m)
	if !in.PrepareSleep() { // what was read need not be released
		t.Fatal("may not sleep though everything was read")
	}
}

// Indices that no peer of ours can have stored lose what the ring holds, and no
// more: the ends skip, count, and go on.
func TestHostileIndices(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*control)
		read   int // records before the damage
	}{
		"tail ahead":             {func(c *control) { c.Tail.Store(1 << 40) }, 0},
		"tail a lap ahead":       {func(c *control) { c.Tail.Store(MinBytes + align) }, 0},
		"tail behind":            {func(c *control) { c.Tail.Store(1<<64 - 8) }, 0},
		"tail misaligned":        {func(c *control) { c.Tail.Store(c.Tail.Load() - 3) }, 1},
		"head ahead":             {func(c *control) { c.Head.Store(1 << 40) }, 0},
		"head misaligned":        {func(c *control) { c.Head.Store(3) }, 2},
		"head at the last bytes": {func(c *control) { c.Head.Store(MinBytes - 3); c.Tail.Store(MinBytes) }, 0},
		"both at the end":        {func(c *control) { c.Head.Store(1<<64 - 8); c.Tail.Store(1<<64 - 1) }, 0},
	} {
		r := newRings(t, 1, 1, MinBytes)
		p := r.Producer(0, 0)
		push(p, 1, 100)
		push(p, 2, 100)
		p.Publish()
		c.damage(r.view(0, 0).ctl)
		in := r.Consumer(0, 0)
		var pkt burst.Packet
		var m Meta
		read := 0
		for upTo := in.Tail(); in.Next(upTo, &pkt, &m); read++ {
		}
		if read != c.read || !in.Empty() {
			t.Errorf("%s: read %d records, empty %v", name, read, in.Empty())
		}
		in.Release()
		p = r.Producer(0, 0) // fenced and respawned
		if !push(p, 7, 300) {
			t.Errorf("%s: the ring takes nothing any more", name)
		}
		p.Publish()
		if !in.Next(in.Tail(), &pkt, &m) {
			t.Errorf("%s: the ring gives nothing any more", name)
			continue
		}
		check(t, 7, 300, &pkt, m)
	}
}

// A length that our producer would not write is damage even where its bytes exist: more
// than a datagram, or over the end of the ring.
func TestHostileLength(t *testing.T) {
	for name, c := range map[string]struct{ at, length uint64 }{
		"more than a datagram": {0, burst.MaxPayload + 1},
		"over the end":         {256<<10 - 2_000, 3_000},
	} {
		r := newRings(t, 1, 1, 256<<10)
		v := r.view(0, 0)
		v.ctl.Head.Store(c.at)
		v.ctl.Tail.Store(c.at + 100_000)
		binary.LittleEndian.PutUint32(v.data[c.at+offLength:], uint32(c.length))
		binary.LittleEndian.PutUint32(v.data[c.at+offMark:], mark(c.at))
		in := r.Consumer(0, 0)
		var pkt burst.Packet
		var m Meta
		if in.Next(in.Tail(), &pkt, &m) || in.Damaged() != 1 {
			t.Errorf("%s: read %d bytes, damage %d", name, len(pkt.Payload), in.Damaged())
		}
	}
}

// A producer whose consumer stores a head that cannot be writes nothing over what
// may be unread.
func TestHostileHead(t *testing.T) {
	r := newRings(t, 1, 1, MinBytes)
	p := r.Producer(0, 0)
	for push(p, 1, 0) {
	}
	p.Publish()
	for _, head := range []uint64{1 << 40, 1<<64 - 8, p.pos + 8} {
		r.view(0, 0).ctl.Head.Store(head)
		if push(p, 2, 10) {
			t.Errorf("head %#x: pushed", head)
		}
	}
	r.view(0, 0).ctl.Head.Store(p.pos)
	if !push(p, 2, 10) {
		t.Error("the head is right again, and nothing can be pushed")
	}
}

// A record whose head is damaged is skipped with all behind it, and counted once.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range map[string]func(data []byte){
		"mark":              func(d []byte) { d[offMark]++ },
		"length":            func(d []byte) { binary.LittleEndian.PutUint32(d[offLength:], 3000) },
		"endless length":    func(d []byte) { binary.LittleEndian.PutUint32(d[offLength:], padLength-1) },
		"pad over the tail": func(d []byte) { binary.LittleEndian.PutUint32(d[offLength:], padLength) },
	} {
		r := newRings(t, 1, 1, MinBytes)
		p, c := r.Producer(0, 0), r.Consumer(0, 0)
		for seq := range 3 {
			push(p, seq, 100)
		}
		p.Publish()
		damage(c.data[recordSize(100):])
		var pkt burst.Packet
		var m Meta
		if !c.Next(c.Tail(), &pkt, &m) {
			t.Fatalf("%s: the record before is not read", name)
		}
		check(t, 0, 100, &pkt, m)
		if c.Next(c.Tail(), &pkt, &m) || c.Damaged() != 1 || !c.Empty() {
			t.Errorf("%s: damage %d, empty %v", name, c.Damaged(), c.Empty())
		}
		push(p, 5, 50)
		p.Publish()
		if !c.Next(c.Tail(), &pkt, &m) || c.Damaged() != 1 {
			t.Fatalf("%s: the record after is not read", name)
		}
		check(t, 5, 50, &pkt, m)
	}
}

func TestRingOutsideTheMatrixPanics(t *testing.T) {
	r := newRings(t, 2, 1, MinBytes)
	for _, c := range [][2]int{{2, 0}, {-1, 0}, {0, 1}, {0, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("lane %d, worker %d: no panic", c[0], c[1])
				}
			}()
			r.Producer(c[0], c[1])
		}()
	}
}

// Nothing on the data path allocates.
func TestAllocatesNothing(t *testing.T) {
	r := newRings(t, 2, 1, 1<<20)
	ps := []*Producer{r.Producer(0, 0), r.Producer(1, 0)}
	in := r.Inbox(0)
	d := NewDrainer(in.Consumers())
	pkt := numbered(1, fill(1, 1200))
	var b burst.Burst
	var from [burst.Max]Source
	if n := testing.AllocsPerRun(1000, func() {
		for _, p := range ps {
			for range 40 {
				p.Push(pkt, 1, 2)
			}
			p.Publish()
			p.NeedsWake()
		}
		for d.Fill(&b, &from) != 0 {
			d.Release()
		}
		in.PrepareSleep()
		in.Awake()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
