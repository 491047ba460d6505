package control

import (
	"context"
	"io"
	"math"
	"net/netip"
	"strconv"
	"time"
)

// DefaultPath is the control socket when neither the configuration nor the
// command line names one.
const DefaultPath = "/run/dnsapp/control.sock"

// APIVersion is raised when a field of this file changes its meaning.
const APIVersion = 1

// Backend is what the server asks: the supervisor. Its methods are called from
// one goroutine per request, at the same time.
//
// An error that matches *Error reaches the client as it is; any other one has
// the code CodeFailed and its text. The contexts end when the client has gone or
// its time is over. A Backend that returns the context's error for that reason
// lets the server answer; it must not let the work itself depend on it.
type Backend interface {
	// Version describes the running binary. It must not block.
	Version() Version

	// Status describes the supervisor and everything that it runs.
	Status(ctx context.Context) (*Status, error)

	// Zones describes the served zones in the order of the configuration.
	Zones(ctx context.Context) ([]ZoneStatus, error)

	// Zone describes one served zone. Its name may be in any case and without the
	// final dot.
	Zone(ctx context.Context, name string) (*ZoneDetail, error)

	// ReloadZones looks at the files of the zones with these names, or of all, has
	// those compiled that have changed, and returns when every worker answers from
	// what came of it or ctx ends. One that has begun goes on when ctx ends. emit
	// is as for Reload. A report may accompany an error.
	ReloadZones(ctx context.Context, names []string, emit func(Event)) (*ZoneReport, error)

	// Backends describes the backends in the order of the configuration.
	Backends(ctx context.Context) ([]BackendStatus, error)

	// OrderServer changes the state or the weight of a server, in every
	// generation, and returns what it is then.
	OrderServer(ctx context.Context, req ServerRequest) (*ServerStatus, error)

	// Diff says where the running state differs from the file.
	Diff(ctx context.Context) (*Diff, error)

	// Reload replaces the generation and returns when opts.Wait is reached or
	// ctx ends. A reload that has begun goes on when ctx ends. It calls emit for
	// every step as it is entered, and may call it for news within a step, from
	// one goroutine at a time and never after it has returned. emit does not
	// block.
	//
	// A report may accompany an error, and then says how far the reload came.
	Reload(ctx context.Context, opts ReloadOptions, emit func(Event)) (*ReloadReport, error)

	// Upgrade has another supervisor take the instance over, gives it back to the
	// one that stands by, or ends that one, and returns when req.Wait is reached or
	// ctx ends. What has begun goes on when ctx ends. emit is as for Reload; the
	// report is of the reload by the other supervisor.
	Upgrade(ctx context.Context, req UpgradeRequest, emit func(Event)) (*ReloadReport, error)

	// Traffic counts what has been served so far.
	Traffic(ctx context.Context) (*Traffic, error)

	// Plan says what a reload would do now. It reads, checks and compiles what a
	// reload would, and touches nothing.
	Plan(ctx context.Context) (*Plan, error)

	// ExplainFlow says who serves the flow of a client, and why.
	ExplainFlow(ctx context.Context, q FlowQuery) (*FlowAnswer, error)

	// Stop stops serving and returns when all workers are gone or ctx ends. A
	// stop that has begun goes on when ctx ends; a faster kind overtakes a
	// slower one at once. emit is as for Reload. The process exits afterwards,
	// once Server.Shutdown has let the last line out.
	Stop(ctx context.Context, kind StopKind, emit func(Event)) error

	// Abort gives up the reload in progress, which is possible before the new
	// generation has the wire only. It returns once that is certain; the reload
	// itself reports its end to whoever asked for it.
	Abort(ctx context.Context) (*Aborted, error)

	// Drain follows the drain of one generation and returns when it is gone or
	// ctx ends; with now it ends the drain first. emit is as for Reload.
	Drain(ctx context.Context, epoch uint32, now bool, emit func(Event)) error

	// Trace writes what workers receive and send, as req says, to out as a pcapng
	// file, and returns when it has taken all that is wanted, EndTrace was called, ctx
	// has ended or out fails. It writes something at once, unless it fails. A report
	// may accompany an error.
	Trace(ctx context.Context, req TraceRequest, out io.Writer) (*TraceReport, error)

	// EndTrace ends the trace that runs, whoever has begun it.
	EndTrace(ctx context.Context) error

	// Watch calls emit for everything that happens, beginning with the last
	// events of the past. It returns nil when the supervisor stops. emit is as
	// for Reload.
	Watch(ctx context.Context, last int, emit func(Event)) error
}

