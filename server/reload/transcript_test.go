package reload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/dnsapp/dnsapp/server/directory"
)

// The files in testdata are transcripts: each directive is an event, its output
// the effects. They are refreshed by -rewrite; read the difference as a change
// of the protocol. Directives that are no events:
//
//	new             a machine before boot
//	boot [slow]     a machine that serves epoch 1 with two workers; slow: drains
//	                end only when they are told to
//	go [to=PHASE]   answer everything well, oldest order first, until nothing is
//	                left to answer, or until the machine is in PHASE
//	skip [to=PHASE] the same, and show nothing
//	state           what the machine is in
//
// An answer is to the order that the phase waits for or, with of=EPOCH, to that
// of a generation, or has the number order=N.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var tr transcript
		datadriven.RunTest(t, path, tr.run)
	})
}

// transcript is a machine and a supervisor for which everything goes well.
type transcript struct {
	s       State
	answers []Event // good answers to the effects so far, oldest first
	epoch   uint32  // last epoch given out
	slow    bool    // nobody is drained by itself
	out     strings.Builder
}

func (tr *transcript) run(t *testing.T, d *datadriven.TestData) string {
	tr.out.Reset()
	switch d.Cmd {
	case "new":
		*tr = transcript{}
	case "boot":
		*tr = transcript{slow: d.HasArg("slow")}
		tr.feed(ReloadRequested{ID: 1})
		tr.goOn("")
		tr.out.Reset()
	case "go", "skip":
		var to string
		d.MaybeScanArgs(t, "to", &to)
		if !tr.goOn(to) {
			d.Fatalf(t, "the machine stays %v", tr.s.Phase)
		}
		if d.Cmd == "skip" {
			tr.out.Reset()
		}
	case "state":
		tr.state()
	default:
		e := tr.event(t, d)
		tr.overtake(e)
		tr.feed(e)
	}
	if tr.out.Len() == 0 {
		return "ok"
	}
	return tr.out.String()
}

// feed hands e to the machine, tells what it does and notes what a supervisor
// would answer.
func (tr *transcript) feed(e Event) {
	s, effects := Step(tr.s, e)
	tr.s = s
	for _, f := range effects {
		switch f := f.(type) {
		case LogTransition:
			fmt.Fprintf(&tr.out, "%s\n", transition(f))
		default:
			fmt.Fprintf(&tr.out, "  %s\n", show(f))
		}
		tr.answers = append(tr.answers, tr.answersTo(f)...)
	}
	if len(effects) == 0 {
		fmt.Fprintln(&tr.out, "nothing")
	}
}

// overtake forgets the READY of a worker of which something else is told.
func (tr *transcript) overtake(e Event) {
	var told WorkerReady
	switch e := e.(type) {
	case WorkerReady:
		told = e
	case WorkerExited:
		told = WorkerReady{Gen: e.Gen, Worker: e.Worker}
	}
	tr.answers = slices.DeleteFunc(tr.answers, func(a Event) bool { return a == Event(told) })
}

func transition(f LogTransition) string {
	subject := "machine"
	if _, ok := f.To.(Stage); ok {
		subject = fmt.Sprintf("epoch %d", f.Gen.Epoch)
	}
	line := fmt.Sprintf("%s: %v -> %v", subject, f.From, f.To)
	if f.Reason != "" {
		line += " (" + f.Reason + ")"
	}
	return line
}

// show prints an event or effect without its package.
func show(v any) string {
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", v, v), "reload.")
}

