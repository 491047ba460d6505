package explore

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

func first(set uint64) int { return bits.TrailingZeros64(set) }

// Access stops the running thread before it accesses what address points to,
// until the explorer lets it go on. Outside a thread it does nothing. Code marked
// by package step calls it by itself in a build with the tag explore.
func Access(address any, write bool) {
	if c := current; c != nil && !c.yield(access{address, write}) {
		panic(errKilled)
	}
}

type access struct {
	address any
	write   bool
}

var errKilled = errors.New("explore: thread killed")

// current is the thread that runs. The explorer is single-threaded: it switches
// to a coroutine and waits for it.
var current *thread

// thread is a coroutine that runs up to its next access.
type thread struct {
	Thread
	index   int
	started bool
	ended   bool
	writes  int // writes made
	next    op
	resume  func() (access, bool)
	stop    func()
	yield   func(access) bool
	clock   []int // by thread: one past its last event that happens before the next access
}

// object is what the accesses to one address have ordered so far.
type object struct {
	writes []int // clock of the last write
	reads  []int // joined clocks of the reads since
}

// machine is one execution.
type machine struct {
	threads []*thread
	ids     map[any]int
	objects []object
	log     []event // the path so far
	victim  int
	killAt  int
	killed  bool
}

// event is an access that was made.
type event struct {
	thread int
	op     op
	clock  []int // by thread: one past its last event that happens before or is this one
}

func newMachine(threads []Thread, victim, killAt int) *machine {
	m := &machine{ids: map[any]int{}, victim: victim, killAt: killAt}
	for i, th := range threads {
		t := &thread{Thread: th, index: i, clock: make([]int, len(threads))}
		t.resume, t.stop = iter.Pull(func(yield func(access) bool) {
			defer func() {
				if r := recover(); r != nil && r != any(errKilled) {
					panic(r)
				}
			}()
			t.yield = yield
			t.Run()
		})
		m.threads = append(m.threads, t)
	}
	setHook()
	m.begin()
	return m
}

func (m *machine) close() {
	for _, t := range m.threads {
		t.stop()
	}
	clearHook()
}

// begin starts the threads that wait for nobody any more, until there are none.
func (m *machine) begin() {
	for again := true; again; {
		again = false
		for _, t := range m.threads {
			if !t.started && m.ready(t) {
				t.started, again = true, true
				m.toNext(t)
			}
		}
	}
}

// ready reports whether all that t comes after have ended, and takes over what
// they have seen.
func (m *machine) ready(t *thread) bool {
	for _, name := range t.After {
		for _, o := range m.threads {
			if o.Name == name && !o.ended {
				return false
			}
		}
	}
	for _, name := range t.After {
		for _, o := range m.threads {
			if o.Name == name {
				join(t.clock, o.clock)
			}
		}
	}
	return true
}

// toNext runs t up to its next access, or to its end.
func (m *machine) toNext(t *thread) {
	current = t
	a, ok := t.resume()
	current = nil
	if !ok {
		t.ended = true
		return
	}
	if a.write && t.index == m.victim && t.writes == m.killAt {
		t.ended, m.killed = true, true
		current = t
		t.stop()
		current = nil
		return
	}
	id, ok := m.ids[a.address]
	if !ok {
		id = len(m.objects)
		m.ids[a.address] = id
		n := len(m.threads)
		m.objects = append(m.objects, object{writes: make([]int, n), reads: make([]int, n)})
	}
	t.next = op{id, a.write}
}

// enabled returns the set of threads that can go on.
func (m *machine) enabled() (set uint64) {
	for i, t := range m.threads {
		if t.started && !t.ended {
			set |= 1 << i
		}
	}
	return set
}

// ops returns every thread's next access.
func (m *machine) ops() []op {
	ops := make([]op, len(m.threads))
	for i, t := range m.threads {
		ops[i] = t.next
	}
	return ops
}

// run lets thread i make its access and go on up to the next.
func (m *machine) run(i int) {
	t := m.threads[i]
	o := &m.objects[t.next.object]
	join(t.clock, o.writes)
	if t.next.write {
		join(t.clock, o.reads)
	}
	t.clock[i] = len(m.log) + 1
	m.log = append(m.log, event{i, t.next, slices.Clone(t.clock)})
	if t.next.write {
		t.writes++
		copy(o.writes, t.clock)
		clear(o.reads)
	} else {
		join(o.reads, t.clock)
	}
	m.toNext(t)
	if t.ended {
		m.begin()
	}
}

// ordered reports whether event i happens before the later event j.
func (m *machine) ordered(i, j int) bool { return m.log[j].clock[m.log[i].thread] > i }

// stuck returns an error if a thread waits for one that does not exist.
func (m *machine) stuck() error {
	for _, t := range m.threads {
		if !t.started {
			return fmt.Errorf("thread %s never begins: it comes after %v", t.Name, t.After)
		}
	}
	return nil
}

func join(dst, src []int) {
	for i, v := range src {
		dst[i] = max(dst[i], v)
	}
}
