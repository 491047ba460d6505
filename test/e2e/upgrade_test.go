package e2e

import (
	"bytes"
	"errors"
	"fmt"
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
	return s.executable(name, "#!/bin/sh\n"+text+"\n")
}

// executable is script for whatever can be executed, or should be.
func (s *server) executable(name, content string) string {
	s.t.Helper()
	path := s.plain(name, content)
	if err := os.Chmod(path, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// plain puts a file that cannot be executed into the folder.
func (s *server) plain(name, content string) string {
	s.t.Helper()
	s.write(name, content)
	return s.path(name)
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

// regionsOf returns how many regions of shared memory these processes have, each
// counted once, and how much memory they take.
func regionsOf(t *testing.T, pids []int) (n int, octets int64) {
	t.Helper()
	seen := make(map[uint64]bool)
	for _, pid := range pids {
		list, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			to, err := os.Readlink(l)
			if err != nil || !strings.HasPrefix(to, "/memfd:") {
				continue
			}
			var st syscall.Stat_t
			if syscall.Stat(l, &st) == nil && !seen[st.Ino] {
				seen[st.Ino] = true
				n, octets = n+1, octets+st.Blocks*512
			}
		}
	}
	return n, octets
}

// Twenty upgrades in a row leave nothing behind: no descriptor, no region, no door, no
// memory, and nothing in /dev/shm (the end of every test looks there, too).
func TestUpgradesInARow(t *testing.T) {
	const upgrades = 20
	s := start(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	binaries := []string{s.next(), s.exe}
	p := startProbe(t)
	var fds, memory, regions, shared []int64
	before := metrics(t)
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
		n, octets := regionsOf(t, s.processes())
		fds, memory = append(fds, open), append(memory, pss>>20)
		regions, shared = append(regions, int64(n)), append(shared, octets>>10)
		before = fallen(t, "upgrade", before)
	}
	r := p.stop()
	t.Logf("probe: %v; descriptors %v; MiB %v; regions %v of %v KiB", r, fds, memory, regions, shared)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	// Twenty generations have been folded into the counters, each once.
	if l := s.ledger(); l.Received != r.Sent {
		t.Errorf("%d datagrams are counted, and %d were sent", l.Received, r.Sent)
	}
	const half = upgrades / 2
	for what, list := range map[string][]int64{"descriptors": fds, "regions": regions} { // some are of what is under way
		if slices.Max(list[half:]) > slices.Max(list[:half])+4 {
			t.Errorf("%s after each upgrade: %v", what, list)
		}
	}
	for what, list := range map[string][]int64{"MiB": memory, "KiB of regions": shared} {
		if last, first := slices.Min(list[half:]), slices.Max(list[:half]); last > first+first/4 {
			t.Errorf("%s after each upgrade: %v", what, list)
		}
	}
	if doors := s.doors(); len(doors) != 3 {
		t.Errorf("doors %v", doors)
	}
	if left, err := filepath.Glob("/dev/shm/*dnsapp*"); err != nil || len(left) != 0 {
		t.Errorf("%v in /dev/shm (%v)", left, err)
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
		"not executable": {s.plain("plain", "#!/bin/sh\n"), exit.Refused, "it is not executable for this user"},
		"no interpreter": {s.executable("odd", "#!/no/such/shell\n"), exit.Refused, "not the interpreter that it names"},
		"not of here":    {s.executable("alien", "\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 57)), exit.Refused, "it is no program for this machine"},
		"odd behind":     {s.script("behind", "exec "+s.path("plain")+" \"$@\""), exit.Refused, "ermission denied"},
		"another place":  {s.script("elsewhere", fit+"exec "+next+" serve --config "+s.config+" --take-over /run/other.sock"), exit.Failed, "both must be the same socket"},
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
	good, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.write("dnsapp.yaml", "nonsense: 1\n")
	if _, errs, code := s.tryCtl("upgrade", "--binary", next); code != exit.Failed || !strings.Contains(string(errs), "nonsense") {
		t.Errorf("a configuration that cannot be read: code %d, %s", code, errs)
	}
	s.write("dnsapp.yaml", string(good))
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

// A supervisor may be started to take over before there is one to take over from.
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
