package handover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// This file walks through everything that two supervisors can say to each other and
// what can befall them: every order of words and of silences, the death of either or
// of both at every step, each time-out, and the way back. What they do about a word
// are the rules of this package; what they do besides is a line or two each here.

// role is what one of the two is doing.
type role uint8

const (
	absent role = iota
	owns        // it coordinates
	gives       // it has let go, and goes by its Giver
	fences      // it makes certain that the other one is gone
	takes       // it has said hello
	holds       // it has been offered everything
	leaves      // it has nothing any more, and ends
	ended       // of itself
	dead        // killed
)

var roleNames = [...]string{"absent", "owns", "gives", "fences", "takes", "holds", "leaves", "ended", "dead"}

// hasLock reports whether a process that does so has the lock on the control directory.
func (r role) hasLock() bool { return slices.Contains([]role{owns, gives, fences, holds}, r) }

// runs reports whether there is a process.
func (r role) runs() bool { return r != absent && r != ended && r != dead }

// side is one of the two supervisors.
type side struct {
	role   role
	giver  Giver // valid iff it gives
	taker  Taker // valid iff it owns and is linked
	linked bool  // it has its end of the connection
	awaits bool  // it has said Return, and hears the hello of the other one
	hangs  bool  // it does nothing more until it is killed
}

// talk is the state of the walk. It is comparable.
type talk struct {
	sides   [2]side
	queue   [2]string // words on their way to each side, one letter a word
	kills   uint8     // deaths, and processes that hang, that may still come
	returns uint8     // that may still be said
	stopped bool      // the whole instance has been told to end
}

// letters are the words in a queue.
var letters = map[Kind]string{
	Hello: "h", Refused: "r", Offer: "o", Taken: "t", News: "n", Committed: "c", Done: "d", Failed: "f", Leave: "l", Return: "b",
}

func kindOf(letter string) Kind {
	for k, l := range letters {
		if l == letter {
			return k
		}
	}
	panic("no such letter: " + letter)
}

// String is for paths.
func (k talk) String() string {
	var b strings.Builder
	for i, s := range k.sides {
		fmt.Fprintf(&b, "%c %s", 'A'+i, roleNames[s.role])
		switch {
		case s.role == gives:
			fmt.Fprintf(&b, " (%v)", s.giver.Stage)
		case s.role == owns && s.linked:
			fmt.Fprintf(&b, " (%v)", s.taker.Stage)
		}
		fmt.Fprintf(&b, " <-%q; ", k.queue[i])
	}
	return b.String()
}

// move is one step and what it is called.
type move struct {
	name string
	to   talk
}

// walk makes moves. A mutation breaks one rule, to see that the walk sees it.
type walk struct {
	mutation string
	moves    []move
	faults   []string
}

func (w *walk) add(name string, to talk) { w.moves = append(w.moves, move{name, to}) }

// say puts a word on its way; one to an end that is closed is lost.
func (k *talk) say(from int, kind Kind) {
	if k.sides[1-from].linked {
		k.queue[1-from] += letters[kind]
	}
}

// unlink closes one end. What waits there is lost.
func (k *talk) unlink(i int) { k.sides[i].linked, k.queue[i] = false, "" }

// becomes gives a side another role, with nothing of the one before.
func (k *talk) becomes(i int, r role) {
	linked := k.sides[i].linked
	k.sides[i] = side{role: r, linked: linked}
	if !r.runs() || r == fences || r == leaves {
		k.unlink(i)
	}
}

// lockFree reports whether the lock on the directory can be had by side i.
func (k *talk) lockFree(i int) bool { return !k.sides[1-i].role.hasLock() }

// from returns every move from k.
func (w *walk) from(k talk) []move {
	w.moves = nil
	for i := range k.sides {
		s := k.sides[i]
		if !s.hangs {
			w.side(k, i)
		}
		if k.kills == 0 || !s.role.runs() {
			continue
		}
		to := k
		to.kills--
		to.becomes(i, dead)
		w.add(fmt.Sprintf("%c is killed", 'A'+i), to)
		// After its commit a supervisor that hangs is one that hangs, and nobody's affair.
		if s.role == takes || s.role == holds || s.role == owns && s.taker.Stage == StageTaken {
			to = k
			to.kills--
			to.sides[i].hangs = true
			w.add(fmt.Sprintf("%c hangs", 'A'+i), to)
		}
	}
	if k.sides[1].role == absent && k.sides[0].role == owns {
		to := k
		to.sides[1] = side{role: takes, linked: true}
		to.sides[0].linked = true
		to.say(1, Hello)
		w.add("B is started", to)
	}
	return w.moves
}

