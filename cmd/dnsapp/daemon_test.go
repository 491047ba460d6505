package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// serve --daemon returns when the daemon serves: with its pid file, in a session
// of its own. A relative path names the same file for both.
func TestDaemon(t *testing.T) {
	i := newInstance(t)
	c := startDaemon(t, i, filepath.Base(i.config))
	text, err := os.ReadFile(i.pidFile)
	if err != nil {
		t.Fatalf("no pid file when it serves: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSuffix(string(text), "\n"))
	if err != nil || string(text) != strconv.Itoa(pid)+"\n" {
		t.Fatalf("pid file is %q", text)
	}
	if info, err := os.Stat(i.pidFile); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("pid file: %v, %v", info.Mode(), err)
	}
	if pid == c.Process.Pid {
		t.Error("the daemon is the process that was started")
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, %v; want %d", sid, err, pid)
	}
	if cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err != nil || cwd != "/" {
		t.Errorf("its folder is %s, %v", cwd, err)
	}
	if got := i.identify(t); !strings.HasPrefix(got, "epoch=1 ") {
		t.Errorf("it answers %q", got)
	}
	if err := i.reload(t); err != nil {
		t.Error(err)
	}
	if now, err := os.ReadFile(i.pidFile); err != nil || string(now) != string(text) {
		t.Errorf("after a reload the pid file is %q, %v", now, err)
	}
	i.stop(t)
	if exists(i.pidFile) {
		t.Error("the pid file is left behind")
	}
}

// startDaemon runs serve --daemon in the folder of i, to its end.
func startDaemon(t *testing.T, i *instance, config string) *exec.Cmd {
	t.Helper()
	// A pipe would be held open by the daemon, whose log it is.
	log, err := os.Create(filepath.Join(i.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c, _ := program(t, "serve", "--daemon", "-c", config)
	c.Dir, c.Stderr = i.dir, log
	if err := c.Run(); err != nil {
		b, readErr := os.ReadFile(log.Name())
		t.Fatalf("%v: %s %v", err, b, readErr)
	}
	return c
}

// Another instance's pid file is left alone.
func TestPIDFileOfAnother(t *testing.T) {
	i := newInstance(t)
	startDaemon(t, i, i.config)
	if err := os.WriteFile(i.pidFile, []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	i.stop(t)
	if b, err := os.ReadFile(i.pidFile); err != nil || string(b) != "1\n" {
		t.Errorf("the pid file of another instance is now %q, %v", b, err)
	}
}

// What keeps a daemon from serving is told, and nothing is left of it.
func TestDaemonThatDoesNotServe(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, i *instance) (args []string)
		code    int
		want    []string
	}{
		"refused": {func(t *testing.T, i *instance) []string {
			i.write(t, "nonsense: 1\n")
			return nil
		}, exit.Refused, []string{"nonsense: is not a known key", "the daemon has ended"}},
		"address taken": {func(t *testing.T, i *instance) []string {
			l, err := net.ListenPacket("udp", i.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return nil
		}, exit.Failed, []string{"is taken by", "the daemon has ended"}},
		"too slow": {func(*testing.T, *instance) []string {
			return []string{"--timeout", "1us"}
		}, exit.Failed, []string{"the daemon does not serve after 1µs"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstance(t)
			args := append([]string{"serve", "--daemon", "-c", i.config}, c.prepare(t, i)...)
			cmd, errs := program(t, args...)
			if err := cmd.Run(); err == nil {
				t.Fatal("it serves")
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("it says %q, not %q", errs, want)
				}
			}
			if exists(i.pidFile) || exists(i.control) {
				t.Error("something is left of it")
			}
		})
	}
}