// answersTo returns the events of a world in which everything goes well.
func (tr *transcript) answersTo(f Effect) (events []Event) {
	switch f := f.(type) {
	case Prepare:
		return []Event{Prepared{Order: f.Order, Epoch: tr.epoch + 1, Workers: 2}}
	case SpawnWorkers:
		tr.epoch = f.Gen.Epoch
		for i := range 2 {
			events = append(events, WorkerReady{Gen: f.Gen, Worker: i})
		}
	case RespawnWorker:
		return []Event{WorkerReady{Gen: f.Gen, Worker: f.Worker}}
	case Fence:
		return []Event{Fenced{Order: f.Order, Workers: f.Workers}}
	case SignalWorkers:
		return []Event{ProcessesGone{Gen: f.Gen}}
	case Ask:
		return []Event{LanesAnswered{Order: f.Order}}
	case Park:
		return []Event{LanesParked{Order: f.Order, Word: directory.Parked(tr.s.Active.Epoch, 50)}}
	case Flip:
		return []Event{Flipped{Order: f.Order}}
	case AskDrain:
		if !tr.slow {
			return []Event{Drained{Order: f.Order}}
		}
	case Release:
		return []Event{RingsReleased{Order: f.Order}}
	}
	return events
}

// goOn feeds good answers, and reports whether it got to that phase.
func (tr *transcript) goOn(to string) bool {
	for len(tr.answers) > 0 && (to == "" || tr.s.Phase.String() != to) {
		e := tr.answers[0]
		tr.answers = tr.answers[1:]
		if !tr.current(e) {
			continue
		}
		fmt.Fprintf(&tr.out, "> %s\n", show(e))
		tr.feed(e)
	}
	return to == "" || tr.s.Phase.String() == to
}

// current reports whether e is still to be told: its order is awaited, its
// generation is there, and a worker that is READY is not being ended.
func (tr *transcript) current(e Event) bool {
	switch e := e.(type) {
	case answer:
		return tr.awaited(e.order())
	case ProcessesGone:
		return tr.s.Slots[e.Gen.Slot].Epoch == e.Gen.Epoch
	case WorkerReady:
		s := tr.s.Slots[e.Gen.Slot]
		return s.Epoch == e.Gen.Epoch && s.Stage != StageReaping
	}
	return true
}

func (tr *transcript) awaited(order uint32) bool {
	if order == tr.s.Await {
		return true
	}
	for _, s := range tr.s.Slots {
		if order == s.Await {
			return true
		}
	}
	return false
}

func (tr *transcript) state() {
	s := tr.s
	if s.Return != NoReturn {
		fmt.Fprintf(&tr.out, "%v: ", s.Return)
	}
	fmt.Fprintf(&tr.out, "%v, active %v, next %v, request %d, pending %d, stop %v, lapses %d\n",
		s.Phase, s.Active, s.Next, s.Request, s.Pending.ID, s.Stop, s.Lapses)
	for i, slot := range s.Slots {
		if slot.Stage != StageFree {
			fmt.Fprintf(&tr.out, "slot %d: epoch %d %v, up %v of %v, request %d\n", i, slot.Epoch, slot.Stage, slot.Up, slot.Workers, slot.Request)
		}
	}
}

