package e2e

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/proc"
)

// run runs a command of dnsapp that ends by itself.
func (s *server) run(args ...string) (output string, code int) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.exe, args...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		s.t.Fatalf("dnsapp %v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Every way to stop ends with code 0 and nothing left (cleanUp looks). QUIT lets a
// connection finish what it asks; TERM does for a short while; INT does not.
func TestStop(t *testing.T) {
	const graceful, fast, now = 10 * time.Second, 8 * time.Second, 3 * time.Second
	for _, c := range []struct {
		name   string
		stop   func(s *server)
		within time.Duration
	}{
		{"QUIT", func(s *server) { s.signal(syscall.SIGQUIT) }, graceful},
		{"TERM", func(s *server) { s.signal(syscall.SIGTERM) }, fast},
		{"INT", func(s *server) { s.signal(syscall.SIGINT) }, now},
		{"stop", func(s *server) { s.ctl("stop") }, graceful},
		{"stop --fast", func(s *server) { s.ctl("stop", "--fast") }, fast},
		{"stop --now", func(s *server) { s.ctl("stop", "--now") }, now},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, settings{workers: 2}.yaml(), zoneFiles())
			for _, network := range []string{"udp", "tcp"} {
				whoAnswers(t, network, who4.String())
			}
			c.stop(s)
			if code := s.awaitExit(c.within); code != 0 {
				t.Errorf("code %d", code)
			}
		})
	}
}

// A graceful stop serves the connections there are, and a faster stop overtakes it
// at once.
func TestFasterStopOvertakes(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	c, err := net.Dial("tcp", who4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := whoAnswersOn(t, c)
	s.signal(syscall.SIGQUIT)
	s.await(5*time.Second, "the server drains", func() bool {
		if after := whoAnswersOn(t, c); after != before {
			t.Fatalf("a connection of %+v is served by %+v during the stop", before, after)
		}
		return s.status().Generations[0].Drain != nil
	})
	select {
	case <-s.exited:
		t.Fatal("it has ended under a connection in use")
	default:
	}
	s.signal(syscall.SIGINT)
	if code := s.awaitExit(3 * time.Second); code != 0 {
		t.Errorf("code %d", code)
	}
}

// HUP is `dnsappctl reload`.
func TestHUPReloads(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	epoch := s.epoch()
	s.signal(syscall.SIGHUP)
	s.await(10*time.Second, "a new generation serves", func() bool { return s.epoch() == epoch+1 })
	s.awaitSteady()
}

// A second instance is refused with the pid of the first, whether it is the
// control socket that it wants too or an address alone.
func TestSecondInstanceRefused(t *testing.T) {
	s := start(t, settings{}.yaml(), zoneFiles())
	want := strconv.Itoa(s.cmd.Process.Pid)
	for name, config := range map[string]string{
		"same control socket": settings{}.yaml(),
		"same addresses": strings.NewReplacer("control.sock", "second/control.sock", "dnsapp.pid", "second.pid",
			"state_dir: state", "state_dir: state2", admin, "127.0.0.1:9154").Replace(settings{}.yaml()),
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			s.write("second.yaml", config)
			out, code := s.run("serve", "-c", s.path("second.yaml"))
			t.Logf("%s", out)
			if code != 1 && code != 3 {
				t.Errorf("code %d, want 1 or 3", code)
			}
			if !strings.Contains(out, want) {
				t.Errorf("it does not name process %s", want)
			}
		})
	}
	if tag := whoAnswers(t, "udp", who4.String()); tag.Epoch != s.epoch() {
		t.Errorf("the first instance is disturbed: %+v", tag)
	}
}

// Workers run as the unprivileged user, without any capability and without a way
// to get one.
func TestWorkersHaveNoPrivileges(t *testing.T) {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, settings{workers: 2}.yaml(), zoneFiles())
	for _, pid := range s.workers() {
		st, err := proc.Status(pid)
		if err != nil {
			t.Fatal(err)
		}
		for id := range strings.FieldsSeq(st["Uid"]) {
			if id != nobody.Uid {
				t.Errorf("worker %d: uid %s, want %s", pid, st["Uid"], nobody.Uid)
			}
		}
		for id := range strings.FieldsSeq(st["Gid"]) {
			if id != nobody.Gid {
				t.Errorf("worker %d: gid %s, want %s", pid, st["Gid"], nobody.Gid)
			}
		}
		if groups := st["Groups"]; groups != "" && groups != nobody.Gid {
			t.Errorf("worker %d: supplementary groups %q", pid, groups)
		}
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if n, err := strconv.ParseUint(st[set], 16, 64); err != nil || n != 0 {
				t.Errorf("worker %d: %s is %s, %v", pid, set, st[set], err)
			}
		}
		if st["NoNewPrivs"] != "1" {
			t.Errorf("worker %d: NoNewPrivs %s", pid, st["NoNewPrivs"])
		}
	}
}

// Scripts act on the exit code alone.
func TestExitCodes(t *testing.T) {
	s := start(t, settings{reload: "{udp_idle: 2s}"}.yaml(), zoneFiles())
	good := settings{reload: "{udp_idle: 2s}"}.yaml()
	g := identify(t, 4, 100)
	awaitAnswers(t, g, 20)
	for _, c := range []struct {
		name   string
		args   []string
		config string
		code   int
	}{
		{"done", []string{"status"}, good, 0},
		{"usage", []string{"status", "--no-such-flag"}, good, 2},
		{"usage of a command", []string{"fly"}, good, 2},
		{"refused", []string{"reload"}, "nonsense: 1\n", 3},
		{"still draining", []string{"reload", "--timeout", "500ms"}, good, 4},
	} {
		s.write("dnsapp.yaml", c.config)
		if out, errs, code := s.tryCtl(c.args...); code != c.code {
			t.Errorf("%s: dnsappctl %v: code %d, want %d\n%s%s", c.name, c.args, code, c.code, out, errs)
		}
	}
	report := g.Stop(time.Second)
	if err := report.Exact(); err != nil {
		t.Error(err)
	}
	s.awaitSteady()
	s.ctl("stop", "--now")
	s.awaitExit(5 * time.Second)
	if _, errs, code := s.tryCtl("status"); code != 5 || !bytes.Contains(errs, []byte("control.sock")) {
		t.Errorf("unreachable: code %d, want 5: %s", code, errs)
	}
	if out, code := s.run("check", "-c", s.path("nowhere.yaml")); code != 1 {
		t.Errorf("failed: dnsapp check: code %d, want 1\n%s", code, out)
	}
	if out, code := s.run("serve", "--no-such-flag"); code != 2 {
		t.Errorf("usage: dnsapp serve --no-such-flag: code %d, want 2\n%s", code, out)
	}
}
