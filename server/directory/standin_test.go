package directory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dnsapp/dnsapp/internal/explore"
	"github.com/dnsapp/dnsapp/internal/step"
)

// The word moves along the arrows of its picture, and what is asked too early or too
// late changes nothing.
func TestStandIn(t *testing.T) {
	d := newDirectory()
	if err := d.Open(0, 1, 4, 2, nil); err != nil {
		t.Fatal(err)
	}
	v := d.Worker(0, 0)
	want := func(what string, reader int, word string) {
		t.Helper()
		if r := v.Reader(0); r != reader || v.standIn().String() != word || v.Absent() != (word != "itself") {
			t.Errorf("%s: read by %d; %v, want %d; %s", what, r, v.standIn(), reader, word)
		}
	}
	yes := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	claim := func(what string, mine bool, asked int) {
		t.Helper()
		if m, a := v.Claim(); m != mine || a != asked {
			t.Errorf("%s: claimed %v, asked %d", what, m, a)
		}
	}
	want("at first", 0, "itself")
	claim("its own", true, -1)
	yes("stands in for the living", v.StandIn(1), false)
	yes("joins for the living", v.Join(1), false)
	version := d.Version()
	v.Orphan(1 << 0)
	want("dead", -1, "nobody")
	yes("joins unasked", v.Join(1), false)
	yes("stands in", v.StandIn(1), true)
	yes("another stands in", v.StandIn(2), false)
	want("stands in", 1, "worker 1, with 0 lanes")
	yes("another joins", v.Join(2), false)
	yes("a lane joins", v.Join(1), true)
	yes("a lane joins", v.Join(1), true)
	v.Orphan(1 << 0)
	want("died again", 1, "worker 1, with 2 lanes")
	claim("asks", false, 1)
	claim("asks again", false, -1)
	want("leaves", -1, "worker 1, which leaves, with 2 lanes")
	yes("joins a leaving one", v.Join(1), false)
	yes("the first to leave is the last", v.Leave(), false)
	v.Orphan(1 << 0)
	want("died while it waited", 1, "worker 1, with 1 lanes")
	yes("joins again", v.Join(1), true)
	claim("asks", false, 1)
	yes("the first to leave is the last", v.Leave(), false)
	claim("too early", false, -1)
	yes("the last leaves", v.Leave(), true)
	claim("back", true, -1)
	want("back", 0, "itself")
	v.Orphan(1 << 0)
	v.StandIn(3)
	claim("nobody has joined", true, -1)
	v.Orphan(1 << 0)
	v.StandIn(3)
	v.Join(3)
	v.Orphan(1<<0 | 1<<3)
	want("both dead", -1, "nobody")
	v.StandIn(2)
	v.Join(2)
	v.Claim()
	v.Orphan(1 << 2)
	want("the one that leaves is dead", -1, "nobody")
	claim("orphaned", true, -1)
	if d.Version() == version {
		t.Error("no lane would look")
	}
}

// siblings is a scenario: worker 0 has died, worker 1 stands in, with some lanes, and
// the next process of worker 0 has some.
type siblings struct {
	d     *Directory
	w     wire
	mayDo string // what a broken protocol does
}

func (s *siblings) touch(write bool) {
	if !step.Enabled {
		explore.Access(s.d.Worker(0, 0).w, write)
	}
}

// standing is a lane of the sibling.
func (s *siblings) standing(lane, bursts int) func() {
	return func() {
		v, joined := s.d.Worker(0, 0), false
		for range bursts {
			s.w.end(lane)
			s.touch(false)
			reads := v.Reader(0) == 1
			if joined && !reads {
				s.touch(true)
				v.Leave()
				joined = false
			}
			if !joined && reads {
				s.touch(true)
				joined = v.Join(1)
			}
			if joined || strings.Contains(s.mayDo, "read without joining") && reads {
				s.w.begin(lane, 1)
			}
		}
		s.w.end(lane)
		if joined {
			s.touch(true)
			v.Leave()
		}
	}
}

// back is a lane of the worker itself, in its next process.
func (s *siblings) back(lane, bursts int) func() {
	return func() {
		v := s.d.Worker(0, 0)
		for range bursts {
			s.w.end(lane)
			s.touch(true)
			if mine, _ := v.Claim(); mine || strings.Contains(s.mayDo, "read unclaimed") {
				s.w.begin(lane, 2)
			}
		}
		s.w.end(lane)
	}
}

// exploreSiblings explores it, with some lanes of the sibling, for so many bursts of
// each lane, and returns what was wrong.
func exploreSiblings(t *testing.T, lanes, standing, back int, mayDo string) (runs int, wrong error) {
	t.Helper()
	explore.Run(t, func() explore.Scenario {
		s := &siblings{d: newDirectory(), mayDo: mayDo, w: wire{reading: make([]uint32, lanes+1)}}
		if err := s.d.Open(0, 1, 2, lanes, nil); err != nil {
			t.Fatal(err)
		}
		v := s.d.Worker(0, 0)
		v.Orphan(1 << 0)
		threads := []explore.Thread{{Name: "supervisor", Kill: true, Run: func() { s.touch(true); v.StandIn(1) }}}
		var names []string
		for lane := range lanes {
			name := fmt.Sprint("sibling's lane ", lane)
			names = append(names, name)
			threads = append(threads, explore.Thread{Name: name, Kill: lanes == 1, Run: s.standing(lane, standing)})
		}
		threads = append(threads, explore.Thread{Name: "own lane", Run: s.back(lanes, back)})
		if lanes == 1 { // however it ended, the supervisor learns that the sibling is gone
			threads = append(threads, explore.Thread{Name: "death", After: names, Run: func() {
				s.w.end(0)
				s.touch(true)
				if v.standIn().sibling() == 1 {
					v.Orphan(1 << 1)
				}
			}})
		}
		return explore.Scenario{Threads: threads, Check: func() error {
			if s.w.err != nil && wrong == nil {
				wrong = s.w.err
			}
			if mine, _ := v.Claim(); !mine && mayDo == "" {
				return fmt.Errorf("nobody reads any more, and the worker may not: %v", v.standIn())
			}
			runs++
			return nil
		}}
	})
	return runs, wrong
}

// A worker that is back never reads beside the lanes of the sibling that stood in,
// in any order, and whoever dies; and it gets its sockets back.
func TestNeverTwoSiblings(t *testing.T) {
	cases := []struct{ lanes, standing, back int }{{1, 3, 3}, {2, 1, 2}}
	if step.Enabled { // each operation is several accesses
		cases = cases[:1]
		cases[0].standing, cases[0].back = 2, 1
	}
	for _, c := range cases {
		if runs, wrong := exploreSiblings(t, c.lanes, c.standing, c.back, ""); wrong != nil || runs == 0 {
			t.Errorf("%d lanes: %v", c.lanes, wrong)
		}
	}
	for _, broken := range []string{"read without joining", "read unclaimed"} {
		if _, wrong := exploreSiblings(t, cases[0].lanes, cases[0].standing, cases[0].back, broken); wrong == nil {
			t.Errorf("%s: the exploration does not see it", broken)
		}
	}
}
