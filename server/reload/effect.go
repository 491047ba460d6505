package reload

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/directory"
)

// Effect is something that the supervisor must do. The types of this file are
// all there are; each is comparable.
type Effect interface{ effect() }

// Starting and ending generations.
type (
	// Prepare is T0: read and check the configuration, open files, compile
	// changed zones, create sockets, open the slot in the directory under a new
	// epoch. Answered by Prepared or PrepareFailed.
	Prepare struct {
		Order   uint32
		Request uint64
		Slot    uint8 // the slot to use; it is free
		Mode    Mode
	}

	// CancelPrepare drops what Prepare with this order has made or is making,
	// whether or not it has answered. It has no answer.
	CancelPrepare struct{ Order uint32 }

	// SpawnWorkers starts every worker of the prepared generation. In mode
	// Restart they get sockets of their own and read at once, whatever the
	// owner word says. WorkerReady or WorkerExited follows for each.
	SpawnWorkers struct {
		Gen  Generation
		Mode Mode
	}

	// RespawnWorker starts one worker again, same epoch, slot and index, as soon
	// as its process is gone, with back-off, again and again until WorkerReady,
	// a Fence that covers it, or a SignalWorkers to its generation. Ordering
	// it again meanwhile changes nothing.
	RespawnWorker struct {
		Gen    Generation
		Worker int
	}

	// Fence makes sure that no process of these workers is left: stop trying to
	// respawn, SIGKILL, wait for the pidfd, write `gone`. Workers without a
	// process count at once. Answered by Fenced, after a WorkerExited for each
	// process that lived.
	Fence struct {
		Order   uint32
		Workers Workers
	}

	// SignalWorkers ends a generation: stop trying to respawn, and send this
	// signal to every process it has. ProcessesGone follows once for each
	// generation (at once if it has no process), not once for each signal.
	SignalWorkers struct {
		Gen    Generation
		Signal Signal
	}

	// FoldAndFree folds the counters of a generation whose processes are gone,
	// closes its sockets and regions, sets its headers and window to none and
	// its slot in the directory to free.
	FoldAndFree struct{ Gen Generation }
)

// Who reads the wire, and who serves which flow.
type (
	// Mark writes the state of the generation's slot in the directory.
	Mark struct {
		Gen   Generation
		State directory.State
	}

	// OpenWindow opens a window against the generation: a new window id, and
	// its headers NONE -> PUBLISHING under it. From the flip on, what is alive
	// in its flow table is forwarded to it.
	OpenWindow struct{ Gen Generation }

	// CloseWindow takes OpenWindow back: headers -> NONE.
	CloseWindow struct{ Gen Generation }

	// SetHanded sets the headers of these workers PUBLISHING -> HANDED (those
	// already HANDED stay): nothing is forwarded to them any more once every rx
	// lane has passed a boundary.
	SetHanded struct {
		Gen     Generation
		Workers WorkerSet
	}

	// Ask asks every lane of these workers for a sign of life: bump the ask
	// word, write the eventfd, wait for the answer word. Workers without a
	// process, and those whose process dies, count as answered; one whose
	// process is still starting answers when its lanes run. Answered by
	// LanesAnswered (at once if there is nobody to ask) or Unanswered.
	Ask struct {
		Order   uint32
		Workers Workers
	}

	// Park makes the owner word a park of its present owner for
	// directory.Lease, and waits until the ack of every lane that may read, of
	// every live process in any generation, equals exactly that word. Dead
	// processes count as acked. Answered by LanesParked or ParkLapsed.
	Park struct{ Order uint32 }

	// Unpark gives the wire back to the parked owner. If there is no park any
	// more, a lapse has done it already.
	Unpark struct{}

	// Flip moves the owner word from exactly Park to Gen by one
	// compare-and-swap. Answered by Flipped or FlipLost.
	Flip struct {
		Order uint32
		Park  directory.Word
		Gen   Generation
	}

	// SetOwner gives the wire to Gen without a park: the first generation, or
	// mode Restart. It has no answer and cannot be lost.
	SetOwner struct{ Gen Generation }

	// Commit says that T2 is done, or that a generation has the wire again: what
	// had to wait for it is done now (addresses that overlapped are bound, TCP
	// listens, socket options are set). A failure there is the supervisor's to
	// report; the generation stays.
	Commit struct {
		Gen     Generation
		Request uint64 // 0 if it has the wire again
	}

	// AskDrain tells the workers of the generation (those that become ready
	// later too) to take no new work and asks them, again and again, what they
	// still serve, until every live one serves nothing. A generation that is
	// the rx owner goes on reading for the flows it knows. Asking again replaces
	// the order. Answered by Drained.
	AskDrain struct {
		Order uint32
		Gen   Generation
	}

	// Resume takes AskDrain back: the generation owns the wire again, and its
	// workers take new work. If they were never asked it changes nothing.
	Resume struct{ Gen Generation }

	// Release has the workers of a HANDED generation empty the rings they
	// consume and say so, has the entries of dead ones taken back by their
	// producers, and waits for the rings it produced into. Answered by
	// RingsReleased or Unanswered.
	Release struct {
		Order uint32
		Gen   Generation
	}
)

