package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
	smoke  bool            // it is part of the short form
}

func (c cell) String() string { return fmt.Sprintf("%s/%s/%s", c.who, c.fault, c.when) }

// matrix lists every cell there is. A new worker does not exist before T1, and
// is the owner's after the flip.
func matrix() []cell {
	const done, aborted, none = control.OutcomeCommitted, control.OutcomeAborted, control.Outcome("")
	var all []cell
	for _, f := range []fault{killed, stopped} {
		failure, killOnly := afterStop, none // a dead supervisor reports nothing
		if f == killed {
			failure = afterKill
		} else {
			killOnly = done
		}
		row := func(who victim, when moment, limit time.Duration, report control.Outcome) {
			all = append(all, cell{who: who, fault: f, when: when, limit: limit, report: report})
		}
		for _, when := range []moment{atT0, atT1, atAsking, atParked, atFlip, atT3, atT4, atT5} {
			limit := noOutage
			if when == atParked {
				limit = afterLongPark
			}
			row(theSupervisor, when, limit, killOnly)
			limit = failure
			if when == atT5 { // it has nothing left
				limit = noOutage
			}
			row(aDraining, when, limit, done)
		}
		for _, when := range []moment{atT0, atT1, atAsking, atParked} {
			row(anOwner, when, failure, done)
		}
		row(aNew, atT1, noOutage, aborted)
		row(aNew, atAsking, noOutage, aborted)
		for _, when := range []moment{atParked, atFlip, atT3, atT4, atT5} {
			row(aNew, when, failure, done)
		}
		row(theSupervisor, atSteady, noOutage, none)
		row(anOwner, atSteady, failure, none)
		row(aDraining, atSteady, failure, none)
	}
	for i := range all {
		all[i].smoke = slices.Contains([]string{
			"supervisor/SIGKILL/T2 parked", "owner/SIGKILL/T1", "draining/SIGKILL/T3", "new/SIGSTOP/T2 flipped",
		}, all[i].String())
	}
	return all
}

// tries is how often a cell may run until its times are what they should be:
// other programs on the machine may take its processors away. What is lost,
// doubled or served by the wrong process is wrong in each of them.
const tries = 3

// TestCrashMatrix runs every cell with -soak, else a few of them.
func TestCrashMatrix(t *testing.T) {
	for _, c := range matrix() {
		if !c.smoke && !*soak {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			for n := 1; !t.Failed(); n++ {
				x := newCrash(t, c, matrixReload)
				outage, stall := x.run()
				t.Logf("the longest wait was %v, of at most %v; this machine stalled for %v", outage, c.limit, stall)
				if outage <= c.limit+stall {
					return
				}
				t.Logf("too long; the log of the server:\n%s", tail(x.log(), 60))
				if n == tries {
					t.Errorf("somebody waited for more than %v in each of %d tries", c.limit, tries)
				}
			}
		})
	}
}

// crash is one run of a cell.
type crash struct {
	*server
	cell
	h       *holder
	first   uint32                 // epoch of the generation that drains
	flows   map[string]*tracked    // by name
	stall   *stallMeter            // from the fault on
	target  *os.Process            // of who
	at      time.Time              // of the fault
	reports map[string]load.Report // by name of the flows; valid after stop
}

// newCrash starts a server with two generations, flows of each, and others that
// nobody records.
func newCrash(t *testing.T, c cell, reload string) *crash {
	t.Helper()
	x := &crash{cell: c, flows: make(map[string]*tracked)}
	x.server = newServer(t, settings{workers: 2, reload: reload, more: keptListener}.yaml(), zoneFiles())
	x.h = newHolder(x.server)
	x.serve()
	x.awaitReady()
	x.first = x.epoch()
	x.track("old flows", keptAt, 16, 250)
	x.ctl("reload", "--wait", "commit")
	x.track("flows", keptAt, 16, 250)
	x.track("queries", dnsAt, 32, 500)
	return x
}

// run has the fault happen and returns the longest wait for an answer since, and
// how long the machine kept a runnable thread waiting.
func (x *crash) run() (outage, stall time.Duration) {
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
			go x.tryCtl("drain", fmt.Sprint(x.first+1), "--now") // the reload says how it went
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
	x.settle()
	stall = x.stall.stop()
	x.stop()
	for _, f := range x.flows {
		f.Close() // its addresses may be wanted again
	}
	return x.judge(), stall
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

// before reports whether the fault happens before that moment.
func (x *crash) before(m moment) bool {
	order := []moment{atSteady, atT0, atT1, atAsking, atParked, atFlip, atT3, atT4, atT5}
	return slices.Index(order, x.when) < slices.Index(order, m)
}

// strike has the fault happen to a process.
func (x *crash) strike(pid int) {
	x.t.Helper()
	var err error
	if x.target, err = os.FindProcess(pid); err != nil {
		x.t.Fatal(err)
	}
	x.stall = startStallMeter()
	x.at = time.Now()
	if x.fault == killed {
		x.signalTarget(syscall.SIGKILL)
	} else {
		x.signalTarget(syscall.SIGSTOP)
	}
}

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
			x.t.Errorf("process %d is stopped for good", pid)
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
	for _, name := range []string{"control.sock", "dnsapp.pid"} {
		if err := os.Remove(s.path(name)); err != nil {
			s.t.Error(err)
		}
	}
}
