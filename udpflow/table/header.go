package table

import (
	"errors"
	"fmt"

	"github.com/dnsapp/dnsapp/internal/step"
)

// State says what other generations may do with the flows of a worker.
type State uint32

// The states of a worker's header, and the only moves between them:
//
//	None -> Publishing     before the park
//	Publishing -> Handed   release, deadline, worker death
//	Publishing -> None     abort, take-back
//	Handed -> None         slot reused, after the reap
const (
	None       State = iota // attached, not publishing: nothing is forwarded to it
	Publishing              // window open: exactly the flows alive in the table are forwarded to it
	Handed                  // leaving: everything is served by the rx owner
)

var stateNames = [...]string{"none", "publishing", "handed"}

// String returns the state as logs and status name it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Header is one worker's header word: state:32 | wid:32. wid is the window the
// worker publishes or published in, 0 in None.
type Header uint64

func header(st State, wid uint32) Header { return Header(st)<<32 | Header(wid) }

// State returns the state.
func (h Header) State() State { return State(h >> 32) }

// Window returns the window id.
func (h Header) Window() uint32 { return uint32(h) }

// String returns h for logs.
func (h Header) String() string { return fmt.Sprintf("%v in window %d", h.State(), h.Window()) }

// ErrIllegalMove is matched by every error of SetHeader: whoever asked for the
// move has a bug, and the header is as it was.
var ErrIllegalMove = errors.New("illegal move of a worker's header")

// Header returns the header word of worker.
func (t *Table) Header(worker int) Header { return Header(t.word(worker).Header.Load()) }

// SetHeader moves the header of worker to state st. wid is the window: not 0,
// and the one published in for Handed; for None it is not used. Only the
// supervisor may call it.
func (t *Table) SetHeader(worker int, st State, wid uint32) error {
	w := &t.word(worker).Header
	old := Header(w.Load())
	next := header(st, wid)
	legal := false
	switch {
	case st == None:
		next = header(None, 0)
		legal = old.State() == Publishing || old.State() == Handed
	case st == Publishing:
		legal = old.State() == None && wid != 0
	case st == Handed:
		legal = old.State() == Publishing && wid == old.Window()
	}
	if !legal || !w.CompareAndSwap(uint64(old), uint64(next)) {
		return fmt.Errorf("moving worker %d from %v to %v: %w", worker, old, next, ErrIllegalMove)
	}
	return nil
}

// Valid reports whether worker publishes in window wid, which is the window that
// its generation's directory slot names now: only then are its flows forwarded.
func (t *Table) Valid(worker int, wid uint32) bool {
	if worker < 0 || worker >= MaxWorkers || wid == 0 {
		return false
	}
	w := &t.workers[worker].Header
	step.Read(w)
	return Header(w.Load()) == header(Publishing, wid)
}

func (t *Table) word(worker int) *workerWord {
	if worker < 0 || worker >= MaxWorkers {
		panic(fmt.Sprintf("table: no worker %d", worker))
	}
	return &t.workers[worker]
}
