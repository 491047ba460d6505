package neighbour

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/packet/header"
)

const second = int64(1e9)

var (
	macA = header.MAC{2, 0, 0, 0, 0, 0xa}
	macB = header.MAC{2, 0, 0, 0, 0, 0xb}
)

type recorder struct {
	unicast, multicast int
	released           [][]byte
}

func (r *recorder) Probe(_ Key, mac header.MAC) {
	if mac == (header.MAC{}) {
		r.multicast++
	} else {
		r.unicast++
	}
}

func (r *recorder) Release(frame []byte) { r.released = append(r.released, append([]byte{}, frame...)) }

func newTable(t testing.TB, cfg Config) (*Table, *recorder) {
	t.Helper()
	r := &recorder{}
	table, err := New(cfg, r)
	if err != nil {
		t.Fatal(err)
	}
	return table, r
}

var limits = Config{Neighbours: 4, Waiting: 8, PerWaiting: 3, Frame: 64}

func key(n int) Key { return Key{IP: [16]byte{15: byte(n)}} }

func frame(n int) []byte { return append(make([]byte, 14), byte(n)) }

func state(t *testing.T, table *Table, k Key, want State, mac header.MAC) {
	t.Helper()
	if got, s, _ := table.Get(k); s != want || got != mac {
		t.Errorf("%v at %x, want %v at %x", s, got, want, mac)
	}
}

// RFC 4861 7.3: a neighbour that answers goes through every state.
func TestLife(t *testing.T) {
	table, r := newTable(t, limits)
	k := key(1)
	if _, ok := table.Resolve(k, 0); ok || r.multicast != 1 {
		t.Fatal("known from the start")
	}
	table.Resolve(k, 1)
	if state(t, table, k, Incomplete, header.MAC{}); r.multicast != 1 {
		t.Error("each frame asks again")
	}
	for i := range 4 { // one over: the oldest gives way (RFC 4861 7.2.2)
		table.Hold(k, frame(i))
	}
	table.Tick(second)
	if r.multicast != 2 {
		t.Errorf("%d probes after a second", r.multicast)
	}
	table.Advertised(k, Advert{MAC: macA, HasMAC: true, Solicited: true, Override: true}, second)
	state(t, table, k, Reachable, macA)
	if len(r.released) != 3 || r.released[0][14] != 1 || r.released[2][14] != 3 || header.MAC(r.released[0]) != macA || table.Waiting() != 0 || table.Lost != 1 {
		t.Errorf("released %x, %d wait, %d lost", r.released, table.Waiting(), table.Lost)
	}
	now := second + ReachableTime
	if mac, ok := table.Resolve(k, now-1); !ok || mac != macA {
		t.Error("reachable and not resolved")
	}
	state(t, table, k, Reachable, macA)
	if mac, ok := table.Resolve(k, now); !ok || mac != macA {
		t.Error("old and not resolved")
	}
	state(t, table, k, Delay, macA)
	now += DelayTime
	table.Tick(now)
	if state(t, table, k, Probe, macA); r.unicast != 1 {
		t.Errorf("%d probes to it", r.unicast)
	}
	table.Advertised(k, Advert{Solicited: true}, now) // without an address: it is where it was
	state(t, table, k, Reachable, macA)
	table.Tick(now + ReachableTime)
	state(t, table, k, Stale, macA)
	if next := table.Tick(now + 2*ReachableTime); next != math.MaxInt64 {
		t.Errorf("an unused neighbour wants a tick at %d", next)
	}
}

// One that does not answer is forgotten after three probes, and what waits for it
// is lost; one that stopped answering too.
func TestSilence(t *testing.T) {
	table, r := newTable(t, limits)
	k := key(1)
	table.Resolve(k, 0)
	table.Hold(k, frame(0))
	for i := int64(1); i <= 3; i++ {
		if next := table.Tick(i * second); i < 3 && next != (i+1)*second {
			t.Errorf("next tick at %d", next)
		}
	}
	if state(t, table, k, None, header.MAC{}); r.multicast != MaxProbes || table.Lost != 1 || table.Len() != 0 {
		t.Errorf("%d probes, %d lost, %d known", r.multicast, table.Lost, table.Len())
	}
	table.Solicited(k, macA)
	table.Resolve(k, 0)
	for i := range 5 {
		table.Tick(DelayTime + int64(i)*second)
	}
	if state(t, table, k, None, header.MAC{}); r.unicast != MaxProbes {
		t.Errorf("%d probes to it", r.unicast)
	}
}