// side adds the moves of one side.
func (w *walk) side(k talk, i int) {
	s := k.sides[i]
	name := func(what string) string { return fmt.Sprintf("%c %s", 'A'+i, what) }
	var word Kind
	if k.queue[i] != "" {
		word = kindOf(k.queue[i][:1])
	}
	lost := word == "" && s.linked && !k.sides[1-i].linked
	next := k
	if word != "" {
		next.queue[i] = k.queue[i][1:]
	}
	switch s.role {
	case owns:
		w.owner(k, next, i, word, lost)
	case gives:
		if w.mutation != "forgets time" && s.giver.Hurries() {
			to := k
			to.becomes(i, fences)
			w.add(name("loses patience"), to)
		}
		verdict := Follow
		switch {
		case word != "":
			if !slices.Contains(s.giver.Due(), word) {
				w.faults = append(w.faults, name(fmt.Sprintf("hears %q, which is not due when %v", word, s.giver.Stage)))
			}
			verdict = next.sides[i].giver.Hear(word)
		case lost:
			verdict = s.giver.Lost()
		default:
			return
		}
		switch verdict {
		case TakeBack:
			next.becomes(i, fences)
		case End:
			next.becomes(i, ended)
		case TakeAgain:
			next.becomes(i, takes)
			next.say(i, Hello)
		}
		w.add(name(fmt.Sprintf("hears %q: %v", word, verdict)), next)
	case fences:
		to := k
		if other := k.sides[1-i].role; other.runs() && w.mutation != "no fence" {
			to.becomes(1-i, dead)
			w.add(name("kills the other one"), to)
			return
		}
		to.becomes(i, owns)
		w.add(name("has everything again"), to)
	case takes:
		switch {
		case word == Offer:
			next.becomes(i, holds)
			w.add(name("is offered everything"), next)
		case word == Refused:
			next.becomes(i, ended)
			w.add(name("is refused"), next)
		case word != "":
			w.faults = append(w.faults, name(fmt.Sprintf("hears %q instead of an offer", word)))
		case lost:
			next.becomes(i, ended)
			if k.lockFree(i) {
				next.becomes(i, owns)
				next.unlink(i)
			}
			w.add(name("finds nobody"), next)
		}
	case holds:
		to := k
		to.becomes(i, owns)
		if to.sides[i].taker.Says(Taken) {
			to.say(i, Taken)
		}
		w.add(name("adopts"), to)
		to = k
		to.say(i, Failed)
		to.becomes(i, ended)
		w.add(name("cannot adopt"), to)
	case leaves:
		to := k
		to.becomes(i, ended)
		w.add(name("ends"), to)
	}
}

// owner adds the moves of the side that coordinates: k is the state, and next the one
// with the first word taken out of its queue.
func (w *walk) owner(k, next talk, i int, word Kind, lost bool) {
	s := k.sides[i]
	name := func(what string) string { return fmt.Sprintf("%c %s", 'A'+i, what) }
	switch {
	case word == Hello:
		to := next
		back := s.awaits
		to.becomes(i, gives)
		to.sides[i].giver.Ends = back
		to.say(i, Offer)
		w.add(name("lets go"), to)
		if !back { // another one may be on its way, or it is not fit
			to = next
			to.say(i, Refused)
			to.unlink(i)
			w.add(name("refuses"), to)
		}
	case word != "":
		w.faults = append(w.faults, name(fmt.Sprintf("hears %q while it coordinates", word)))
	case lost:
		to := k
		to.unlink(i)
		to.sides[i] = side{role: owns}
		w.add(name("is alone"), to)
	}
	if s.taker.Stage > StageOffered {
		for _, kind := range []Kind{News, Committed, Done, Failed, Leave, Return} {
			w.speak(k, i, kind)
		}
	}
	if s.awaits { // and no longer than upgrade.timeout
		to := k
		to.say(i, Refused)
		to.unlink(i)
		to.sides[i] = side{role: owns}
		w.add(name("gives the way back up"), to)
	}
	if !k.stopped {
		to := k
		to.stopped = true
		switch {
		case s.awaits:
			to.say(i, Refused)
		case s.linked && s.taker.Stage > StageOffered && to.sides[i].taker.Says(Leave):
			to.say(i, Leave)
		case s.linked:
			to.say(i, Refused) // somebody is at the door
		}
		to.becomes(i, ended)
		w.add(name("is stopped"), to)
	}
}

