package table

import (
	"errors"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/flow"
)

// home returns the n-th of the hashes whose window starts at slot i.
func home(i, n uint64) uint64 { return (n+1)<<32 | i }

func TestFormatRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		slots, bytes int
		idle         time.Duration
	}{
		"no slots":                 {0, RegionSize(1024), time.Second},
		"negative slots":           {-1024, RegionSize(1024), time.Second},
		"half the minimum":         {512, RegionSize(1024), time.Second},
		"not a power of two":       {1536, RegionSize(2048), time.Second},
		"twice the maximum":        {2 * MaxSlots, RegionSize(1024), time.Second},
		"region too small":         {2048, RegionSize(1024), time.Second},
		"idle below the minimum":   {1024, RegionSize(1024), MinIdle - time.Millisecond},
		"idle above the maximum":   {1024, RegionSize(1024), MaxIdle + time.Millisecond},
		"negative idle":            {1024, RegionSize(1024), -time.Second},
		"region of headers, short": {1024, slotsOffset - 64, time.Second},
	} {
		if _, err := Format(shm.Heap(c.bytes), c.slots, c.idle, flow.Secret{}); !errors.Is(err, shm.ErrLayout) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestFormatAccepts(t *testing.T) {
	for _, idle := range []time.Duration{MinIdle, 10 * time.Second, MaxIdle} {
		r := shm.Heap(RegionSize(2048))
		if _, err := Format(r, 2048, idle, flow.Secret{3, 4}); err != nil {
			t.Fatal(err)
		}
		tb, err := Attach(r)
		if err != nil {
			t.Fatal(err)
		}
		if tb.Slots() != 2048 || tb.Idle() != idle || tb.Secret() != (flow.Secret{3, 4}) {
			t.Errorf("attached %d slots, idle %v, secret %v", tb.Slots(), tb.Idle(), tb.Secret())
		}
	}
}

// A region whose numbers another process has rewritten is refused, not believed.
func TestAttachRefusesDamage(t *testing.T) {
	for name, damage := range map[string]func(*top){
		"no slots":           func(h *top) { h.Slots.Store(0) },
		"more slots":         func(h *top) { h.Slots.Store(2048) },
		"endless slots":      func(h *top) { h.Slots.Store(1 << 63) },
		"overflowing slots":  func(h *top) { h.Slots.Store(1 << 60) },
		"not a power of two": func(h *top) { h.Slots.Store(1023) },
		"no idle":            func(h *top) { h.IdleMs.Store(0) },
		"endless idle":       func(h *top) { h.IdleMs.Store(1 << 40) },
	} {
		r := shm.Heap(RegionSize(1024))
		if _, err := Format(r, 1024, time.Second, flow.Secret{}); err != nil {
			t.Fatal(err)
		}
		damage(shm.View[top](r, topOffset))
		if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Attach(shm.Heap(64)); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("unformatted region: error %v", err)
	}
	r := shm.Heap(128)
	r.Format(shm.KindFlowTable, Layout)
	r.Publish()
	if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("region without room for the headers: error %v", err)
	}
}