// What an advertisement changes (RFC 4861 7.2.5 and appendix C).
func TestAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		from  State
		a     Advert
		want  State
		mac   header.MAC
		known bool
	}{
		"unknown":                       {None, Advert{MAC: macB, HasMAC: true, Solicited: true}, None, header.MAC{}, false},
		"incomplete, no address":        {Incomplete, Advert{Solicited: true}, Incomplete, header.MAC{}, true},
		"incomplete, unsolicited":       {Incomplete, Advert{MAC: macB, HasMAC: true}, Stale, macB, true},
		"incomplete, solicited":         {Incomplete, Advert{MAC: macB, HasMAC: true, Solicited: true}, Reachable, macB, true},
		"reachable, other, no override": {Reachable, Advert{MAC: macB, HasMAC: true, Solicited: true}, Stale, macA, true},
		"stale, other, no override":     {Stale, Advert{MAC: macB, HasMAC: true, Solicited: true}, Stale, macA, true},
		"stale, other, override":        {Stale, Advert{MAC: macB, HasMAC: true, Override: true}, Stale, macB, true},
		"reachable, other, override":    {Reachable, Advert{MAC: macB, HasMAC: true, Override: true}, Stale, macB, true},
		"reachable, same, unsolicited":  {Reachable, Advert{MAC: macA, HasMAC: true, Override: true}, Reachable, macA, true},
		"stale, both flags":             {Stale, Advert{MAC: macB, HasMAC: true, Solicited: true, Override: true}, Reachable, macB, true},
		"static":                        {Static, Advert{MAC: macB, HasMAC: true, Solicited: true, Override: true}, Static, macA, true},
		"a group's address":             {Stale, Advert{MAC: header.Broadcast, HasMAC: true, Solicited: true, Override: true}, Stale, macA, true},
	} {
		t.Run(name, func(t *testing.T) {
			table, _ := newTable(t, limits)
			k := key(1)
			switch c.from {
			case Incomplete:
				table.Resolve(k, 0)
			case Stale:
				table.Solicited(k, macA)
			case Reachable:
				table.Solicited(k, macA)
				table.Advertised(k, Advert{Solicited: true}, 0)
			case Static:
				table.Set(k, macA)
			}
			state(t, table, k, c.from, map[bool]header.MAC{true: macA}[c.from > Incomplete])
			table.Advertised(k, c.a, 1)
			state(t, table, k, c.want, c.mac)
		})
	}
}

// A full table gives up the least recently used; those that only asked for us and
// were never used go before; static ones and those with frames waiting stay.
func TestFull(t *testing.T) {
	table, _ := newTable(t, limits)
	table.Set(key(1), macA)
	table.Solicited(key(2), macA)
	table.Resolve(key(2), 5)
	table.Solicited(key(3), macA)
	table.Resolve(key(4), 1)
	table.Hold(key(4), frame(0))
	for i := 10; i < 100; i++ {
		table.Solicited(key(i), macB) // a scan of the link
	}
	state(t, table, key(1), Static, macA)
	state(t, table, key(2), Delay, macA)
	state(t, table, key(4), Incomplete, header.MAC{})
	if table.Len() != 4 || table.Lost != 0 {
		t.Errorf("%d known, %d lost", table.Len(), table.Lost)
	}
}

// Whatever happens, each frame that was held is released, lost or waiting, and the
// table stays within its limits.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &recorder{}
		table, err := New(limits, r)
		if err != nil {
			t.Fatal(err)
		}
		now, held := int64(0), uint64(0)
		k := rapid.Custom(func(t *rapid.T) Key { return key(rapid.IntRange(1, 6).Draw(t, "neighbour")) })
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				k := k.Draw(t, "k")
				if _, ok := table.Resolve(k, now); !ok && table.Hold(k, frame(1)) {
					held++
				}
			},
			"solicited": func(t *rapid.T) { table.Solicited(k.Draw(t, "k"), macA) },
			"advertised": func(t *rapid.T) {
				table.Advertised(k.Draw(t, "k"), Advert{MAC: macB, HasMAC: rapid.Bool().Draw(t, "mac"), Solicited: rapid.Bool().Draw(t, "solicited"), Override: rapid.Bool().Draw(t, "override")}, now)
			},
			"tick": func(t *rapid.T) {
				now += rapid.Int64Range(0, 3*second).Draw(t, "later")
				if next := table.Tick(now); next <= now {
					t.Fatalf("at %d the next tick is at %d", now, next)
				}
			},
			"": func(t *rapid.T) {
				if held != table.Released+table.Lost+uint64(table.Waiting()) || uint64(len(r.released)) != table.Released {
					t.Fatalf("held %d, released %d, lost %d, waiting %d", held, table.Released, table.Lost, table.Waiting())
				}
				if table.Len() > limits.Neighbours || table.Waiting() > limits.Waiting {
					t.Fatalf("%d known, %d waiting", table.Len(), table.Waiting())
				}
			},
		})
	})
}

func TestNoAllocations(t *testing.T) {
	table, _ := newTable(t, limits)
	table.Set(key(1), macA)
	if n := testing.AllocsPerRun(100, func() { table.Resolve(key(1), 0) }); n != 0 {
		t.Errorf("%v allocations for a neighbour that is known", n)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{Neighbours: 1, Waiting: 1, PerWaiting: 1}, nil); err == nil {
		t.Error("frames of no length are taken")
	}
}

func BenchmarkResolve(b *testing.B) {
	table, _ := newTable(b, limits)
	table.Set(key(1), macA)
	k := key(1)
	for range b.N {
		table.Resolve(k, 0)
	}
}
