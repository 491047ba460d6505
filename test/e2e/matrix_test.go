package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// The crash matrix: one process is killed, or stopped for a while, at one moment
// of a reload. Three generations take part: epoch 1 drains from the start, epoch 2
// owns the wire, epoch 3 is to get it. Each of the first two has flows of its own.

// victim is the process that something happens to.
type victim string

const (
	theSupervisor victim = "supervisor"
	anOwner       victim = "owner"    // worker of the generation that the reload replaces, before the flip
	aDraining     victim = "draining" // worker of epoch 1 before the flip, of epoch 2 after it
	aNew          victim = "new"      // worker of epoch 3; after the flip it is the owner's
)

// fault is what happens to it.
type fault string

const (
	killed  fault = "SIGKILL"
	stopped fault = "SIGSTOP" // and SIGCONT after stopFor
)

// moment is when it happens.
type moment string

const (
	atSteady moment = "steady"
	atT0     moment = "T0"
	atT1     moment = "T1"
	atAsking moment = "T2 asking"
	atParked moment = "T2 parked"
	atFlip   moment = "T2 flipped"
	atT3     moment = "T3"
	atT4     moment = "T4"
	atT5     moment = "T5"
)

// moments are all moments in their order.
var moments = []moment{atSteady, atT0, atT1, atAsking, atParked, atFlip, atT3, atT4, atT5}

// places says where the supervisor waits meanwhile.
var places = map[moment]string{
	atT0:     "after preparing", // the configuration is being read
	atT1:     "after starting",  // the new workers have been executed
	atAsking: "before asking",   // every new worker is READY
	atParked: "before flipping", // every lane has acknowledged the park
	atFlip:   "before confirming",
	atT3:     "after steady",
	atT4:     "after handing",  // the headers say so
	atT5:     "before reaping", // nothing is left in the rings
}

const (
	stopFor         = 3 * time.Second
	matrixHeartbeat = 500 * time.Millisecond
	matrixReload    = "{udp_idle: 30s, heartbeat_timeout: 500ms, ready_timeout: 2s}"
)

// The outages that docs/reload.md promises, for who waits for an answer.
const (
	noOutage      = 10 * time.Millisecond // what a park may take
	afterKill     = 30 * time.Millisecond
	afterStop     = matrixHeartbeat + 200*time.Millisecond
	afterLongPark = directory.Lease + 10*time.Millisecond
)

// cell is one entry of the matrix, and what comes of it.
type cell struct {
	who    victim
	fault  fault
	when   moment
	limit  time.Duration   // nobody waits longer for an answer
	report control.Outcome // of the reload, as it is known at its commit; "": there is none
}

func (c cell) String() string { return fmt.Sprintf("%s/%s/%s", c.who, c.fault, c.when) }

// before reports whether the fault happens before that moment.
func (c cell) before(m moment) bool {
	return slices.Index(moments, c.when) < slices.Index(moments, m)
}

// victims and faults are all there are, in the order of the table.
var (
	victims = []victim{theSupervisor, anOwner, aDraining, aNew}
	faults  = []fault{killed, stopped}
)

// smoke names the cells of the short form.
var smoke = []string{"supervisor/SIGKILL/T2 parked", "owner/SIGKILL/T1", "draining/SIGKILL/T3", "new/SIGSTOP/T2 flipped"}