// The table of a generation that is gone can be formatted for the next.
func TestFormatAgainEmpties(t *testing.T) {
	r := shm.Heap(RegionSize(1024))
	old, err := Format(r, 1024, time.Second, flow.Secret{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	old.Record(home(5, 0), 3, 100)
	if err := old.SetHeader(3, Publishing, 9); err != nil {
		t.Fatal(err)
	}
	tb, err := Format(r, 1024, 2*time.Second, flow.Secret{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tb.Find(home(5, 0), 100); ok {
		t.Error("a flow of the old generation is alive")
	}
	if h := tb.Header(3); h != 0 {
		t.Errorf("header of the old generation: %v", h)
	}
	if tb.Idle() != 2*time.Second {
		t.Errorf("idle is %v", tb.Idle())
	}
}

// Words that no writer of ours can have left are read as nobody's entry, and their
// slots can be claimed.
func TestHostileWords(t *testing.T) {
	const now = 1_000_000
	h := home(5, 0)
	for name, e := range map[string]entry{
		"worker 64":      newEntry(now, 64),
		"worker 65535":   newEntry(now, 65535),
		"unknown flag":   newEntry(now, 1) | 0x80,
		"all ones":       ^entry(0),
		"no packet":      newEntry(now, 64) &^ 0xff00,
		"far future":     newEntry(now+maxAheadMs+1, 1),
		"claim, ancient": newEntry(now-claimMs-1, 1) | claimFlag,
	} {
		tb := newTable(t, 1024, time.Second)
		for n := range uint64(probes) {
			tb.slots[5+n].Hash.Store(h + n<<40)
			tb.slots[5+n].Entry.Store(uint64(e))
		}
		if w, ok := tb.Find(h, now); ok {
			t.Errorf("%s: found at worker %d", name, w)
		}
		if tb.Touch(h, now) || tb.Adopt(h, e.worker(), 1, now) {
			t.Errorf("%s: refreshed", name)
		}
		if o, w := tb.Record(h, 2, now); o != Mine || w != 2 {
			t.Errorf("%s: Record is %v, worker %d", name, o, w)
		}
		if w, ok := tb.Find(h, now); !ok || w != 2 {
			t.Errorf("%s: then found %v at worker %d", name, ok, w)
		}
	}
}

// An entry under CLAIM is nobody's and stays so for a minute.
func TestClaimIsPassedOver(t *testing.T) {
	const now = 1_000_000
	h := home(5, 0)
	fullOfClaims := func() *Table {
		tb := newTable(t, 1024, time.Second)
		for n := range uint64(probes) {
			tb.slots[5+n].Hash.Store(h)
			tb.slots[5+n].Entry.Store(uint64(newEntry(now, 1) | claimFlag))
		}
		return tb
	}
	for _, c := range []struct {
		at   uint32
		want Outcome
	}{
		{now - 5_000, NotRecorded}, {now, NotRecorded}, {now + 1000, NotRecorded}, {now + claimMs, NotRecorded},
		{now + claimMs + 1, Mine}, {now - 5_001, Mine},
	} {
		tb := fullOfClaims()
		if _, ok := tb.Find(h, c.at); ok {
			t.Errorf("at %d: found under CLAIM", c.at)
		}
		if tb.Remove(h, 1) {
			t.Errorf("at %d: removed under CLAIM", c.at)
		}
		if o, _ := tb.Record(h, 2, c.at); o != c.want {
			t.Errorf("at %d: Record is %v, want %v", c.at, o, c.want)
		}
		freed := 0
		if c.want == Mine {
			freed = probes - 1
		}
		if n := tb.Sweep(c.at); n != freed {
			t.Errorf("at %d: the sweep freed %d slots, want %d", c.at, n, freed)
		}
	}
}

// What a flow that is not recorded claims, in this order: the slot it had, the
// first in which nobody lives, that of the longest waiting one-packet flow; and
// never that of a flow with two packets, or with one that came in just now.
func TestClaimOrder(t *testing.T) {
	const now = 1_000_000
	const idle = 1000
	stays := newEntry(now-500, 1) + 1<<8 // two packets
	h := home(0, 0)
	type put struct {
		at   int
		e    entry
		mine bool
	}
	for name, c := range map[string]struct {
		puts []put
		want int // slot, -1: not recorded
	}{
		"everybody stays":                    {nil, -1},
		"one packet, now":                    {[]put{{4, newEntry(now, 1), false}}, -1},
		"one packet, 1 ms old":               {[]put{{4, newEntry(now-1, 1), false}}, -1},
		"one packet, from a clock ahead":     {[]put{{4, newEntry(now+5, 1), false}}, -1},
		"one packet, 2 ms old":               {[]put{{4, newEntry(now-2, 1), false}}, 4},
		"the longest waiting of three":       {[]put{{2, newEntry(now-4, 1), false}, {7, newEntry(now-9, 1), false}, {9, newEntry(now-3, 1), false}}, 7},
		"aged before one packet":             {[]put{{2, newEntry(now-9, 1), false}, {7, newEntry(now-idle-1, 1), false}}, 7},
		"freed before one packet":            {[]put{{2, newEntry(now-9, 1), false}, {7, newEntry(now, 1) | freeFlag, false}}, 7},
		"the first aged":                     {[]put{{3, newEntry(now-idle-1, 1), false}, {7, newEntry(now-idle-9, 1), false}}, 3},
		"idle to the millisecond is alive":   {[]put{{3, newEntry(now-idle, 1) + 1<<8, false}}, -1},
		"never used, last":                   {[]put{{15, 0, false}}, 15},
		"never used before one packet":       {[]put{{2, newEntry(now-9, 1), false}, {7, 0, false}}, 7},
		"its own, aged, before one aged":     {[]put{{3, newEntry(now-idle-1, 1), false}, {7, newEntry(now-idle-9, 1), true}}, 7},
		"its own, freed, before a freed one": {[]put{{3, newEntry(now, 1) | freeFlag, false}, {7, newEntry(now, 1) | freeFlag, true}}, 7},
	} {
		tb := newTable(t, 1024, idle*time.Millisecond)
		for n := range probes {
			tb.slots[n].Hash.Store(home(0, uint64(n)+1))
			tb.slots[n].Entry.Store(uint64(stays))
		}
		for _, p := range c.puts {
			tb.slots[p.at].Entry.Store(uint64(p.e))
			switch {
			case p.e == 0:
				tb.slots[p.at].Hash.Store(0)
			case p.mine:
				tb.slots[p.at].Hash.Store(h)
			}
		}
		o, _ := tb.Record(h, 2, now)
		if (o == Mine) != (c.want >= 0) || o != Mine && o != NotRecorded {
			t.Errorf("%s: Record is %v", name, o)
		}
		for n := range probes {
			if got := tb.slots[n].Hash.Load() == h && entry(tb.slots[n].Entry.Load()) == newEntry(now, 2); got != (n == c.want) {
				t.Errorf("%s: slot %d recorded: %v", name, n, got)
			}
		}
	}
}

// Of several entries of one flow, which lanes that met it at the same instant may
// have made, the first that is alive counts, whatever lies before it.
func TestFirstAliveCounts(t *testing.T) {
	h := home(0, 0)
	for name, before := range map[string]entry{"aged": aged, "freed": freed, "claimed": newEntry(xNow, 1) | claimFlag} {
		tb := small()
		for n, e := range []entry{before, newEntry(xNow, 2), newEntry(xNow, 3)} {
			tb.slots[n].Hash.Store(h)
			tb.slots[n].Entry.Store(uint64(e))
		}
		if w, ok := tb.Find(h, xNow); !ok || w != 2 {
			t.Errorf("%s: found %v at worker %d", name, ok, w)
		}
		if o, w := tb.Record(h, 1, xNow); o != Sibling || w != 2 {
			t.Errorf("%s: Record is %v, worker %d", name, o, w)
		}
	}
}

// Packets saturate; a refresh that would change nothing writes nothing, and one
// with an older clock keeps the stamp.
func TestRefresh(t *testing.T) {
	const now = 1_000_000
	tb := newTable(t, 1024, time.Second)
	h := home(5, 0)
	at := func() entry { return tb.slots[5].entry() }
	for i := range 300 {
		if o, _ := tb.Record(h, 1, now); o != Mine {
			t.Fatalf("packet %d: %v", i, o)
		}
		if want := min(i+1, maxPackets); int(at().packets()) != want {
			t.Fatalf("packet %d: counted %d", i+1, at().packets())
		}
	}
	for _, c := range []struct{ now, want uint32 }{{now, now}, {now - 3, now}, {now + 1, now + 1}} {
		tb.Record(h, 1, c.now)
		if e := at(); e.last() != c.want || e.packets() != maxPackets || e.worker() != 1 {
			t.Errorf("at %d: stamp %d, %d packets, worker %d", c.now, e.last(), e.packets(), e.worker())
		}
	}
}

// The owner's entry is refreshed by whoever forwards, and by nobody else.
func TestSiblings(t *testing.T) {
	const now = 1_000_000
	tb := newTable(t, 1024, time.Second)
	h := home(5, 0)
	tb.Record(h, 1, now)
	before := tb.slots[5].entry()
	for name, f := range map[string]func(uint64, int, uint32) (Outcome, int){"Record": tb.Record, "Refresh": tb.Refresh} {
		if o, w := f(h, 2, now+10); o != Sibling || w != 1 {
			t.Errorf("%s by another worker: %v, worker %d", name, o, w)
		}
	}
	if tb.slots[5].entry() != before {
		t.Error("looking refreshed the owner's entry")
	}
	if !tb.Touch(h, now+10) {
		t.Error("Touch: not alive")
	}
	if e := tb.slots[5].entry(); e.worker() != 1 || e.last() != now+10 || e.packets() != 2 {
		t.Errorf("touched: worker %d, stamp %d, %d packets", e.worker(), e.last(), e.packets())
	}
	if tb.Remove(h, 2) {
		t.Error("another worker removed the flow")
	}
	if tb.Adopt(h, 3, 2, now) {
		t.Error("adopted from a worker that does not own it")
	}
	if !tb.Adopt(h, 1, 2, now+20) || tb.Adopt(h, 1, 3, now+20) {
		t.Error("of two adoptions not the first alone succeeded")
	}
	if w, ok := tb.Find(h, now+20); !ok || w != 2 {
		t.Errorf("adopted by 2: found %v at %d", ok, w)
	}
	if !tb.Remove(h, 2) || tb.Remove(h, 2) {
		t.Error("of two removals not the first alone succeeded")
	}
	if o, _ := tb.Refresh(h, 2, now+20); o != Absent {
		t.Errorf("removed, and Refresh is %v", o)
	}
	if tb.Touch(h, now+20) || tb.Adopt(h, 2, 3, now+20) {
		t.Error("removed, and alive")
	}
	if tb.slots[6].Entry.Load() != 0 {
		t.Error("a second slot was used")
	}
}

// Refresh leaves a flow that is not alive to the tables of others.
func TestRefreshDoesNotRecord(t *testing.T) {
	tb := newTable(t, 1024, time.Second)
	h := home(5, 0)
	if o, _ := tb.Refresh(h, 1, 100); o != Absent || tb.slots[5].Entry.Load() != 0 {
		t.Errorf("unknown flow: %v", o)
	}
	tb.Record(h, 1, 100)
	before := tb.slots[5].entry()
	if o, _ := tb.Refresh(h, 1, 1101); o != Absent || tb.slots[5].entry() != before {
		t.Errorf("aged flow: %v", o)
	}
	if o, _ := tb.Refresh(h, 1, 1100); o != Mine {
		t.Errorf("flow of exactly idle age: %v", o)
	}
}

func TestScan(t *testing.T) {
	const now = 1_000_000
	tb := newTable(t, 1024, 10*time.Second)
	if n, age := tb.Scan(0, now); n != 0 || age != 0 {
		t.Errorf("empty table: %d flows, %d ms", n, age)
	}
	if n, _ := tb.Scan(0, 3); n != 0 {
		t.Errorf("empty table as the clock wraps: %d flows", n)
	}
	tb.Record(home(1, 0), 0, now-10_001) // aged
	tb.Record(home(2, 0), 0, now-10_000)
	tb.Record(home(3, 0), 0, now-7_000)
	tb.Record(home(4, 0), 1, now-300)
	tb.Record(home(5, 0), 0, now-200)
	tb.Remove(home(5, 0), 0)
	tb.slots[6].Entry.Store(uint64(newEntry(now-100, 0) | claimFlag))
	for _, c := range []struct {
		worker, alive int
		newest        uint32
	}{{0, 2, 7_000}, {1, 1, 300}, {2, 0, 0}, {63, 0, 0}} {
		if n, age := tb.Scan(c.worker, now); n != c.alive || age != c.newest {
			t.Errorf("worker %d: %d flows, newest %d ms; want %d, %d", c.worker, n, age, c.alive, c.newest)
		}
	}
	tb.Record(home(7, 0), 2, now+5) // a clock ahead
	if n, age := tb.Scan(2, now); n != 1 || age != 0 {
		t.Errorf("stamp ahead: %d flows, newest %d ms", n, age)
	}
}

func TestSweep(t *testing.T) {
	const now = 1_000_000
	tb := newTable(t, 1024, time.Second)
	tb.Record(home(1, 0), 0, now)
	tb.Record(home(2, 0), 0, now-1001)
	tb.Record(home(3, 0), 0, now-1000)
	if n := tb.Sweep(now); n != 1 {
		t.Errorf("freed %d slots, want the aged one", n)
	}
	if n := tb.Sweep(now); n != 0 {
		t.Errorf("freed %d slots again", n)
	}
	for i, alive := range map[uint64]bool{1: true, 2: false, 3: true} {
		if _, ok := tb.Find(home(i, 0), now); ok != alive {
			t.Errorf("flow %d alive: %v", i, ok)
		}
	}
	if o, _ := tb.Record(home(2, 0), 0, now); o != Mine {
		t.Errorf("a swept flow that comes back: %v", o)
	}
}

// Every move of a header that is not on the list is refused and changes nothing.
func TestHeaderMoves(t *testing.T) {
	tb := newTable(t, 1024, time.Second)
	w := &tb.workers[3].Header
	const wid = 7
	legal := map[[2]Header]bool{
		{header(None, 0), header(Publishing, wid)}:     true,
		{header(None, 0), header(Publishing, wid+1)}:   true,
		{header(Publishing, wid), header(Handed, wid)}: true,
		{header(Publishing, wid), header(None, 0)}:     true,
		{header(Handed, wid), header(None, 0)}:         true,
	}
	froms := []Header{header(None, 0), header(Publishing, wid), header(Handed, wid), header(9, wid)}
	tos := []Header{
		header(None, 0), header(Publishing, 0), header(Publishing, wid), header(Publishing, wid+1),
		header(Handed, 0), header(Handed, wid), header(Handed, wid+1), header(3, wid),
	}
	for _, from := range froms {
		for _, to := range tos {
			w.Store(uint64(from))
			err := tb.SetHeader(3, to.State(), to.Window())
			want := to
			if !legal[[2]Header{from, to}] {
				want = from
				if !errors.Is(err, ErrIllegalMove) {
					t.Errorf("from %v to %v: error %v", from, to, err)
				}
			} else if err != nil {
				t.Errorf("from %v to %v: error %v", from, to, err)
			}
			if got := tb.Header(3); got != want {
				t.Errorf("from %v to %v: now %v", from, to, got)
			}
		}
	}
}

// Flows are forwarded to a worker that publishes in its slot's present window, and
// to no other.
func TestValid(t *testing.T) {
	tb := newTable(t, 1024, time.Second)
	set := func(st State, wid uint32) {
		t.Helper()
		if err := tb.SetHeader(3, st, wid); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want bool) {
		t.Helper()
		if got := tb.Valid(3, 7); got != want {
			t.Errorf("%s: valid is %v", when, got)
		}
		for _, c := range []struct {
			worker int
			wid    uint32
		}{{2, 7}, {3, 6}, {3, 8}, {3, 0}, {-1, 7}, {64, 7}, {65535, 7}, {2, 0}} {
			if tb.Valid(c.worker, c.wid) {
				t.Errorf("%s: worker %d is valid in window %d", when, c.worker, c.wid)
			}
		}
	}
	check("before", false)
	set(Publishing, 7)
	check("publishing", true)
	set(Handed, 7)
	check("handed", false)
	set(None, 0)
	check("after", false)
}

// Nothing on the data path allocates.
func TestAllocatesNothing(t *testing.T) {
	tb := newTable(t, 1024, time.Hour)
	now := uint32(1000)
	hs := hashes(4096, 1)
	for name, f := range map[string]func(h uint64){
		"Record":  func(h uint64) { tb.Record(h, 1, now) },
		"Refresh": func(h uint64) { tb.Refresh(h, 1, now) },
		"Find":    func(h uint64) { tb.Find(h, now) },
		"Touch":   func(h uint64) { tb.Touch(h, now) },
		"Adopt":   func(h uint64) { tb.Adopt(h, 1, 2, now) },
		"Remove":  func(h uint64) { tb.Remove(h, 1) },
		"Valid":   func(uint64) { tb.Valid(1, 1) },
		"Scan":    func(uint64) { tb.Scan(1, now) },
		"Sweep":   func(uint64) { tb.Sweep(now) },
	} {
		i := 0
		if n := testing.AllocsPerRun(1000, func() { now++; i++; f(hs[i%len(hs)]) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
