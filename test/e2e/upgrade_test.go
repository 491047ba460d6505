package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// nextVersion is what the other binary says that it is.
const nextVersion = "v99.0.0"

// nextBinary builds dnsapp as another version, with the places of package hold in
// it, once, and returns the program.
var nextBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dnsapp-next-")
	if err != nil {
		return "", err
	}
	suite.temporary = append(suite.temporary, dir)
	program := filepath.Join(dir, "dnsapp")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "hold", "-ldflags", "-X main.version="+nextVersion, "-o", program, "./cmd/dnsapp")
	build.Dir = suite.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building another version: %w\n%s", err, out)
	}
	return program, nil
})

// next puts the other binary into the folder of the server and returns its path.
func (s *server) next() string {
	s.t.Helper()
	program, err := nextBinary()
	if err != nil {
		s.t.Fatal(err)
	}
	path := s.path("dnsapp-next")
	copyProgram(s.t, program, path)
	s.others = append(s.others, path)
	return path
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// script puts a program into the folder of the server and returns its path.
func (s *server) script(name, text string) string {
	s.t.Helper()
	path := s.path(name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// stopAll stops the instance, whoever has it, and whoever stands by.
func (s *server) stopAll() {
	s.t.Helper()
	s.ctl("stop", "--now")
	s.awaitExit(10 * time.Second)
}

// awaitVersion waits until the instance is this version's, alone or with another
// one that stands by, and nothing drains.
func (s *server) awaitVersion(version string, standby bool) {
	s.t.Helper()
	s.await(startTimeout, version+" has the instance", func() bool {
		st, ok := s.tryStatus()
		return ok && st.Version == version && (st.Standby != nil) == standby && st.Step == control.StepSteady && len(st.Generations) == 1 && allReady(st.Generations[0])
	})
}

const upgradeReload = "{udp_idle: 200ms, shutdown_timeout: 300ms}"

// upgrading has a server upgraded, given back, upgraded again and left alone, under
// 30,000 queries/s, 2,000 flows and 36 connections that carry much, which all stay
// with the first generation. It returns what was lost.
func upgrading(s *server) (lost []error) {
	s.t.Helper()
	next, old := s.next(), s.status().Version
	flows := identify(s.t, 2000, 5000)
	x := startDNS(s.t)
	awaitAnswers(s.t, x.udp, 5000)
	before := metrics(s.t)
	lost = transferring(s.t, func() {
		for _, step := range []struct {
			args    []string
			version string
			standby bool
		}{
			{[]string{"upgrade", "--binary", next, "--wait", "commit"}, nextVersion, true},
			{[]string{"upgrade", "--rollback", "--wait", "commit"}, old, false},
			{[]string{"upgrade", "--binary", next, "--wait", "commit"}, nextVersion, true},
			{[]string{"upgrade", "--drain-old"}, nextVersion, false},
		} {
			what := strings.Join(step.args, " ")
			s.ctl(step.args...)
			s.await(startTimeout, "after "+what+" it is as it should be", func() bool {
				st, ok := s.tryStatus()
				return ok && st.Version == step.version && (st.Step == control.StepSteady || st.Step.Committed()) && (st.Standby != nil) == step.standby
			})
			<-time.After(transferSpan())
			awaitAnswers(s.t, x.udp, 2000)
			before = fallen(s.t, what, before)
			if step.standby {
				if _, errs, code := s.tryCtl("reload"); code != exit.Refused {
					s.t.Errorf("a reload after %v: code %d\n%s", step.args, code, errs)
				}
			}
		}
	})
	for name, r := range x.stop() {
		s.t.Logf("%s: %v", name, r)
		if err := r.Exact(); err != nil {
			lost = append(lost, fmt.Errorf("%s: %w", name, err))
		}
	}
	r := flows.Stop(time.Second)
	s.t.Logf("flows: %v", r)
	if err := r.Exact(); err != nil {
		lost = append(lost, fmt.Errorf("flows: %w", err))
	}
	return lost
}

// Another version takes over, gives everything back, takes over again, and is left
// alone: nothing is lost, no connection is cut, no counter falls.
func TestUpgrade(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 300ms, shutdown_timeout: 2m}"}.yaml(), map[string]string{"example.com.zone": transferZone()})
	for _, err := range upgrading(s) {
		t.Error(err)
	}
	if l := s.ledger(); sum(l.Dropped) != 0 || sum(l.RingDropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
	s.awaitVersion(nextVersion, false)
	if got := s.processes(); len(got) != 3 {
		t.Errorf("processes %v: not a supervisor and two workers", got)
	}
	s.ctl("reload")
	s.stopAll()
}

// The plain way to reload loses by it: the test above can fail.
func TestUpgradeOfRestartFails(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{mode: restart}"}.yaml(), map[string]string{"example.com.zone": transferZone()})
	lost := upgrading(s)
	if len(lost) < transfers+1 {
		t.Errorf("with restarts %d things went wrong: the test does not see what it is there to see", len(lost))
	}
	s.stopAll()
}

// While the generation of the old supervisor drains, that one would take everything
// back if the upgrade failed, and can be told to, or to end; but nothing else may begin,
// and nothing is lost by who tries.
func TestUpgradeDrains(t *testing.T) {
	s := start(t, settings{reload: "{udp_idle: 1m}"}.yaml(), zoneFiles())
	next, old, epoch := s.next(), s.status().Version, s.epoch()
	flows := identify(t, 20, 200)
	awaitAnswers(t, flows, 20)
	has := func(version string, standby bool) {
		t.Helper()
		st := s.status()
		if st.Version != version || (st.Standby != nil) != standby {
			t.Errorf("%s has the instance, standby %v; it should be %s", st.Version, st.Standby, version)
		}
		if !slices.ContainsFunc(st.Generations, func(g control.Generation) bool { return g.Epoch == epoch }) {
			t.Errorf("epoch %d, which has the flows, is gone", epoch)
		}
		awaitAnswers(t, flows, 20)
	}
	refused := func() {
		t.Helper()
		for _, args := range [][]string{{"reload"}, {"upgrade", "--binary", s.exe}} {
			if _, errs, code := s.tryCtl(args...); code != exit.Refused || !strings.Contains(string(errs), "--drain-old") {
				t.Errorf("%v: code %d, %s", args, code, errs)
			}
		}
	}
	ended := make(chan int, 1)
	go func() { // this one waits until there is nothing to wait for any more
		_, _, code := s.tryCtl("upgrade", "--binary", next)
		ended <- code
	}()
	s.await(startTimeout, "the upgrade has committed", func() bool { st, ok := s.tryStatus(); return ok && st.Standby != nil })
	has(nextVersion, true)
	refused()
	others := identify(t, 20, 200) // which the new generation has
	awaitAnswers(t, others, 20)
	s.ctl("upgrade", "--rollback", "--wait", "commit")
	if code := <-ended; code != exit.Done {
		t.Errorf("an upgrade that committed, and was taken back: code %d", code)
	}
	has(old, true)
	refused()
	s.ctl("upgrade", "--rollback", "--wait", "commit") // the other way round
	if code := s.awaitExit(5 * time.Second); code != exit.Done {
		t.Errorf("the supervisor that was gone back from ended with code %d", code)
	}
	has(nextVersion, false)

	s.ctl("upgrade", "--binary", s.exe, "--wait", "commit")
	has(old, true)
	s.ctl("upgrade", "--drain-old")
	has(old, false)
	s.ctl("reload", "--wait", "commit")

	s.ctl("upgrade", "--binary", next, "--wait", "commit")
	has(nextVersion, true)
	kill(t, s.status().PID, syscall.SIGKILL) // and the one before adopts
	s.await(startTimeout, "the one before has it again", func() bool { st, ok := s.tryStatus(); return ok && st.Version == old && st.Step.Committed() })
	has(old, false)
	for _, f := range []*load.UDP{flows, others} {
		r := f.Stop(time.Second)
		t.Logf("flows: %v", r)
		if err := r.Exact(); err != nil {
			t.Error(err)
		}
	}
	s.stopAll()
}

// Upgrades in a row leave nothing behind: no descriptor, no door, no memory. With
// -soak there are twenty.
func TestUpgradesInARow(t *testing.T) {
	upgrades := 6
	if *soak {
		upgrades = 20
	}
	s := start(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	binaries := []string{s.next(), s.exe}
	p := startProbe(t)
	var fds, memory []int64
	for n := range upgrades {
		s.ctl("upgrade", "--binary", binaries[n%2])
		s.ctl("upgrade", "--drain-old")
		var open, pss int64
		for _, pid := range s.processes() {
			open += int64(descriptors(t, pid))
			m, err := proc.PSS(pid)
			if err != nil {
				t.Fatal(err)
			}
			pss += m
		}
		fds, memory = append(fds, open), append(memory, pss>>20)
	}
	r := p.stop()
	t.Logf("probe: %v; descriptors %v; MiB %v", r, fds, memory)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	half := upgrades / 2
	if slices.Max(fds[half:]) > slices.Max(fds[:half])+4 { // some are of connections under way
		t.Errorf("descriptors after each upgrade: %v", fds)
	}
	if last, first := slices.Min(memory[half:]), slices.Max(memory[:half]); last > first+first/4 {
		t.Errorf("MiB after each upgrade: %v", memory)
	}
	if doors := s.doors(); len(doors) != 3 {
		t.Errorf("doors %v", doors)
	}
	s.stopAll()
}

// A binary that is not fit, or does not do what it should, leaves the old one as it
// was, and the reason is told.
func TestUpgradeRefused(t *testing.T) {
	s := start(t, settings{reload: upgradeReload, top: "upgrade: {timeout: 1s}"}.yaml(), zoneFiles())
	epoch, next, old := s.epoch(), s.next(), s.status().Version
	fit := "[ \"$1\" = version ] && exec " + next + " version --handover\n"
	p := startProbe(t)
	for name, tt := range map[string]struct {
		binary string
		code   int
		want   string
	}{
		"another layout": {s.script("layout", next+" version --handover | sed s/directory=/directory=9/"), exit.Refused, "cannot share memory (directory: "},
		"no such file":   {s.path("nothing"), exit.Refused, "no such file"},
		"another tool":   {"/bin/false", exit.Refused, "exit status 1"},
		"too old":        {s.script("old", "echo unknown flag: --handover >&2; exit 2"), exit.Refused, "exit status 2: unknown flag: --handover"},
		"says nothing":   {s.script("mute", "echo $$ >"+s.path("mute.pid")+"\nsleep 1000; true"), exit.Refused, "no answer in 5s"},
		"exits at once":  {s.script("exits", fit+"exit 0"), exit.Failed, "exit status 0"},
		"crashes":        {s.script("crashes", fit+"kill -SEGV $$"), exit.Failed, "signal: segmentation fault"},
		"hangs":          {s.script("hangs", fit+"exec sleep 1000"), exit.Failed, "has not committed after 1s"},
	} {
		_, errs, code := s.tryCtl("upgrade", "--binary", tt.binary)
		if code != tt.code || !strings.Contains(string(errs), tt.want) {
			t.Errorf("%s: code %d, %s", name, code, errs)
		}
	}
	if got := s.epoch(); got != epoch {
		t.Errorf("epoch %d after %d", got, epoch)
	}
	s.write("example.com.zone", "broken\n")
	if _, errs, code := s.tryCtl("upgrade", "--binary", next); code != exit.Failed || !strings.Contains(string(errs), "example.com.zone") {
		t.Errorf("a configuration that cannot be loaded: code %d, %s", code, errs)
	}
	s.awaitVersion(old, false)
	s.write("example.com.zone", zone(1))
	for _, what := range []string{"--rollback", "--drain-old"} {
		if _, errs, code := s.tryCtl("upgrade", what); code != exit.Refused {
			t.Errorf("%s: code %d, %s", what, code, errs)
		}
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.await(5*time.Second, "a supervisor and a worker are left", func() bool { return len(s.processes()) == 2 })
	mute, err := os.ReadFile(s.path("mute.pid"))
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(strings.TrimSpace(string(mute)))
	if err != nil {
		t.Fatal(err)
	}
	s.await(5*time.Second, "what a binary that said nothing had started is gone", func() bool {
		return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) // not before it is reaped
	})
}

// takerPlaces are where a supervisor that takes over waits, beside those of its
// reload.
var takerPlaces = []string{"before taken", "after taken"}

// Whichever of the two supervisors is killed at any step of an upgrade, the other
// one has the instance in the end, and nobody who asks sees anything of it. With
// -soak every step is tried.
func TestUpgradeKilled(t *testing.T) {
	steps := append(slices.Clone(takerPlaces), places[atT1], places[atParked], places[atT3])
	if *soak {
		steps = append(slices.Clone(takerPlaces), slices.Sorted(maps.Values(places))...)
	}
	for _, victim := range []string{"new", "old"} {
		t.Run(victim, func(t *testing.T) {
			s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
			h := newHolder(s)
			s.serve()
			s.awaitReady()
			next, old := s.next(), s.status().Version
			p := startProbe(t)
			for _, place := range steps {
				caught := h.catch(place)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					s.tryCtl("upgrade", "--binary", next)
				}()
				at := awaitHeld(t, caught, place)
				awaitAnswers(t, p.dns, 10)
				if victim == "new" {
					kill(t, at.pid, syscall.SIGKILL)
					at.release()
					<-ended
					s.awaitVersion(old, false)
					continue
				}
				s.killSupervisor()
				at.release()
				<-ended
				s.awaitVersion(nextVersion, false)
				kill(t, at.pid, syscall.SIGKILL) // and the next one adopts
				s.serve()
				s.awaitVersion(old, false)
			}
			awaitAnswers(t, p.who, 10)
			r := p.stop()
			t.Logf("probe: %v", r)
			if err := r.Exact(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A supervisor that dies while the one before it stands by is replaced by that one,
// under a service manager, too.
func TestStandbyTakesBack(t *testing.T) {
	s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	s.env = append(s.env, "NOTIFY_SOCKET="+s.path("notify"))
	s.serve()
	s.awaitReady()
	old := s.status().Version
	p := startProbe(t)
	s.ctl("upgrade", "--binary", s.next())
	s.awaitVersion(nextVersion, true)
	kill(t, s.status().PID, syscall.SIGKILL)
	s.awaitVersion(old, false)
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	// Who the main process is was told at each change.
	var mains []string
	if err := manager.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 4096); ; {
		n, err := manager.Read(b)
		if err != nil {
			break
		}
		_, rest, ok := strings.Cut(string(b[:n]), "MAINPID=")
		if main, _, _ := strings.Cut(rest, "\n"); ok && (len(mains) == 0 || mains[len(mains)-1] != main) {
			mains = append(mains, main)
		}
	}
	if pid := fmt.Sprint(s.cmd.Process.Pid); len(mains) < 3 || mains[0] != pid || mains[len(mains)-1] != pid {
		t.Errorf("main processes %v; it was to be %s in the end", mains, pid)
	}
}

// With both supervisors killed the workers serve on, and the next supervisor adopts
// them.
func TestBothSupervisorsKilled(t *testing.T) {
	s := start(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	old := s.status().Version
	s.ctl("upgrade", "--binary", s.next())
	p := startProbe(t)
	epoch, pid := s.epoch(), s.status().PID
	s.signal(syscall.SIGKILL)
	kill(t, pid, syscall.SIGKILL)
	s.awaitExit(5 * time.Second)
	awaitAnswers(t, p.dns, 100)
	s.serve()
	s.awaitVersion(old, false)
	if got := s.epoch(); got != epoch+1 {
		t.Errorf("epoch %d after %d", got, epoch)
	}
	r := p.stop()
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
}

// A supervisor may be started to take over before there is one to take over from.
// One that is elsewhere is refused.
func TestTakeOver(t *testing.T) {
	s := newServer(t, settings{reload: upgradeReload}.yaml(), zoneFiles())
	next := s.next()
	takeOver := func(socket string) (*exec.Cmd, *bytes.Buffer) {
		said := new(bytes.Buffer)
		c := exec.Command(next, "serve", "-c", s.config, "--take-over", socket)
		c.Stderr = said
		c.WaitDelay = time.Second
		return c, said
	}
	early, said := takeOver(s.path("control.sock"))
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- early.Wait() }()
	s.serve()
	s.awaitVersion(nextVersion, true)
	s.signal(syscall.SIGWINCH) // to the one that stands by, which ends
	if code := s.awaitExit(5 * time.Second); code != 0 {
		t.Errorf("the old supervisor ended with code %d", code)
	}
	s.awaitVersion(nextVersion, false)

	elsewhere, why := takeOver(s.path("control.sock"))
	elsewhere.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	_ = elsewhere.Run() // its exit code is looked at
	if code := elsewhere.ProcessState.ExitCode(); code != exit.Refused || !strings.Contains(why.String(), "network namespace") {
		t.Errorf("from another network namespace: code %d, %s", code, why)
	}
	other, why := takeOver("/run/other.sock")
	_ = other.Run()
	if code := other.ProcessState.ExitCode(); code != exit.Refused || !strings.Contains(why.String(), "must be the same socket") {
		t.Errorf("another socket: code %d, %s", code, why)
	}
	s.ctl("stop", "--now")
	if err := <-ended; err != nil {
		t.Errorf("the new supervisor: %v\n%s", err, said)
	}
}

// USR2 starts the file that the binary came from, with what is in it by then; WINCH
// ends the one that stands by. The pid file follows.
func TestUpgradeBySignal(t *testing.T) {
	s := start(t, settings{reload: upgradeReload}.yaml(), zoneFiles())
	if err := os.Rename(s.next(), s.exe); err != nil {
		t.Fatal(err)
	}
	s.others = append(s.others, s.exe+" (deleted)")
	old := s.cmd.Process.Pid
	s.signal(syscall.SIGUSR2)
	s.awaitVersion(nextVersion, true)
	st := s.status()
	if st.Standby.PID != old || st.PID == old {
		t.Errorf("pid %d has the instance, and %d stands by", st.PID, st.Standby.PID)
	}
	if got, err := os.ReadFile(s.path("dnsapp.pid")); err != nil || strings.TrimSpace(string(got)) != fmt.Sprint(st.PID) {
		t.Errorf("the pid file has %q (%v)", got, err)
	}
	kill(t, st.PID, syscall.SIGWINCH)
	if code := s.awaitExit(5 * time.Second); code != 0 {
		t.Errorf("the old supervisor ended with code %d", code)
	}
	s.awaitVersion(nextVersion, false)
	s.stopAll()
}

// As process 1, which nothing outlives, dnsapp becomes the other binary itself, and
// adopts its workers.
func TestUpgradeOfProcessOne(t *testing.T) {
	s := newServer(t, settings{reload: upgradeReload}.yaml(), zoneFiles())
	next := s.next()
	log, err := os.Create(s.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	container := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", s.exe, "serve", "-c", s.config)
	container.Stderr = log
	if err := container.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- container.Wait() }()
	t.Cleanup(func() { _ = container.Process.Kill() }) // an error says that it has ended
	s.await(startTimeout, "it serves", func() bool { st, ok := s.tryStatus(); return ok && len(st.Generations) == 1 })
	p := startProbe(t)
	s.ctl("upgrade", "--binary", next)
	s.awaitVersion(nextVersion, false)
	if got := s.status().PID; got != 1 {
		t.Errorf("pid %d has the instance", got)
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.ctl("stop", "--now")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
