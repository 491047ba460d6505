package main

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// What the service manager is told over the life of a service: by datagrams, each
// of which says one thing and the status.
func TestNotify(t *testing.T) {
	i := newInstance(t)
	socket := filepath.Join(i.dir, "notify")
	m, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, errs := program(t, "serve", "-c", i.config)
	c.Env = append(c.Environ(), "NOTIFY_SOCKET="+socket)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		t.Helper()
		if err := m.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		for {
			b := make([]byte, 4096)
			n, err := m.Read(b)
			if err != nil {
				t.Fatalf("%v; the log:\n%s", err, errs)
			}
			// How a drain goes on, and asking for patience, depends on the machine; what is to be
			// kept is tested with those who keep it.
			text := string(b[:n])
			if !slices.ContainsFunc([]string{"STATUS=", "EXTEND_TIMEOUT_USEC=", "FDSTORE"}, func(p string) bool { return strings.HasPrefix(text, p) }) {
				return text
			}
		}
	}
	want := func(pattern string) []string {
		t.Helper()
		text := next()
		match := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("told %q, want %q", text, pattern)
		}
		return match
	}
	ready := fmt.Sprintf("READY=1\nMAINPID=%d\nSTATUS=epoch ", c.Process.Pid)

	want(ready + "1 serves")
	if !exists(i.pidFile) {
		t.Error("READY before the pid file is there")
	}
	before := monotonic(t)
	if err := i.reload(t); err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseInt(want("RELOADING=1\nMONOTONIC_USEC=(\\d+)\nSTATUS=epoch 1 serves; reloading: T0 prepare")[1], 10, 64)
	if err != nil || at < before || at > monotonic(t) {
		t.Errorf("reloading at %d us, asked for at %d", at, before)
	}
	want(ready + "2 serves.*")

	i.write(t, "nonsense: 1\n")
	if code := exit.Of(i.reload(t)); code != exit.Refused {
		t.Fatalf("the reload has the exit code %d", code)
	}
	want("RELOADING=1\nMONOTONIC_USEC=\\d+\nSTATUS=epoch 2 serves; .*")
	want(ready + "2 serves; reload 2 refused: .*nonsense: is not a known key.*")

	i.stop(t)
	want("STOPPING=1\nSTATUS=stopping.*")
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
	if !gone(c.Process.Pid) {
		t.Error("the process is still there")
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano() / 1000
}

// A drain that takes long does not run into the manager's time-out: it is asked
// for more time, and told what the drain waits for.
func TestNotifyOfALongDrain(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes 5 seconds")
	}
	i := newInstance(t)
	socket := filepath.Join(i.dir, "notify")
	m, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, errs := program(t, "serve", "-c", i.config)
	c.Env = append(c.Environ(), "NOTIFY_SOCKET="+socket)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	wait := func(pattern string) {
		t.Helper()
		for b := make([]byte, 4096); ; {
			n, err := m.Read(b)
			if err != nil {
				t.Fatalf("%v before %s; the log:\n%s", err, pattern, errs)
			}
			if regexp.MustCompile("^" + pattern + "$").Match(b[:n]) {
				return
			}
		}
	}
	wait("READY=1\n(?s:.*)")
	conn, err := net.Dial("tcp", i.address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // a connection that is in use
		defer close(ended)
		for b := make([]byte, 512); ; {
			if _, err := conn.Write([]byte("who\n")); err != nil {
				return
			}
			if _, err := conn.Read(b); err != nil {
				return
			}
		}
	}()
	if err := c.Process.Signal(unix.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	wait("STOPPING=1\nSTATUS=stopping.*")
	wait("EXTEND_TIMEOUT_USEC=15000000\nSTATUS=stopping; epoch 1 waits for 1 TCP connection.*")
	conn.Close()
	<-ended
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
}