// matrix returns every cell there is.
func matrix() (all []cell) {
	for _, who := range victims {
		for _, f := range faults {
			for _, when := range moments {
				if c, ok := expect(who, f, when); ok {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// expect returns a cell, unless there is no such process then: a new worker does
// not exist before T1, and one of the owner is draining after the flip.
func expect(who victim, f fault, when moment) (c cell, exists bool) {
	c = cell{who: who, fault: f, when: when, limit: afterKill, report: control.OutcomeCommitted}
	if f == stopped {
		c.limit = afterStop
	}
	switch {
	case who == aNew && c.before(atT1), who == anOwner && !c.before(atFlip):
		return c, false
	case who == aNew && c.before(atParked):
		c.limit, c.report = noOutage, control.OutcomeAborted
	case who == theSupervisor && when == atParked:
		c.limit = afterLongPark
	case who == theSupervisor, who == aDraining && when == atT5: // it has nothing left
		c.limit = noOutage
	}
	if when == atSteady || who == theSupervisor && f == killed { // nobody reports
		c.report = ""
	}
	return c, true
}

// tries is how often a cell may run until its times are what they should be:
// other programs on the machine may take its processors away. What is lost,
// doubled or served by the wrong process is wrong in each of them.
const tries = 3

// TestCrashMatrix runs every cell with -soak, else a few of them. It logs the
// table of docs/reload.md.
func TestCrashMatrix(t *testing.T) {
	waits := make(map[string]time.Duration)
	for _, c := range matrix() {
		if !slices.Contains(smoke, c.String()) && !*soak {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			waits[c.String()] = inTime(t, c.limit, func() *crash {
				x := newCrash(t, c, matrixReload)
				x.run()
				return x
			})
		})
	}
	t.Logf("longest waits in ms\n%s", table(waits))
}

// table lays waits out by cells.
func table(waits map[string]time.Duration) string {
	var b strings.Builder
	b.WriteString("| process | |")
	for _, when := range moments {
		fmt.Fprintf(&b, " %s |", when)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("--:|", len(moments)))
	for _, who := range victims {
		for _, f := range faults {
			fmt.Fprintf(&b, "\n| %s | %s |", who, f)
			for _, when := range moments {
				wait, ran := waits[cell{who: who, fault: f, when: when}.String()]
				if ran {
					fmt.Fprintf(&b, " %.0f", float64(wait)/float64(time.Millisecond))
				}
				b.WriteString(" |")
			}
		}
	}
	return b.String()
}

// inTime runs a cell, again if somebody has waited for longer than limit, and
// returns the longest wait of the last run.
func inTime(t *testing.T, limit time.Duration, run func() *crash) (longest time.Duration) {
	t.Helper()
	for n := 1; !t.Failed(); n++ {
		x := run()
		for _, err := range x.wrong {
			t.Error(err)
		}
		t.Logf("the longest wait was %v, of at most %v; this machine stalled for %v", x.outage, limit, x.stalled)
		if longest = x.outage; longest <= limit+x.stalled {
			return longest
		}
		t.Logf("too long; the log of the server:\n%s", tail(x.log(), 60))
		if n == tries {
			t.Errorf("somebody waited for more than %v in each of %d tries", limit, tries)
		}
	}
	return longest
}

// crash is one run of a cell.
type crash struct {
	*server
	cell
	h       *holder
	first   uint32                 // epoch of the generation that drains
	flows   map[string]*tracked    // by name
	stall   *stallMeter            // from the fault on
	target  *os.Process            // of who; nil: nothing happens to a process
	spared  bool                   // no worker is killed, whoever is
	at      time.Time              // of the fault
	reports map[string]load.Report // by name of the flows
	away    func() int64           // datagrams that were served, and may not be answered; nil: there are none

	// Valid after finish.
	wrong   []error       // what was lost, doubled, or served by another process than it should be
	outage  time.Duration // the longest wait for an answer since the fault
	stalled time.Duration // for how long the machine kept a thread waiting that was due
}

// newCrash starts a server with two generations, flows of each, and others that
// nobody records.
func newCrash(t *testing.T, c cell, reload string) *crash {
	t.Helper()
	x := startCrash(t, c, settings{workers: 2, reload: reload, more: keptListener})
	x.track("old flows", keptAt, 16, 250)
	x.ctl("reload", "--wait", "commit")
	x.track("flows", keptAt, 16, 250)
	x.track("queries", dnsAt, 32, 500)
	return x
}

// startCrash starts a server that can be held, without a load.
func startCrash(t *testing.T, c cell, config settings) *crash {
	t.Helper()
	x := &crash{cell: c, spared: c.who == theSupervisor, flows: make(map[string]*tracked)}
	x.server = newServer(t, config.yaml(), zoneFiles())
	x.h = newHolder(x.server)
	x.serve()
	x.awaitReady()
	x.first = x.epoch()
	return x
}

// run has the fault happen and judges what came of it.
func (x *crash) run() {
	x.t.Helper()
	var r *reloading
	if x.when == atSteady {
		x.strike(x.choose(nil))
	} else {
		known := x.processes()
		caught := x.h.catch(places[x.when])
		r = x.startReload()
		if x.when == atT4 || x.when == atT5 {
			r.awaitCommit()
			x.drainNow(x.first + 1)
		}
		at := awaitHeld(x.t, caught, places[x.when])
		x.strike(x.choose(known))
		at.release()
	}
	if x.fault == stopped {
		<-time.After(time.Until(x.at.Add(stopFor))) // what the others do meanwhile is what is tested
		x.signalTarget(syscall.SIGCONT)
	}
	x.awaitReport(r)
	x.finish()
}

// drainNow begins to end a generation. What becomes of that the reload says.
func (x *crash) drainNow(epoch uint32) {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), filepath.Join(suite.bin, "dnsappctl"), "--control", x.path("control.sock"), "drain", fmt.Sprint(epoch), "--now")
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = cmd.Wait() })
}

// finish lets everything come to rest, ends the server, and judges.
func (x *crash) finish() {
	x.t.Helper()
	x.settle()
	x.stalled = x.stall.stop()
	x.stop()
	for _, f := range x.flows {
		f.Close() // its addresses may be wanted again
	}
	x.judge()
}

