package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Thread is one thread of a scenario.
type Thread struct {
	Name string
	Run  func()

	// After names threads that must have ended, by return or by a kill, before
	// this one begins.
	After []string

	// Kill also runs the scenario with the thread killed before each of its writes.
	// (Killed between reads it leaves the same behind as killed before the write
	// that follows.) Its deferred calls run then, as they would not in a real kill:
	// code under test must have none.
	Kill bool
}

// Scenario is one run from a fresh state: at most 64 threads, and a check of the
// state in which they leave it.
type Scenario struct {
	Threads []Thread
	Check   func() error
}

// maxExecutions bounds a scenario: beyond it, it is too big to be explored.
const maxExecutions = 5_000_000

// Run explores the scenario that build makes anew for every execution, fails tb
// at the first one whose check fails, with its schedule, and logs how many there
// were. build and the threads must be deterministic but for the schedule.
func Run(tb testing.TB, build func() Scenario) {
	tb.Helper()
	total, err := run(build, true)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%d executions", total)
}

// run explores without kills, and then with each kill.
func run(build func() Scenario, reduce bool) (executions int, err error) {
	x := explorer{build: build, reduce: reduce, victim: -1}
	if err := x.explore(); err != nil {
		return x.executions, err
	}
	for v, th := range build().Threads {
		if !th.Kill {
			continue
		}
		x.victim = v
		for x.killAt, x.killed = 0, true; x.killed; x.killAt++ {
			x.killed = false
			if err := x.explore(); err != nil {
				return x.executions, fmt.Errorf("%s killed before its write %d: %w", th.Name, x.killAt+1, err)
			}
		}
	}
	return x.executions, nil
}

// op is the access that a thread is about to make. object numbers the address in
// the order of first use, which is the same whenever the schedule is.
type op struct {
	object int
	write  bool
}

func (a op) conflicts(b op) bool { return a.object == b.object && (a.write || b.write) }

// node is a state on the path being explored, and the choice made in it. The sets
// are bit sets of threads.
type node struct {
	next      []op   // by thread; valid for those that can go on
	backtrack uint64 // choices to try
	sleep     uint64 // choices that lead only to what has been seen, those tried included
	chosen    int
}

// explorer walks the tree of schedules depth first, running the scenario from its
// start for each leaf.
type explorer struct {
	build      func() Scenario
	reduce     bool
	executions int
	path       []*node

	victim int // thread to be killed, -1: none
	killAt int // before the write after this many
	killed bool
}

func (x *explorer) explore() error {
	x.path = nil
	for {
		x.executions++
		if x.executions > maxExecutions {
			return fmt.Errorf("more than %d executions", maxExecutions)
		}
		if err := x.execute(); err != nil {
			return err
		}
		if !x.advance() {
			return nil
		}
	}
}

// advance moves to the next choice to try: it drops the end of the path up to a
// state with one left, and reports whether there is one.
func (x *explorer) advance() bool {
	for len(x.path) > 0 {
		n := x.path[len(x.path)-1]
		n.sleep |= 1 << n.chosen
		if left := n.backtrack &^ n.sleep; left != 0 {
			n.chosen = first(left)
			return true
		}
		x.path = x.path[:len(x.path)-1]
	}
	return false
}

// execute runs the scenario along the path, extends the path until no thread is
// left or all would only repeat, and checks the final state in the first case.
func (x *explorer) execute() error {
	sc := x.build()
	m := newMachine(sc.Threads, x.victim, x.killAt)
	defer m.close()
	replayed := len(x.path) - 1 // states before this one make the choices they made last time
	for depth := 0; ; depth++ {
		enabled := m.enabled()
		if enabled == 0 {
			break
		}
		if depth == len(x.path) && !x.extend(m, enabled) {
			return nil
		}
		if x.reduce && depth >= replayed {
			x.races(m, depth)
		}
		m.run(x.path[depth].chosen)
	}
	x.killed = x.killed || m.killed
	if err := m.stuck(); err != nil {
		return fmt.Errorf("%w\n%s", err, m.schedule())
	}
	if err := sc.Check(); err != nil {
		return fmt.Errorf("%w\n%s", err, m.schedule())
	}
	return nil
}

// extend adds a node for the machine's state and reports whether there is a
// choice in it that does not only repeat.
func (x *explorer) extend(m *machine, enabled uint64) bool {
	n := &node{next: m.ops()}
	if x.reduce && len(x.path) > 0 {
		prev := x.path[len(x.path)-1]
		for q := range m.threads {
			if prev.sleep>>q&1 != 0 && q != prev.chosen && !prev.next[q].conflicts(prev.next[prev.chosen]) {
				n.sleep |= 1 << q
			}
		}
	}
	awake := enabled &^ n.sleep
	if awake == 0 {
		return false
	}
	n.chosen = first(awake)
	n.backtrack = 1 << n.chosen
	if !x.reduce {
		n.backtrack = enabled
	}
	x.path = append(x.path, n)
	return true
}

// races looks at the access that the choice at depth is about to make: for every
// earlier one that it races with, it sees to it that the other order is tried.
func (x *explorer) races(m *machine, depth int) {
	p := x.path[depth].chosen
	access := x.path[depth].next[p]
	past := m.threads[p].clock
	precedes := func(i int) bool { // orders event i before the access
		e := m.log[i]
		return e.thread == p || past[e.thread] > i || e.op.conflicts(access)
	}
	for i := depth - 1; i >= 0; i-- {
		e := m.log[i]
		if e.thread == p || !e.op.conflicts(access) || past[e.thread] > i {
			continue // no conflict, or ordered already
		}
		// What came after e without depending on it, and then the access, can
		// run in e's place. Any thread that may begin this will do.
		var independent []int
		var begin, seen uint64
		direct := true
		for j := i + 1; j < depth && direct; j++ {
			switch {
			case m.ordered(i, j):
				direct = !m.log[j].op.conflicts(access) // else e races with j, and j with the access
				continue
			case seen>>m.log[j].thread&1 == 0 && !slices.ContainsFunc(independent, func(k int) bool { return m.ordered(k, j) }):
				begin |= 1 << m.log[j].thread
			}
			seen |= 1 << m.log[j].thread
			independent = append(independent, j)
		}
		if !direct {
			continue
		}
		if seen>>p&1 == 0 && !slices.ContainsFunc(independent, precedes) {
			begin |= 1 << p
		}
		if n := x.path[i]; n.backtrack&begin == 0 {
			n.backtrack |= 1 << first(begin)
		}
	}
}

// schedule returns the executed schedule for people.
func (m *machine) schedule() string {
	var b strings.Builder
	for _, l := range m.log {
		what := "reads"
		if l.op.write {
			what = "writes"
		}
		fmt.Fprintf(&b, "  %s %s #%d\n", m.threads[l.thread].Name, what, l.op.object)
	}
	return b.String()
}
