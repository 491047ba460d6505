package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/control"
)

// The test binary is the program, too: run with a command it is dnsapp, also when
// the supervisor in it runs itself as a worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// instance is the configuration of one dnsapp, and where to reach it.
type instance struct {
	dir     string
	config  string // file
	control string
	pidFile string
	address string // of identify
}

const limit = 60 * time.Second // for anything that a machine under load may take

// newInstance writes a configuration.
func newInstance(t *testing.T) *instance {
	t.Helper()
	dir, err := os.MkdirTemp("", "dnsapp") //nolint:usetesting // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // workers run as another user
		t.Fatal(err)
	}
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	i := &instance{
		dir: dir, config: filepath.Join(dir, "dnsapp.yaml"), control: filepath.Join(dir, "run", "control.sock"),
		pidFile: filepath.Join(dir, "dnsapp.pid"), address: l.LocalAddr().String(),
	}
	i.write(t, "")
	return i
}

// write writes the configuration, with more lines.
func (i *instance) write(t *testing.T, more string) {
	t.Helper()
	text := fmt.Sprintf(`control: %s
state_dir: %s
pid_file: %s
admin: off
lanes: 1
reload: {udp_idle: 200ms, shutdown_timeout: 20s}
listeners:
  - {name: who, address: [%q], service: identify}
%s`, i.control, filepath.Join(i.dir, "state"), i.pidFile, i.address, more)
	if err := os.WriteFile(i.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// program returns the command line of dnsapp with args, killed when the test
// takes too long. Its standard error is kept in the buffer.
func program(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, exe, args...)
	c.WaitDelay = time.Second
	errs := new(bytes.Buffer)
	c.Stderr = errs
	return c, errs
}

// stop stops the instance and waits until its process has gone.
func (i *instance) stop(t *testing.T) {
	t.Helper()
	c, err := control.Dial(i.control)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.Stop(ctx, control.StopRequest{Kind: control.StopNow}, func(control.Event) {}); err != nil {
		t.Error(err)
	}
}

// reload reloads the instance.
func (i *instance) reload(t *testing.T) error {
	t.Helper()
	c, err := control.Dial(i.control)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err = c.Reload(ctx, control.ReloadRequest{}, func(control.Event) {})
	return err
}

// identify asks who serves, once.
func (i *instance) identify(t *testing.T) string {
	t.Helper()
	c, err := net.Dial("udp", i.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("who\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// gone reports whether no process has this pid.
func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// check says what is wrong, or that nothing is; with --schema it prints the schema.
func TestCheck(t *testing.T) {
	i := newInstance(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check", "-c", i.config}, 0, i.config + ": good: 1 listener, 0 zones\n"},
		{[]string{"check", "-c", i.config + ".none"}, 1, "there is no such file"},
		{[]string{"check", "--schema"}, 0, `"$schema": "https://json-schema.org/draft/2020-12/schema"`},
		{[]string{"check", "--schema", "-c", i.config}, 2, "leave --config out"},
		{[]string{"chekc"}, 2, `unknown argument "chekc" (see dnsapp --help)`},
	} {
		cmd, errs := program(t, c.args...)
		cmd.Stdout = errs
		if err := cmd.Run(); (err == nil) != (c.code == 0) || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%v: %v, want code %d", c.args, err, c.code)
		}
		if !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: says %q, not %q", c.args, errs, c.want)
		}
	}
}
