package e2e

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/dnsapp/dnsapp/test/proc"
)

const (
	// startTimeout is how long a server may take until it serves; it takes some
	// ten milliseconds unless the machine is overloaded.
	startTimeout = 30 * time.Second

	// commandTimeout bounds a dnsappctl command that waits for something.
	commandTimeout = 90 * time.Second
)

// server is one running dnsapp and its folder.
type server struct {
	t      *testing.T
	dir    string   // has the configuration, the zones, the control socket
	exe    string   // the program's own file: processes are told apart by it
	others []string // further files of programs that it runs
	config string   // path of the configuration
	env    []string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the supervisor has ended
}

// requireSuite skips the test where the suite cannot run.
func requireSuite(t *testing.T) {
	t.Helper()
	if suite.skipped != nil {
		t.Skip(suite.skipped)
	}
}

// newServer prepares a folder with the configuration and the program, and sees
// to it that nothing is left when the test ends.
func newServer(t *testing.T, config string, files map[string]string) *server {
	t.Helper()
	requireSuite(t)
	s := &server{t: t, dir: t.TempDir()}
	s.exe, s.config = filepath.Join(s.dir, "dnsapp"), filepath.Join(s.dir, "dnsapp.yaml")
	s.install(filepath.Join(suite.bin, "dnsapp"))
	for _, sub := range []string{"tmp", "run"} {
		if err := os.Mkdir(s.path(sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	s.write("dnsapp.yaml", config)
	for name, content := range files {
		s.write(name, content)
	}
	t.Cleanup(s.cleanUp)
	return s
}

// install puts a program where the server is started from.
func (s *server) install(program string) {
	s.t.Helper()
	copyProgram(s.t, program, s.exe)
}

// start runs a server and waits until it serves.
func start(t *testing.T, config string, files map[string]string) *server {
	t.Helper()
	s := newServer(t, config, files)
	s.serve()
	s.awaitReady()
	return s
}

// write puts a file into the folder.
func (s *server) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// in returns s for use in a subtest: its failures are the subtest's.
func (s *server) in(t *testing.T) *server {
	c := *s
	c.t = t
	return &c
}

// serve starts the supervisor without waiting for anything.
func (s *server) serve(args ...string) {
	s.t.Helper()
	s.start(func(*exec.Cmd) {}, args...)
}

// start is serve with a command that with has changed.
func (s *server) start(with func(*exec.Cmd), args ...string) {
	s.t.Helper()
	s.cmd = exec.Command(s.exe, append([]string{"serve", "-c", s.config}, args...)...)
	s.cmd.Dir = s.dir
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.path("tmp"), "XDG_RUNTIME_DIR=" + s.path("run")}, s.env...)
	// A file, not a pipe: workers that outlive the supervisor may hold it.
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	with(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(exited)
	}(s.cmd)
}

// awaitReady waits until the server's workers read the wire.
func (s *server) awaitReady() {
	s.t.Helper()
	s.await(startTimeout, "the server is ready", func() bool {
		select {
		case <-s.exited:
			s.t.Fatalf("the server has ended with code %d", s.cmd.ProcessState.ExitCode())
		default:
		}
		out, _, code := s.tryCtl("status", "-o", "json")
		var st control.Status
		if code != 0 || json.Unmarshal(out, &st) != nil {
			return false
		}
		return st.Step == control.StepSteady && len(st.Generations) == 1 && st.Generations[0].RxOwner && allReady(st.Generations[0])
	})
}

func allReady(g control.Generation) bool {
	return len(g.Workers) > 0 && !slices.ContainsFunc(g.Workers, func(w control.Worker) bool { return !w.Ready || w.Gone })
}

// await polls until ok holds, and fails the test after the timeout.
func (s *server) await(timeout time.Duration, what string, ok func() bool) {
	s.t.Helper()
	if !awaiting(timeout, ok) {
		s.t.Fatalf("not so after %v: %s", timeout, what)
	}
}

// awaiting polls until ok holds and reports whether it did in time.
func awaiting(timeout time.Duration, ok func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}

// tryCtl runs a dnsappctl command and returns what it printed and its code.
func (s *server) tryCtl(args ...string) (stdout, stderr []byte, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(suite.bin, "dnsappctl"), append([]string{"--control", s.path("control.sock")}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		s.t.Fatalf("dnsappctl %v: %v", args, err)
	}
	return out.Bytes(), errs.Bytes(), cmd.ProcessState.ExitCode()
}

// ctl is tryCtl for a command that must succeed.
func (s *server) ctl(args ...string) []byte {
	s.t.Helper()
	out, errs, code := s.tryCtl(args...)
	if code != 0 {
		s.t.Fatalf("dnsappctl %v: code %d\n%s%s", args, code, out, errs)
	}
	return out
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

// status returns what `dnsappctl status` knows.
func (s *server) status() control.Status {
	s.t.Helper()
	var st control.Status
	if err := json.Unmarshal(s.ctl("status", "-o", "json"), &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// tryStatus is status for a server that may not answer.
func (s *server) tryStatus() (st control.Status, ok bool) {
	s.t.Helper()
	out, _, code := s.tryCtl("status", "-o", "json")
	return st, code == 0 && json.Unmarshal(out, &st) == nil
}

// doors returns the doors in the control directory.
func (s *server) doors() []string {
	s.t.Helper()
	list, err := filepath.Glob(s.path("*.door"))
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// epoch returns the epoch of the generation that reads the wire.
func (s *server) epoch() uint32 {
	s.t.Helper()
	for _, g := range s.status().Generations {
		if g.RxOwner {
			return g.Epoch
		}
	}
	s.t.Fatal("no generation reads the wire")
	return 0
}

// workers returns the process ids of the generation that reads the wire.
func (s *server) workers() []int {
	s.t.Helper()
	var pids []int
	for _, g := range s.status().Generations {
		for _, w := range g.Workers {
			if g.RxOwner {
				pids = append(pids, w.PID)
			}
		}
	}
	return pids
}

// processes returns all processes of this server.
func (s *server) processes() []int {
	s.t.Helper()
	var pids []int
	for _, exe := range append([]string{s.exe}, s.others...) {
		list, err := proc.Of(exe)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, p := range list {
			pids = append(pids, p.PID)
		}
	}
	slices.Sort(pids)
	return pids
}

// reload reloads, waits until the old generation is gone, and returns the
// report. It must succeed.
func (s *server) reload(args ...string) control.ReloadReport {
	s.t.Helper()
	r := s.startReload(args...)
	return r.wait()
}

// reloading is a reload that runs.
type reloading struct {
	s         *server
	committed chan struct{} // closed at the commit
	done      chan struct{} // closed at its end
	report    control.ReloadReport
	ended     time.Time
	err       error
}

// startReload runs `dnsappctl reload` and follows its events.
func (s *server) startReload(args ...string) *reloading {
	s.t.Helper()
	r := &reloading{s: s, committed: make(chan struct{}), done: make(chan struct{})}
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(suite.bin, "dnsappctl"),
		append([]string{"--control", s.path("control.sock"), "reload", "-o", "json"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		lines := json.NewDecoder(out)
		seen := false
		for {
			var l control.Line
			if err := lines.Decode(&l); err != nil {
				break // its end; what is wrong shows in the exit code and the report
			}
			if l.Event != nil && l.Event.Entered && l.Event.Step.Committed() && !seen {
				seen = true
				close(r.committed)
			}
			if l.Report != nil {
				r.report = *l.Report
			}
		}
		r.ended = time.Now()
		if err := cmd.Wait(); err != nil {
			r.err = fmt.Errorf("reload: %w\n%s", err, errs.Bytes())
		}
	}()
	return r
}

// awaitCommit waits until the new generation owns the wire.
func (r *reloading) awaitCommit() {
	r.s.t.Helper()
	select {
	case <-r.committed:
	case <-r.done:
		r.wait()
		r.s.t.Fatal("a reload has ended without a word of its commit")
	case <-time.After(startTimeout):
		r.s.t.Fatalf("a reload has not committed after %v", startTimeout)
	}
}

// wait returns the report of a reload that must succeed.
func (r *reloading) wait() control.ReloadReport {
	r.s.t.Helper()
	select {
	case <-r.done:
	case <-time.After(commandTimeout):
		r.s.t.Fatalf("a reload has not ended after %v", commandTimeout)
	}
	if r.err != nil {
		r.s.t.Fatal(r.err)
	}
	if !r.report.OK {
		r.s.t.Fatalf("reload: %s: %s", r.report.Outcome, r.report.Reason)
	}
	return r.report
}

// log returns what the server has written so far.
func (s *server) log() string {
	s.t.Helper()
	b, err := os.ReadFile(s.path("log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// signal sends the supervisor a signal.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// awaitExit waits until the supervisor has ended and returns its exit code.
func (s *server) awaitExit(timeout time.Duration) int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(timeout):
		s.t.Fatalf("the server has not ended after %v", timeout)
	}
	return s.cmd.ProcessState.ExitCode()
}

// ledger waits until nothing is on its way and returns the ledger, whose sums
// it checks.
func (s *server) ledger() control.Ledger {
	s.t.Helper()
	var l control.Ledger
	s.await(5*time.Second, "every datagram read is accounted for", func() bool {
		l = s.status().Ledger
		return l.InHand == 0 && l.RingTaken == l.Sibling+l.Forwarded && l.RingTaken == l.RingServed+sum(l.RingDropped)
	})
	if got := l.Served + l.Sibling + l.Forwarded + sum(l.Dropped); got != l.Received {
		s.t.Errorf("the ledger does not add up: received %d, accounted for %d: %+v", l.Received, got, l)
	}
	return l
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// cleanUp ends what still runs and fails the test for what is left behind.
func (s *server) cleanUp() {
	if s.cmd != nil && s.cmd.Process != nil {
		select {
		case <-s.exited:
		default:
			s.signal(syscall.SIGINT)
			select {
			case <-s.exited:
			case <-time.After(10 * time.Second):
				s.t.Error("the server has not ended 10 s after SIGINT")
				_ = s.cmd.Process.Kill()
				<-s.exited
			}
		}
		s.checkNothingLeft()
	}
	if s.t.Failed() {
		s.t.Logf("the log of the server:\n%s", tail(s.log(), 200))
	}
}

// checkNothingLeft fails the test for processes, sockets and files that are
// left after the end of the server.
func (s *server) checkNothingLeft() {
	s.t.Helper()
	var left []int
	gone := awaiting(2*time.Second, func() bool {
		left = s.processes()
		return len(left) == 0
	})
	if !gone {
		s.t.Errorf("processes %v are left", left)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, name := range []string{"control.sock", "dnsapp.pid"} {
		if _, err := os.Lstat(s.path(name)); err == nil {
			s.t.Errorf("%s is left", name)
		}
	}
	if left := s.doors(); len(left) != 0 {
		s.t.Errorf("%v are left", left)
	}
	for _, dir := range []string{s.path("tmp"), "/dev/shm"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Error(err)
		}
		for _, e := range entries {
			if dir != "/dev/shm" || strings.Contains(e.Name(), "dnsapp") {
				s.t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("... %d lines before", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}
