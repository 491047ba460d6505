package backend

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dnsapp/dnsapp/server/shm"
)

const now = 1_000_000 // mono.Millis of these tests

// world is a region with the pools of two lanes.
type world struct {
	region *Region
	pools  [2]*Pool
}

func newWorld(t testing.TB, policy Policy, slow time.Duration, members ...Member) *world {
	t.Helper()
	r, err := Format(shm.Heap(RegionSize))
	if err != nil {
		t.Fatal(err)
	}
	r.Open(1, 2)
	w := &world{region: r}
	for i := range members {
		members[i].ID = i
		members[i].Identity = Identity(fmt.Sprint("server", i))
		r.Server(i).Reset(1)
	}
	for i := range w.pools {
		w.pools[i] = NewPool(policy, slow, r, r.Row(1, i), members)
	}
	return w
}

func client(n int) *[16]byte {
	a := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).As16()
	return &a
}

// picks begins n flows of as many clients and returns how many each server got.
func (w *world) picks(t testing.TB, n int, at uint32) []int {
	t.Helper()
	got := make([]int, len(w.pools[0].members))
	for k := range n {
		i, ok := w.pools[0].Pick(client(k), at)
		if !ok {
			t.Fatal("no server")
		}
		w.pools[0].Begin(i)
		got[i]++
	}
	return got
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestRoundRobin(t *testing.T) {
	w := newWorld(t, RoundRobin, 0, Member{}, Member{}, Member{})
	w.region.Server(1).SetWeight(3)
	expect(t, "shares", w.picks(t, 50, now), []int{10, 30, 10})
	// The heavy one does not get its turns in a row.
	run, longest, last := 0, 0, -1
	for range 50 {
		i, _ := w.pools[0].Pick(client(0), now)
		if i != last {
			run = 0
		}
		run++
		longest, last = max(longest, run), i
	}
	expect(t, "longest run", longest, 2)
}

// Who is drained, disabled, down, out, or has no weight gets nothing; a backup
// something only when nobody else can take it.
func TestUsable(t *testing.T) {
	p := Passive{MaxFails: 2, Timeout: time.Second}
	for name, spoil := range map[string]func(s *Server){
		"drained":   func(s *Server) { s.SetOrder(Draining) },
		"disabled":  func(s *Server) { s.SetOrder(Disabled) },
		"down":      func(s *Server) { s.SetDown() },
		"no weight": func(s *Server) { s.SetWeight(0) },
		"failed":    func(s *Server) { s.Failed(now, p); s.Failed(now, p) },
	} {
		for _, policy := range []Policy{RoundRobin, LeastFlows, Hash} {
			w := newWorld(t, policy, 0, Member{}, Member{}, Member{Backup: true})
			spoil(w.region.Server(0))
			expect(t, name, w.picks(t, 20, now), []int{0, 20, 0})
			spoil(w.region.Server(1))
			expect(t, name+", both", w.picks(t, 20, now), []int{0, 0, 20})
			spoil(w.region.Server(2))
			if _, ok := w.pools[0].Pick(client(0), now); ok {
				t.Errorf("%s: a server that takes nothing was picked", name)
			}
		}
	}
}

// Failures in a row take a server out for a while; an answer in between does not
// let them add up; the first failure after that takes it out again.
func TestPassive(t *testing.T) {
	w := newWorld(t, RoundRobin, 0, Member{})
	s, p := w.region.Server(0), Passive{MaxFails: 3, Timeout: 10 * time.Second}
	for range 5 {
		s.Failed(now, p)
		s.Failed(now, p)
		s.Answered()
	}
	expect(t, "out", s.Out(now), false)
	s.Failed(now, p)
	s.Failed(now, p)
	expect(t, "third failure takes it out", s.Failed(now, p), true)
	expect(t, "out", s.Out(now+9_999), true)
	expect(t, "out after the time", s.Out(now+10_000), false)
	expect(t, "one more failure takes it out", s.Failed(now+10_000, p), true)
	s.SetUp(now + 10_001)
	expect(t, "out after a check", s.Out(now+10_001), false)
	expect(t, "never", s.Failed(now, Passive{}), false)
}

func TestLeastFlows(t *testing.T) {
	w := newWorld(t, LeastFlows, 0, Member{}, Member{}, Member{})
	w.region.Server(2).SetWeight(2)
	for range 30 {
		w.pools[1].Begin(0) // in another lane
	}
	expect(t, "begun", w.picks(t, 90, now), []int{0, 30, 60})
	expect(t, "flows", []int{w.region.Flows(0), w.region.Flows(1), w.region.Flows(2)}, []int{30, 30, 60})
	for range 10 {
		w.pools[0].End(1)
	}
	expect(t, "begun", w.picks(t, 10, now+10), []int{0, 10, 0})
}

func TestMaxFlows(t *testing.T) {
	w := newWorld(t, RoundRobin, 0, Member{MaxFlows: 5}, Member{MaxFlows: 7}, Member{Backup: true})
	w.pools[1].Begin(0)
	expect(t, "begun", w.picks(t, 15, now), []int{4, 7, 4})
}

// A server that has come up starts with a sixteenth and has all after slow_start.
func TestSlowStart(t *testing.T) {
	for at, want := range map[uint32][]int{0: {10, 160}, 500: {85, 170}, 1000: {85, 85}, 100_000: {85, 85}} {
		w := newWorld(t, RoundRobin, time.Second, Member{}, Member{})
		w.region.Server(0).SetUp(now)
		got := w.picks(t, want[0]+want[1], now+at)
		if got[0] < want[0]-1 || got[0] > want[0]+1 {
			t.Errorf("after %d ms: %v, want %v", at, got, want)
		}
	}
}

// The hash sends a client to one server, and moves few clients when a server
// comes or goes: those of that server.
func TestHashIsConsistent(t *testing.T) {
	const clients = 2000
	w := newWorld(t, Hash, 0, make([]Member, 5)...)
	where := func() (all [clients]int) {
		for k := range all {
			all[k], _ = w.pools[k%2].Pick(client(k), now) // no flow begins: there is no load to bound
		}
		return all
	}
	before := where()
	shares := make([]int, 5)
	for _, i := range before {
		shares[i]++
	}
	for i, n := range shares {
		if n < clients/5*7/10 || n > clients/5*13/10 {
			t.Errorf("server %d has %d of %d clients", i, n, clients)
		}
	}
	expect(t, "once more", where(), before)
	w.region.Server(3).SetDown()
	for k, i := range where() {
		if i == 3 || i != before[k] && before[k] != 3 {
			t.Fatalf("client %d moved from %d to %d", k, before[k], i)
		}
	}
	w.region.Server(3).SetUp(now)
	expect(t, "back again", where(), before)
}

// No server has more than a quarter above its share, however few the clients.
func TestHashBoundsLoad(t *testing.T) {
	w := newWorld(t, Hash, 0, make([]Member, 4)...)
	for n := range 400 {
		i, _ := w.pools[0].Pick(client(7), now+uint32(n)) // a single client
		w.pools[0].Begin(i)
		if got, most := w.region.Flows(i), (n+1)*5/16+1; got > most {
			t.Fatalf("server %d has %d of %d flows", i, got, n+1)
		}
	}
}

// The numbers of flows are those that were begun and not ended, in all lanes.
func TestFlowsAreCounted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, LeastFlows, 0, make([]Member, 3)...)
		var model [2][3]int
		rt.Repeat(map[string]func(*rapid.T){
			"begin": func(rt *rapid.T) {
				lane, i := rapid.IntRange(0, 1).Draw(rt, "lane"), rapid.IntRange(0, 2).Draw(rt, "server")
				w.pools[lane].Begin(i)
				model[lane][i]++
			},
			"end": func(rt *rapid.T) {
				lane, i := rapid.IntRange(0, 1).Draw(rt, "lane"), rapid.IntRange(0, 2).Draw(rt, "server")
				if model[lane][i] > 0 {
					w.pools[lane].End(i)
					model[lane][i]--
				}
			},
			"a worker dies": func(rt *rapid.T) {
				lane := rapid.IntRange(0, 1).Draw(rt, "lane")
				w.region.Row(1, lane).Clear()
				model[lane] = [3]int{}
			},
			"": func(rt *rapid.T) {
				for i := range 3 {
					if got, want := w.region.Flows(i), model[0][i]+model[1][i]; got != want {
						rt.Fatalf("server %d has %d flows, want %d", i, got, want)
					}
				}
			},
		})
	})
}

func TestAttach(t *testing.T) {
	r := shm.Heap(RegionSize)
	if _, err := Attach(r); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("an empty region: %v", err)
	}
	if _, err := Format(r); err != nil {
		t.Error(err)
	}
}

func BenchmarkPick(b *testing.B) {
	for name, policy := range map[string]Policy{"round-robin": RoundRobin, "least-flows": LeastFlows, "hash": Hash} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, policy, 0, make([]Member, 8)...)
			b.ReportAllocs()
			for n := range b.N {
				w.pools[0].Pick(client(n), uint32(n/50))
			}
		})
	}
}
