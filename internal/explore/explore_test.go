package explore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// increment is the classic race: a load and a store.
func increment(v *int) func() {
	return func() {
		Access(v, false)
		old := *v
		Access(v, true)
		*v = old + 1
	}
}

// The explorer finds the lost update, and says by which schedule.
func TestFindsLostUpdate(t *testing.T) {
	_, err := run(func() Scenario {
		v := new(int)
		return Scenario{
			Threads: []Thread{{Name: "a", Run: increment(v)}, {Name: "b", Run: increment(v)}},
			Check: func() error {
				if *v != 2 {
					return fmt.Errorf("counted %d", *v)
				}
				return nil
			},
		}
	}, true)
	if err == nil || !strings.Contains(err.Error(), "counted 1") || !strings.Contains(err.Error(), "a reads #0") {
		t.Fatalf("error is %v", err)
	}
}

// Threads without a conflict are run once, however many orders there are.
func TestReducesIndependentThreads(t *testing.T) {
	n, err := run(func() Scenario {
		var sc Scenario
		for i := range 6 {
			sc.Threads = append(sc.Threads, Thread{Name: fmt.Sprint(i), Run: increment(new(int))})
		}
		sc.Check = func() error { return nil }
		return sc
	}, true)
	if err != nil || n != 1 {
		t.Fatalf("%d executions, error %v", n, err)
	}
}

// A killed thread stops before each of its writes in turn, and who comes after it
// begins then.
func TestKillsEverywhere(t *testing.T) {
	seen := map[[2]int]int{}
	_, err := run(func() Scenario {
		v, after := new(int), new(int)
		return Scenario{
			Threads: []Thread{
				{Name: "writer", Kill: true, Run: func() {
					for range 3 {
						Access(v, true)
						*v++
					}
				}},
				{Name: "heir", After: []string{"writer"}, Run: func() {
					Access(v, false)
					*after = *v
				}},
			},
			Check: func() error {
				seen[[2]int{*v, *after}]++
				return nil
			},
		}
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if seen[[2]int{n, n}] == 0 {
			t.Errorf("never killed after %d writes: %v", n, seen)
		}
	}
	for k := range seen {
		if k[0] != k[1] {
			t.Errorf("the heir read %d of %d writes", k[1], k[0])
		}
	}
}

func TestUnknownAfterIsAnError(t *testing.T) {
	_, err := run(func() Scenario {
		v := new(int)
		return Scenario{
			Threads: []Thread{{Name: "a", Run: increment(v), After: []string{"a"}}},
			Check:   func() error { return errors.New("checked") },
		}
	}, true)
	if err == nil || !strings.Contains(err.Error(), "never begins") {
		t.Fatalf("error is %v", err)
	}
}

// instr is an instruction of a random program over a few variables.
type instr struct {
	v    int
	kind int // 0: acc += v, 1: v = acc*3+id, 2: if v == acc { v = id }
}

// The reduction misses no result: over random programs it reaches exactly the
// final states that all interleavings reach, in no more executions.
func TestReductionMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		programs := make([][]instr, rapid.IntRange(2, 3).Draw(t, "threads"))
		for i := range programs {
			programs[i] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) instr {
				return instr{rapid.IntRange(0, 1).Draw(t, "v"), rapid.IntRange(0, 2).Draw(t, "kind")}
			}), 1, 4).Draw(t, "program")
		}
		ordered := rapid.Bool().Draw(t, "ordered")
		kill := rapid.Bool().Draw(t, "kill")
		explore := func(reduce bool) (states map[string]bool, n int) {
			states = map[string]bool{}
			n, err := run(func() Scenario {
				vars := make([]int, 2)
				accs := make([]int, len(programs))
				var sc Scenario
				for id, prog := range programs {
					th := Thread{Name: fmt.Sprint(id), Kill: kill && id == 0, Run: func() {
						for _, in := range prog {
							v := &vars[in.v]
							Access(v, in.kind != 0)
							switch {
							case in.kind == 0:
								accs[id] += *v
							case in.kind == 1:
								*v = accs[id]*3 + id + 1
							case *v == accs[id]:
								*v = id + 1
							}
						}
					}}
					if ordered && id == 1 {
						th.After = []string{"0"}
					}
					sc.Threads = append(sc.Threads, th)
				}
				sc.Check = func() error {
					states[fmt.Sprint(vars, accs)] = true
					return nil
				}
				return sc
			}, reduce)
			if err != nil {
				t.Fatal(err)
			}
			return states, n
		}
		all, nAll := explore(false)
		reduced, n := explore(true)
		if !maps.Equal(all, reduced) {
			t.Fatalf("all orders end in %v, the reduced ones in %v", slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(reduced)))
		}
		if n > nAll {
			t.Fatalf("%d executions, more than the %d of all orders", n, nAll)
		}
	})
}