// speak adds what comes of a word of the side that coordinates.
func (w *walk) speak(k talk, i int, kind Kind) {
	to := k
	t := &to.sides[i].taker
	if w.mutation == "speaks early" && kind == Return && t.Stage == StageTaken {
		t.Over = true
	} else if !k.sides[i].linked || !t.Says(kind) {
		return
	}
	switch {
	case kind == News && strings.Contains(k.queue[1-i], letters[News]):
		return // once is like often
	case kind == Return && k.returns == 0:
		return
	case kind == Return:
		to.returns--
		to.sides[i].awaits = true
	}
	to.say(i, kind)
	if kind == Failed {
		to.becomes(i, leaves)
	}
	w.add(fmt.Sprintf("%c says %q", 'A'+i, kind), to)
}

// fault says what is wrong with a state, "" if nothing is.
func (k talk) fault() string {
	if k.sides[0].role == owns && k.sides[1].role == owns {
		return "both coordinate"
	}
	return ""
}

// settled reports whether everything is as it should be in the end: one coordinates,
// and the other one is not there or stands by; or nobody is left whom the workers
// could serve on for but the next supervisor.
func (k talk) settled() bool {
	a, b := k.sides[0], k.sides[1]
	acts := func(s side) bool { return s.role.runs() && !s.hangs }
	if !acts(a) && !acts(b) {
		return true
	}
	for _, p := range [][2]side{{a, b}, {b, a}} {
		one, other := p[0], p[1]
		if one.role == owns && !one.hangs && (!other.role.runs() || other.hangs && !one.linked || other.role == gives && other.giver.Stage == StageDone) {
			return true
		}
	}
	return false
}

// explore walks through all states and returns how many there are and the first
// fault, with the path to it.
func explore(mutation string) (states int, fault string) {
	start := talk{kills: 2, returns: 2}
	start.sides[0].role = owns
	type edge struct {
		from talk
		name string
	}
	came := map[talk]edge{start: {}}
	path := func(k talk) string {
		var steps []string
		for k != start {
			e := came[k]
			steps = append(steps, fmt.Sprintf("%-36s %v", e.name, k))
			k = e.from
		}
		slices.Reverse(steps)
		return strings.Join(steps, "\n")
	}
	w := &walk{mutation: mutation}
	back := make(map[talk][]talk) // without deaths
	var settled []talk
	for todo := []talk{start}; len(todo) > 0; {
		k := todo[0]
		todo = todo[1:]
		if f := k.fault(); f != "" {
			return len(came), f + "\n" + path(k)
		}
		if k.settled() {
			settled = append(settled, k)
		}
		for _, m := range w.from(k) {
			if _, known := came[m.to]; !known {
				came[m.to] = edge{k, m.name}
				todo = append(todo, m.to)
			}
			if m.to.kills == k.kills {
				back[m.to] = append(back[m.to], k)
			}
		}
		if len(w.faults) > 0 {
			return len(came), w.faults[0] + "\n" + path(k)
		}
	}
	// From every state something settled can be reached without another death.
	reaches := make(map[talk]bool)
	for _, k := range settled {
		reaches[k] = true
	}
	for todo := settled; len(todo) > 0; {
		k := todo[0]
		todo = todo[1:]
		for _, f := range back[k] {
			if !reaches[f] {
				reaches[f] = true
				todo = append(todo, f)
			}
		}
	}
	for k := range came {
		if !reaches[k] {
			return len(came), "it never settles\n" + path(k)
		}
	}
	return len(came), ""
}

// Whatever two supervisors say to each other in whatever order, and whoever dies of
// them when: never do both coordinate, neither hears what it does not expect, and in
// the end one has everything, or nobody is left.
func TestTalkWalk(t *testing.T) {
	states, fault := explore("")
	if fault != "" {
		t.Errorf("%s", fault)
	}
	t.Logf("%d states", states)
	if states < 500 {
		t.Errorf("%d states: it has not gone far", states)
	}
}

// The walk sees a rule that is broken.
func TestTalkWalkFails(t *testing.T) {
	for mutation, want := range map[string]string{
		"no fence":     "both coordinate",
		"speaks early": "not due",
		"forgets time": "never settles",
	} {
		_, fault := explore(mutation)
		if first, _, _ := strings.Cut(fault, "\n"); !strings.Contains(first, want) {
			t.Errorf("%s: the walk finds %q, not %q", mutation, fault, want)
		}
	}
}