// Time and words.
type (
	// StartTimer starts a timer. No timer is started twice for the same Gen.
	StartTimer struct {
		Timer Timer
		Gen   Generation // zero for TimerStop and TimerStopFast
	}

	// StopTimer stops a timer. If it has fired meanwhile, its TimerFired is
	// late and is ignored.
	StopTimer struct {
		Timer Timer
		Gen   Generation
	}

	// Report ends a request: the one answer its sender gets.
	Report struct {
		ID      uint64
		Outcome Outcome
		Epoch   uint32 // of the rx owner now, 0 if none
		Into    uint64 // the request that stands for this one. Valid iff Joined
		Reason  string // how the drain ended, or why it failed or was refused
	}

	// Notify tells the service manager.
	Notify struct{ Status Status }

	// LogTransition logs that the machine moved from one Phase to another, or a
	// generation from one Stage to another.
	LogTransition struct {
		Gen      Generation   // zero before the first is known
		From, To fmt.Stringer // two of type Phase or two of type Stage
		Reason   string
	}

	// LogIllegal logs an event that does not fit the state, which is a bug of
	// the supervisor. Nothing has changed.
	LogIllegal struct {
		Event Event
		Phase Phase
	}

	// Exit ends the supervisor. It is the last effect.
	Exit struct{ Code int }
)

// Signal is how a worker process is told to end. A greater one is stronger.
type Signal uint8

// The signals.
const (
	NoSignal   Signal = iota
	SignalQuit        // finish what is in hand, then exit
	SignalTerm        // clean up, then exit
	SignalKill
)

// Timer names a span of time and what it bounds. The supervisor knows how long
// each is. All timers of one drain or stop share one budget, which counts
// from the first request to end: a timer never runs past it, and the spans
// never add up.
type Timer uint8

// The timers.
const (
	TimerReady    Timer = iota // ready_timeout from SpawnWorkers: every worker READY
	TimerConfirm               // ready_timeout from the flip: the new lanes answer
	TimerDrain                 // shutdown_timeout from the commit: T3
	TimerQuit                  // T5: until TERM follows QUIT
	TimerTerm                  // T5: until KILL follows TERM
	TimerStop                  // shutdown_timeout from the first stop request: the graceful stop
	TimerStopFast              // a short time from the first fast stop request
)

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	Done     Outcome = iota
	Failed           // Reason says why, and what runs now
	Refused          // Reason says why; nothing was done
	Joined           // one reload, Into, will do for both
	Reverted         // after the flip the wire went back; Reason says why
)

// Status is what the service manager is told.
type Status uint8

// The statuses.
const (
	NotifyReady     Status = iota // READY=1
	NotifyReloading               // RELOADING=1
	NotifyStopping                // STOPPING=1
)

var (
	signalNames = [...]string{"none", "QUIT", "TERM", "KILL"}
	timerNames  = [...]string{"ready", "confirm", "drain", "quit", "term", "stop", "stop-fast"}
	outcomes    = [...]string{"done", "failed", "refused", "joined", "reverted"}
	statusNames = [...]string{"ready", "reloading", "stopping"}
)

// String returns the signal without its SIG.
func (s Signal) String() string { return name(signalNames[:], s) }

// MarshalText returns String.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the timer as logs name it.
func (t Timer) String() string { return name(timerNames[:], t) }

// String returns the outcome as reports name it.
func (o Outcome) String() string { return name(outcomes[:], o) }

// MarshalText returns String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// String returns the status as logs name it.
func (s Status) String() string { return name(statusNames[:], s) }

func (Prepare) effect()       {}
func (CancelPrepare) effect() {}
func (SpawnWorkers) effect()  {}
func (RespawnWorker) effect() {}
func (Fence) effect()         {}
func (SignalWorkers) effect() {}
func (FoldAndFree) effect()   {}
func (Mark) effect()          {}
func (OpenWindow) effect()    {}
func (CloseWindow) effect()   {}
func (SetHanded) effect()     {}
func (Ask) effect()           {}
func (Park) effect()          {}
func (Unpark) effect()        {}
func (Flip) effect()          {}
func (SetOwner) effect()      {}
func (Commit) effect()        {}
func (AskDrain) effect()      {}
func (Resume) effect()        {}
func (Release) effect()       {}
func (StartTimer) effect()    {}
func (StopTimer) effect()     {}
func (Report) effect()        {}
func (Notify) effect()        {}
func (LogTransition) effect() {}
func (LogIllegal) effect()    {}
func (Exit) effect()          {}
