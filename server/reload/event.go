package reload

import "github.com/dnsapp/dnsapp/server/directory"

// Event is something that has happened. The types of this file are all there
// are; each is comparable.
type Event interface{ event() }

// Requests. Their IDs are chosen by the supervisor, unique and not 0, and each
// request with an ID gets exactly one Report.
type (
	// ReloadRequested asks for a new generation; in PhaseDown for the first.
	ReloadRequested struct {
		ID      uint64  `json:"id"`
		Mode    Mode    `json:"mode"` // Graceful for the first generation
		Overlap Overlap `json:"overlap"`
	}

	// AbortRequested asks to give up the hand-over in progress, which is
	// possible before the flip only, or the reload that waits for a slot.
	AbortRequested struct{ ID uint64 }

	// DrainNowRequested asks to end the drain of a generation at once. What is
	// left of its flows is handed to the rx owner.
	DrainNowRequested struct {
		ID    uint64
		Epoch uint32
	}

	// StopRequested asks to stop the server. It is honoured in every state; one
	// that is not faster than the stop in progress changes nothing. It has no
	// Report: Exit is the answer.
	StopRequested struct{ Kind StopKind }
)

// Adopted: the workers of a supervisor that is gone belong to this one. It comes
// before every other event, or not at all.
type Adopted struct {
	Owner uint32 // epoch in the owner word, whose generation is there
	Found [MaxSlots]Found
}

// What happens to worker processes.
type (
	// WorkerReady: the worker wrote its READY word, after SpawnWorkers or
	// RespawnWorker.
	WorkerReady struct {
		Gen    Generation
		Worker int
	}

	// WorkerExited: the process of this worker has ended, for whatever cause,
	// and the supervisor has written `gone`. It is fed for every process.
	WorkerExited struct {
		Gen    Generation
		Worker int
		Reason string // for logs and reports
	}

	// WorkersLost: the workers of the generation die again and again, each as
	// soon as it is started. It is fed for the rx owner, with every further death.
	WorkersLost struct {
		Gen    Generation
		Reason string
	}

	// ProcessesGone: after SignalWorkers, no process of the generation is left,
	// nor will one be started.
	ProcessesGone struct{ Gen Generation }
)

// Answers to orders.
type (
	// Prepared answers Prepare: all that the generation needs is at hand, its
	// slot in the directory is open, in state directory.Starting.
	Prepared struct {
		Order   uint32
		Epoch   uint32 // greater than every one before
		Workers int    // 1 .. MaxWorkers
	}

	// PrepareFailed answers Prepare: nothing was touched.
	PrepareFailed struct {
		Order  uint32
		Reason string // for the report: what is wrong, and where
	}

	// LanesAnswered answers Ask: every lane of the asked workers has passed a
	// boundary since, or its process has died.
	LanesAnswered struct{ Order uint32 }

	// Unanswered answers Ask and Release: these workers live and are stalled,
	// which takes at least heartbeat_timeout to tell. The others have answered.
	Unanswered struct {
		Order  uint32
		Silent Workers // not empty
	}

	// Fenced answers Fence: no process of these workers is left.
	Fenced struct {
		Order   uint32
		Workers Workers // as ordered
	}

	// LanesParked answers Park: the ack of every lane of every live process
	// that may read equals Word, the park that this order wrote.
	LanesParked struct {
		Order uint32
		Word  directory.Word
	}

	// ParkLapsed answers Park: its deadline passed, or a lane has already taken
	// the wire back.
	ParkLapsed struct{ Order uint32 }

	// Flipped answers Flip: the wire belongs to the new generation.
	Flipped struct{ Order uint32 }

	// FlipLost answers Flip: a lapse was first; the owner before reads.
	FlipLost struct{ Order uint32 }

	// Drained answers AskDrain: every live worker reports that it serves
	// nothing any more.
	Drained struct{ Order uint32 }

	// RingsReleased answers Release: every ring that the generation consumed
	// from or produced into is empty, or was taken back from a dead process.
	RingsReleased struct{ Order uint32 }

	// TimerFired: the timer ran to its end.
	TimerFired struct {
		Timer Timer
		Gen   Generation // as started
	}
)

func (ReloadRequested) event()   {}
func (AbortRequested) event()    {}
func (DrainNowRequested) event() {}
func (StopRequested) event()     {}
func (Adopted) event()           {}
func (WorkerReady) event()       {}
func (WorkerExited) event()      {}
func (WorkersLost) event()       {}
func (ProcessesGone) event()     {}
func (Prepared) event()          {}
func (PrepareFailed) event()     {}
func (LanesAnswered) event()     {}
func (Unanswered) event()        {}
func (Fenced) event()            {}
func (LanesParked) event()       {}
func (ParkLapsed) event()        {}
func (Flipped) event()           {}
func (FlipLost) event()          {}
func (Drained) event()           {}
func (RingsReleased) event()     {}
func (TimerFired) event()        {}

// answer is an Event that answers an order.
type answer interface {
	Event
	order() uint32
}

func (e Prepared) order() uint32      { return e.Order }
func (e PrepareFailed) order() uint32 { return e.Order }
func (e LanesAnswered) order() uint32 { return e.Order }
func (e Unanswered) order() uint32    { return e.Order }
func (e Fenced) order() uint32        { return e.Order }
func (e LanesParked) order() uint32   { return e.Order }
func (e ParkLapsed) order() uint32    { return e.Order }
func (e Flipped) order() uint32       { return e.Order }
func (e FlipLost) order() uint32      { return e.Order }
func (e Drained) order() uint32       { return e.Order }
func (e RingsReleased) order() uint32 { return e.Order }