// choose returns the process that the fault is for. known are the processes
// before the reload, nil if there is none. The supervisor may be held, so it
// cannot be asked.
func (x *crash) choose(known []int) int {
	x.t.Helper()
	switch {
	case x.who == theSupervisor:
		return x.cmd.Process.Pid
	case x.who == aNew:
		for _, pid := range x.processes() {
			if !slices.Contains(known, pid) {
				return pid
			}
		}
		x.t.Fatal("there is no new process")
	case x.who == aDraining && x.before(atFlip):
		return x.flows["old flows"].servers()[0]
	}
	return x.flows["flows"].servers()[0]
}

// strike has the fault happen to a process.
func (x *crash) strike(pid int) {
	x.t.Helper()
	var err error
	if x.target, err = os.FindProcess(pid); err != nil {
		x.t.Fatal(err)
	}
	x.begin()
	if x.fault == killed {
		x.signalTarget(syscall.SIGKILL)
	} else {
		x.signalTarget(syscall.SIGSTOP)
	}
}

// begin has waits count from now on.
func (x *crash) begin() { x.stall, x.at = startStallMeter(), time.Now() }

// signalTarget signals the target and no later process with its pid.
func (x *crash) signalTarget(sig syscall.Signal) {
	x.t.Helper()
	if err := x.target.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		x.t.Fatal(err)
	}
}

// awaitReport waits until the reload has come as far as it should.
func (x *crash) awaitReport(r *reloading) {
	x.t.Helper()
	if r == nil || x.report == "" {
		return
	}
	committed := r.committed
	if x.report == control.OutcomeAborted || x.when == atT4 || x.when == atT5 {
		committed = nil
	}
	select {
	case <-time.After(startTimeout):
		x.t.Fatalf("the reload has come to nothing in %v", startTimeout)
	case <-committed:
	case <-r.done:
		want := x.report
		if want == control.OutcomeCommitted { // it has waited for the end
			want = control.OutcomeDone
		}
		if r.report.Outcome != want {
			x.t.Errorf("the reload ended as %q: %s; want %q", r.report.Outcome, r.report.Reason, want)
		}
	}
}

// settle waits until all is as it should be, and for some traffic after it.
func (x *crash) settle() {
	x.t.Helper()
	if x.who == theSupervisor && x.fault == killed {
		x.awaitExit(5 * time.Second)
	} else {
		x.await(10*time.Second, "every worker of the owner is ready", func() bool {
			st := x.status()
			return slices.ContainsFunc(st.Generations, func(g control.Generation) bool { return g.RxOwner && allReady(g) })
		})
	}
	for _, f := range x.flows {
		awaitAnswers(x.t, f.UDP, 50)
	}
	for _, pid := range x.processes() {
		if st, err := proc.ReadStat(pid); err == nil && st.State == 'T' {
			x.complain("process %d is stopped for good", pid)
		}
	}
}

// stop ends the load, sees that the next reload goes as ever, and ends the
// server.
func (x *crash) stop() {
	x.t.Helper()
	x.reports = make(map[string]load.Report)
	for name, f := range x.flows {
		x.reports[name] = f.Stop(time.Second)
		x.t.Logf("%s: %v", name, x.reports[name])
	}
	if x.who == theSupervisor && x.fault == killed {
		x.removeOrphans()
		return
	}
	x.balance()
	x.ctl("reload", "--wait", "commit")
	x.signal(syscall.SIGINT)
	x.awaitExit(10 * time.Second)
}

// removeOrphans ends workers that have no supervisor any more, and removes what
// it has left.
func (s *server) removeOrphans() {
	s.t.Helper()
	for _, pid := range s.processes() {
		kill(s.t, pid, syscall.SIGKILL)
	}
	for _, file := range append(s.doors(), s.path("control.sock"), s.path("dnsapp.pid")) {
		if err := os.Remove(file); err != nil {
			s.t.Error(err)
		}
	}
}

// Without the lapse of a park, which is kept from happening here, nobody reads on
// when the supervisor dies between park and flip: the matrix sees that.
func TestCrashMatrixNeedsTheLapse(t *testing.T) {
	const silence = time.Second
	x := newCrash(t, cell{who: theSupervisor, fault: killed, when: atParked}, matrixReload)
	x.h.at("lapse", func(at *held) { time.AfterFunc(silence, at.release) })
	x.run()
	t.Logf("the longest wait was %v", x.outage)
	if x.outage < silence {
		t.Errorf("the lanes were kept from reading for %v, and nobody waited for longer than %v", silence, x.outage)
	}
}

// The plain way to reload loses requests or moves flows, without any fault: the
// matrix sees that.
func TestCrashMatrixOfRestartFails(t *testing.T) {
	x := newCrash(t, cell{report: control.OutcomeCommitted}, "{udp_idle: 30s, mode: restart}")
	x.spared = true
	x.begin()
	x.awaitReport(x.startReload())
	x.finish()
	t.Logf("%d complaints, the first: %v", len(x.wrong), append(x.wrong, nil)[0])
	if len(x.wrong) == 0 {
		t.Error("a restart lost nothing and kept every flow: the matrix does not see what it is there to see")
	}
}