// event reads the event that a directive stands for.
func (tr *transcript) event(t *testing.T, d *datadriven.TestData) Event {
	a := arguments{t: t, d: d}
	switch d.Cmd {
	case "adopted":
		return adoptedEvent(t, d)
	case "reload":
		e := ReloadRequested{ID: a.number("id")}
		if a.text("mode") == "restart" {
			e.Mode = Restart
		}
		if a.text("overlap") == "refuse" {
			e.Overlap = RefuseOverlap
		}
		return e
	case "abort":
		return AbortRequested{ID: a.number("id")}
	case "drain-now":
		return DrainNowRequested{ID: a.number("id"), Epoch: uint32(a.number("epoch"))}
	case "stop":
		return StopRequested{Kind: a.stopKind()}
	case "ready":
		return WorkerReady{Gen: tr.gen(a.number("epoch")), Worker: int(a.number("worker"))}
	case "exited":
		return WorkerExited{Gen: tr.gen(a.number("epoch")), Worker: int(a.number("worker")), Reason: a.text("reason")}
	case "lost":
		return WorkersLost{Gen: tr.gen(a.number("epoch")), Reason: a.text("reason")}
	case "gone":
		return ProcessesGone{Gen: tr.gen(a.number("epoch"))}
	case "timer":
		return TimerFired{Timer: a.timer(), Gen: tr.gen(a.number("epoch"))}
	}
	order := tr.order(a)
	switch d.Cmd {
	case "prepared":
		return Prepared{Order: order, Epoch: uint32(a.number("epoch")), Workers: int(a.number("workers"))}
	case "prepare-failed":
		return PrepareFailed{Order: order, Reason: a.text("reason")}
	case "answered":
		return LanesAnswered{Order: order}
	case "unanswered":
		g := tr.gen(a.number("epoch"))
		return Unanswered{Order: order, Silent: workers(g, OneWorker(int(a.number("worker"))))}
	case "fenced":
		g := tr.gen(a.number("epoch"))
		return Fenced{Order: order, Workers: workers(g, OneWorker(int(a.number("worker"))))}
	case "parked":
		return LanesParked{Order: order, Word: directory.Parked(tr.s.Active.Epoch, 50)}
	case "lapsed":
		return ParkLapsed{Order: order}
	case "flipped":
		return Flipped{Order: order}
	case "flip-lost":
		return FlipLost{Order: order}
	case "drained":
		return Drained{Order: order}
	case "released":
		return RingsReleased{Order: order}
	}
	d.Fatalf(t, "unknown directive %q", d.Cmd)
	return nil
}

// gen returns the generation with this epoch; one that is gone is in slot 3.
func (tr *transcript) gen(epoch uint64) Generation {
	for i, s := range tr.s.Slots {
		if epoch != 0 && s.Epoch == uint32(epoch) {
			return Generation{Slot: uint8(i), Epoch: s.Epoch}
		}
	}
	if epoch == 0 {
		return Generation{}
	}
	return Generation{Slot: 3, Epoch: uint32(epoch)}
}

func (tr *transcript) order(a arguments) uint32 {
	if n := a.number("order"); n != 0 {
		return uint32(n)
	}
	if of := a.number("of"); of != 0 {
		return tr.s.Slots[tr.gen(of).Slot].Await
	}
	return tr.s.Await
}

// arguments reads the arguments of a directive; absent ones are zero.
type arguments struct {
	t *testing.T
	d *datadriven.TestData
}

func (a arguments) text(key string) string {
	if arg, ok := a.d.Arg(key); ok {
		return strings.Join(arg.Vals, " ")
	}
	return ""
}

func (a arguments) number(key string) uint64 {
	s := a.text(key)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return n
}

func (a arguments) stopKind() StopKind {
	for k := StopGraceful; k <= StopNow; k++ {
		if k.String() == a.text("kind") {
			return k
		}
	}
	return NotStopping
}

func (a arguments) timer() Timer {
	for t := TimerReady; t <= TimerStopFast; t++ {
		if t.String() == a.text("name") {
			return t
		}
	}
	a.d.Fatalf(a.t, "unknown timer %q", a.text("name"))
	return 0
}

// adoptedEvent reads the generations of Adopted: found=SLOT/EPOCH/MARK/WINDOW/WORKERS/UP,
// where MARK is a state of the directory or left, WINDOW is w or -, and UP a bit set.
func adoptedEvent(t *testing.T, d *datadriven.TestData) Event {
	marks := map[string]directory.State{"left": directory.Left}
	for m := directory.Free; m < directory.Left; m++ {
		marks[m.String()] = m
	}
	var e Adopted
	d.ScanArgs(t, "owner", &e.Owner)
	for _, a := range d.CmdArgs {
		if a.Key != "found" {
			continue
		}
		for _, v := range a.Vals {
			var slot int
			var mark, window string
			var f Found
			if _, err := fmt.Sscan(strings.ReplaceAll(v, "/", " "), &slot, &f.Epoch, &mark, &window, &f.Workers, &f.Up); err != nil {
				d.Fatalf(t, "%q: %v", v, err)
			}
			f.Mark, f.Window = marks[mark], window == "w"
			e.Found[slot] = f
		}
	}
	return e
}
