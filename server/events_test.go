package server

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/reload"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// silent are the events and effects that the journal leaves to others, and why.
var silent = map[string]string{
	"Prepared":      "the phase starting follows",
	"PrepareFailed": "the report has the reason",
	"Prepare":       "the phase preparing says it",
	"CancelPrepare": "the phase says it",
	"FoldAndFree":   "the stage free says it",
	"Mark":          "a word in the directory, for lanes",
	"Flip":          "Flipped and FlipLost say how it went",
	"Commit":        "the phase steady says it",
	"Release":       "the stage releasing says it",
	"StartTimer":    "TimerFired says when it is over",
	"StopTimer":     "nothing has happened",
	"Exit":          "the phase exited says it",
}

// Every event and effect of the machine is described, or has a reason not to be.
func TestEverythingIsDescribed(t *testing.T) {
	s := new(Supervisor)
	described := map[string]bool{}
	for _, e := range []reload.Event{
		reload.ReloadRequested{}, reload.AbortRequested{}, reload.DrainNowRequested{}, reload.StopRequested{}, reload.Adopted{},
		reload.WorkerReady{}, reload.WorkerExited{}, reload.WorkersLost{}, reload.ProcessesGone{}, reload.Prepared{}, reload.PrepareFailed{},
		reload.LanesAnswered{}, reload.Unanswered{}, reload.Fenced{}, reload.LanesParked{}, reload.ParkLapsed{},
		reload.Flipped{}, reload.FlipLost{}, reload.Drained{}, reload.RingsReleased{}, reload.TimerFired{},
	} {
		h, ok := s.describeEvent(e)
		check(t, e, h, ok)
		described[reflect.TypeOf(e).Name()] = true
	}
	for _, f := range []reload.Effect{
		reload.Prepare{}, reload.CancelPrepare{}, reload.SpawnWorkers{}, reload.RespawnWorker{}, reload.Fence{},
		reload.SignalWorkers{}, reload.FoldAndFree{}, reload.Mark{}, reload.OpenWindow{}, reload.CloseWindow{},
		reload.SetHanded{}, reload.Ask{}, reload.Park{}, reload.Unpark{}, reload.Flip{}, reload.SetOwner{}, reload.Commit{},
		reload.AskDrain{}, reload.Resume{}, reload.Release{}, reload.StartTimer{}, reload.StopTimer{}, reload.Report{}, reload.Notify{},
		reload.LogTransition{From: reload.PhaseSteady, To: reload.PhasePreparing}, reload.LogIllegal{}, reload.Exit{},
	} {
		h, ok := s.describeEffect(f)
		check(t, f, h, ok)
		described[reflect.TypeOf(f).Name()] = true
	}
	for _, name := range machineTypes(t) {
		if !described[name] {
			t.Errorf("%s is not in this test", name)
		}
	}
}

func check(t *testing.T, v any, h happening, ok bool) {
	t.Helper()
	name := reflect.TypeOf(v).Name()
	switch {
	case ok && silent[name] != "":
		t.Errorf("%s is described, and listed as silent", name)
	case !ok && silent[name] == "":
		t.Errorf("%s is not described", name)
	case ok && (h.kind == "" || h.text == "" || strings.Contains(h.text, "\n")):
		t.Errorf("%s is described as %+v", name, h)
	}
}

// machineTypes returns the names of all events and effects: what has a method
// event or effect in package reload.
func machineTypes(t *testing.T) (names []string) {
	files, err := filepath.Glob("reload/e*t.go") // event.go, effect.go
	if err != nil || files == nil {
		t.Fatalf("no sources of the machine: %v", err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil || m.Name.Name != "event" && m.Name.Name != "effect" {
				continue
			}
			if recv, ok := m.Recv.List[0].Type.(*ast.Ident); ok {
				names = append(names, recv.Name)
			}
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d types found: %v", len(names), names)
	}
	return names
}

// The journal of a first generation, a reload with a lapse and a dead worker, a
// refused abort and a stop, as testdata has it.
func TestJournalOfAMachine(t *testing.T) {
	s := &Supervisor{requests: map[uint64]*request{}}
	s.follow(bootRequest)
	lapses := 1
	answer := func(f reload.Effect) reload.Event {
		switch f := f.(type) {
		case reload.Prepare:
			return reload.Prepared{Order: f.Order, Epoch: s.state.Active.Epoch + 1, Workers: 2}
		case reload.Ask:
			return reload.LanesAnswered{Order: f.Order}
		case reload.Park:
			if lapses--; lapses >= 0 {
				return reload.ParkLapsed(f)
			}
			return reload.LanesParked{Order: f.Order, Word: directory.Parked(s.state.Active.Epoch, 50)}
		case reload.Flip:
			return reload.Flipped{Order: f.Order}
		case reload.Release:
			return reload.RingsReleased{Order: f.Order}
		case reload.SignalWorkers:
			return reload.ProcessesGone{Gen: f.Gen}
		}
		return nil
	}
	var feed func(reload.Event)
	feed = func(e reload.Event) {
		next, effects := reload.Step(s.state, e)
		s.state = next
		s.observe(e, effects)
		for _, f := range effects {
			if e := answer(f); e != nil {
				feed(e)
			}
		}
	}
	first, second := reload.Generation{Epoch: 1}, reload.Generation{Slot: 1, Epoch: 2}
	ready := func(g reload.Generation) {
		for i := range 2 {
			feed(reload.WorkerReady{Gen: g, Worker: i})
		}
	}
	feed(reload.ReloadRequested{ID: bootRequest})
	ready(first)
	feed(reload.WorkerExited{Gen: first, Worker: 1, Reason: "worker 1 (pid 12): killed"})
	feed(reload.WorkerReady{Gen: first, Worker: 1})
	s.follow(1)
	feed(reload.ReloadRequested{ID: 1})
	ready(second)
	feed(reload.AbortRequested{ID: firstOrder + 1})
	feed(reload.DrainNowRequested{ID: firstOrder + 2, Epoch: 1})
	feed(reload.StopRequested{Kind: reload.StopFast})
	feed(reload.TimerFired{Timer: reload.TimerStopFast})

	var b strings.Builder
	for _, e := range s.journal.last(1000) {
		whose := ""
		if e.Epoch != 0 {
			whose = fmt.Sprintf(" epoch %d", e.Epoch)
		}
		if e.Worker != nil {
			whose += fmt.Sprintf(" worker %d", *e.Worker)
		}
		step := string(e.Step)
		if e.Entered {
			step += "!"
		}
		fmt.Fprintf(&b, "%3d %-7s reload %d %s%s: %s\n", e.Seq, step, e.Reload, e.Kind, whose, e.Text)
	}
	golden(t, "journal.txt", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), -rewrite accepts it:\n%s", file, d)
	}
}