// Millis is a duration that JSON carries as a number of milliseconds with up
// to three decimals.
type Millis time.Duration

// Duration returns m as a time.Duration.
func (m Millis) Duration() time.Duration { return time.Duration(m) }

// MarshalJSON implements json.Marshaler.
func (m Millis) MarshalJSON() ([]byte, error) {
	us := time.Duration(m).Round(time.Microsecond).Microseconds()
	return strconv.AppendFloat(nil, float64(us)/1000, 'f', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Millis) UnmarshalJSON(b []byte) error {
	ms, err := strconv.ParseFloat(string(b), 64)
	// Bounds first: the conversion of a float that does not fit is undefined.
	if err != nil || math.IsNaN(ms) || math.Abs(ms) > float64(math.MaxInt64/int64(time.Millisecond)) {
		return &strconv.NumError{Func: "Millis", Num: string(b), Err: strconv.ErrSyntax}
	}
	*m = Millis(math.Round(ms * float64(time.Millisecond)))
	return nil
}

// Version describes one of the two programs.
type Version struct {
	Version  string `json:"version"`  // release, or "devel"
	Revision string `json:"revision"` // commit it was built from; "" if not known
	Go       string `json:"go"`       // Go release it was built with
	API      int    `json:"api"`      // APIVersion
}

// Step is where the reload machine is: StepSteady outside a reload.
type Step string

// The steps of a reload, in their order.
const (
	StepSteady   Step = "steady"
	StepPrepare  Step = "T0" // parse, validate, open, compile
	StepWindow   Step = "T1" // start the new workers, publish the old flows
	StepHandover Step = "T2" // park, flip; its end is the commit
	StepDrain    Step = "T3" // the old generation finishes its flows
	StepRelease  Step = "T4" // what is left is handed, rings emptied
	StepReap     Step = "T5" // the old processes end
)

// Steps are all steps in their order, StepSteady first.
var Steps = [...]Step{StepSteady, StepPrepare, StepWindow, StepHandover, StepDrain, StepRelease, StepReap}

// Word returns the step in a word, as people read it.
func (s Step) Word() string {
	switch s {
	case StepPrepare:
		return "prepare"
	case StepWindow:
		return "window"
	case StepHandover:
		return "hand-over"
	case StepDrain:
		return "drain"
	case StepRelease:
		return "release"
	case StepReap:
		return "reap"
	case StepSteady:
	}
	return string(s)
}

// Committed reports whether the new generation owns the wire in this step of a
// reload.
func (s Step) Committed() bool { return s == StepDrain || s == StepRelease || s == StepReap }

// Status describes a supervisor.
type Status struct {
	Name      string    `json:"name"` // of the configuration
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Uptime    Millis    `json:"uptime_ms"`

	ConfigFile     string    `json:"config_file"`
	ConfigLoadedAt time.Time `json:"config_loaded_at"`
	Admin          string    `json:"admin"` // address of /metrics and /healthz; "" if none

	StateFile *StateFile `json:"state_file"` // null: none is written

	Step        Step         `json:"step"`
	Reload      uint64       `json:"reload"`      // under way; 0: none
	Elapsed     Millis       `json:"elapsed_ms"`  // since it was asked for
	Generations []Generation `json:"generations"` // newest first
	Listeners   []Listener   `json:"listeners"`   // of the newest generation, in the order of the configuration
	Zones       int          `json:"zones"`

	Standby    *Standby      `json:"standby"`     // the supervisor before this one; null: it has ended
	LastReload *ReloadReport `json:"last_reload"` // null before the first
	Ledger     Ledger        `json:"ledger"`      // since the first start, over all generations
}

// StateFile is the file that carries orders and counters over a stop.
type StateFile struct {
	Path    string    `json:"path"`
	SavedAt time.Time `json:"saved_at"` // zero: not yet
	Error   string    `json:"error"`    // why it could not be written last; "": it could
}

// Generation is one set of workers.
type Generation struct {
	Epoch     uint32    `json:"epoch"`
	Slot      int       `json:"slot"`
	State     string    `json:"state"`    // starting, active, draining or leaving
	RxOwner   bool      `json:"rx_owner"` // it reads the wire
	Lanes     int       `json:"lanes"`    // per worker
	StartedAt time.Time `json:"started_at"`
	Workers   []Worker  `json:"workers"` // by index
	Load      *Load     `json:"load"`    // what it serves; null where counting would hold up a reload
	Drain     *Drain    `json:"drain"`   // null unless the state is draining or leaving
}

// Worker is one process of a generation.
type Worker struct {
	Index    int    `json:"index"`
	PID      int    `json:"pid"`
	Ready    bool   `json:"ready"`
	Gone     bool   `json:"gone"` // dead, and not respawned yet
	Uptime   Millis `json:"uptime_ms"`
	Respawns int    `json:"respawns"` // how often this index was started again
	Drain    *Drain `json:"drain"`    // its share; null unless it lives and its generation drains or leaves
}

// Drain is what a generation still has to finish before it can go.
type Drain struct {
	Flows        int    `json:"flows"`            // UDP flows alive in its table
	Idle         Millis `json:"idle_ms"`          // age of the newest of them
	TCP          int    `json:"tcp"`              // open connections
	HalfOpen     int    `json:"half_open"`        // connections in their handshake
	Queries      int    `json:"queries"`          // in flight
	QUIC         int    `json:"quic"`             // open connections
	Unsent       uint64 `json:"unsent_bytes"`     // bytes accepted for sending and not sent
	DeadlineLeft Millis `json:"deadline_left_ms"` // until what is left is handed over; 0 once that began
	Reason       string `json:"reason"`           // all of it in words, by Describe
}

// Listener is a set of addresses served alike.
type Listener struct {
	Name      string           `json:"name"`
	Addresses []netip.AddrPort `json:"addresses"`
	Transport []string         `json:"transport"` // udp, tcp
	Service   string           `json:"service"`
	Affinity  string           `json:"affinity"` // flow or none
}

// ZoneStatus is one authoritative zone.
type ZoneStatus struct {
	Name     string    `json:"name"`
	File     string    `json:"file"`
	Serial   uint32    `json:"serial"`
	Records  int       `json:"records"`
	Bytes    int64     `json:"bytes"` // size of the compiled zone region
	LoadedAt time.Time `json:"loaded_at"`
	Error    string    `json:"error"` // why the newest version of the file is not the one that is served; "" if it is
}

// Wait says what a reload waits for before it answers.
type Wait string

// The values of Wait.
const (
	WaitDone   Wait = "done"   // the old generation is gone (end of T5)
	WaitCommit Wait = "commit" // the new generation owns the wire (end of T2)
)

// ReloadOptions says how to reload.
type ReloadOptions struct {
	Wait Wait
}

// ReloadRequest is the body of POST /v1/reload. An empty object means all
// defaults.
type ReloadRequest struct {
	Wait    Wait   `json:"wait,omitempty"`       // default WaitDone
	Timeout Millis `json:"timeout_ms,omitempty"` // answer CodeDraining after this long; 0: never
}

// StopKind says how to stop.
type StopKind string

// The kinds of stop, slowest first.
const (
	StopGraceful StopKind = "graceful" // drain for up to reload.shutdown_timeout
	StopFast     StopKind = "fast"     // a short drain
	StopNow      StopKind = "now"      // no drain
)

// StopRequest is the body of POST /v1/stop. An empty object means all
// defaults.
type StopRequest struct {
	Kind    StopKind `json:"kind,omitempty"`       // default StopGraceful
	Timeout Millis   `json:"timeout_ms,omitempty"` // answer CodeDraining after this long; 0: never
}

// Event is news of a reload, of a drain or a stop, or of anything else that
// happens in the supervisor.
type Event struct {
	Time    time.Time `json:"time"`
	Elapsed Millis    `json:"elapsed_ms"` // since the request was taken up; 0 if it belongs to none
	Step    Step      `json:"step"`
	Entered bool      `json:"entered"` // the step begins here; else it is news within the step
	Epoch   uint32    `json:"epoch"`   // the generation it is about; 0: none
	Text    string    `json:"text"`    // one line for people

	// Of GET /v1/events only.

	Seq    uint64 `json:"seq,omitempty"`    // counts the events of this supervisor from 1; a hole: the reader was too slow
	Kind   Kind   `json:"kind,omitempty"`   // what it is about
	Reload uint64 `json:"reload,omitempty"` // the reload it belongs to; absent: none
	Worker *int   `json:"worker,omitempty"` // index of the worker it is about; absent: none
}

// Kind says what an Event of GET /v1/events is about.
type Kind string

// The kinds.
const (
	KindRequest    Kind = "request"    // somebody asked for something
	KindReport     Kind = "report"     // a request has ended
	KindMachine    Kind = "machine"    // the reload machine moves
	KindGeneration Kind = "generation" // a generation moves
	KindWorker     Kind = "worker"     // a worker process starts, is ready, ends
	KindLanes      Kind = "lanes"      // the receive loops are asked, stopped, answer or do not
	KindDrain      Kind = "drain"      // what a generation still has to finish
	KindManager    Kind = "manager"    // the service manager is told
	KindZones      Kind = "zones"      // zones are looked at, compiled, replaced
	KindBug        Kind = "bug"        // please report it
)

// MaxLast is how many past events a supervisor keeps, and gives.
const MaxLast = 256

// Aborted is the answer to POST /v1/abort.
type Aborted struct {
	Epoch uint32 `json:"epoch"` // the generation that serves on
}

// DrainRequest is the body of POST /v1/drain.
type DrainRequest struct {
	Epoch   uint32 `json:"epoch"`
	Now     bool   `json:"now,omitempty"`        // end the drain: hand over what is left
	Timeout Millis `json:"timeout_ms,omitempty"` // answer CodeDraining after this long; 0: never
}

// Line is one line of a stream.
type Line struct {
	Event  *Event        `json:"event,omitempty"`
	Report *ReloadReport `json:"report,omitempty"` // in the last line of a reload
	Zones  *ZoneReport   `json:"zones,omitempty"`  // in the last line of a zone reload
	Error  *Error        `json:"error,omitempty"`  // in the last line, if it went wrong
	Done   bool          `json:"done,omitempty"`   // the last line
}

// Outcome is how a reload ended.
type Outcome string

// The outcomes of a reload.
const (
	OutcomeDone      Outcome = "done"      // the new generation serves, the old one is gone
	OutcomeCommitted Outcome = "committed" // the new generation serves, the old one drains
	OutcomeRefused   Outcome = "refused"   // it could not begin; nothing was touched
	OutcomeAborted   Outcome = "aborted"   // given up before the commit; the old generation serves on
	OutcomeReverted  Outcome = "reverted"  // the wire went back to the old generation after the flip
	OutcomeFailed    Outcome = "failed"    // anything else
)

// Outcomes are all outcomes.
var Outcomes = [...]Outcome{
	OutcomeDone, OutcomeCommitted, OutcomeRefused, OutcomeAborted, OutcomeReverted, OutcomeFailed,
}

// ReloadReport says how a reload went.
type ReloadReport struct {
	ID        uint64    `json:"id"` // counts the reloads of this supervisor from 1
	OK        bool      `json:"ok"`
	Outcome   Outcome   `json:"outcome"`
	Reason    string    `json:"reason"` // why it ended as it did
	StartedAt time.Time `json:"started_at"`
	Elapsed   Millis    `json:"elapsed_ms"`
	FromEpoch uint32    `json:"from_epoch"` // the old generation
	ToEpoch   uint32    `json:"to_epoch"`   // the new generation; 0 if it never got an epoch

	Steps  []StepTime `json:"steps"`     // those entered, in their order
	Commit Millis     `json:"commit_ms"` // from the request until the new generation owned the wire for good; 0: it never did
	Gap    Millis     `json:"gap_ms"`    // last lane of the old generation parked to first read of the new one

	DrainStart Load `json:"drain_start"` // what the old generation had at the commit
	DrainEnd   Load `json:"drain_end"`   // what was left when T4 began
	Handed     int  `json:"handed"`      // flows the deadline moved to the new generation

	Window   Ledger    `json:"window"` // packets while both generations lived
	Problems []Problem `json:"problems"`
}

// StepTime is how long a step took.
type StepTime struct {
	Step    Step   `json:"step"`
	Elapsed Millis `json:"elapsed_ms"`
}

// Load is how much a generation has to finish.
type Load struct {
	Flows   int `json:"flows"`
	TCP     int `json:"tcp"`
	Queries int `json:"queries"`
}

// Problem is one thing wrong with a configuration or a zone file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // from 1; 0: the file as a whole
	Key     string `json:"key"`  // configuration key, or owner name in a zone
	Message string `json:"message"`
	Want    string `json:"want"` // what would be right
}
