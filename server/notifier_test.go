package server

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// manager listens like a service manager and returns its socket.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") //nolint:usetesting // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "socket")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); os.RemoveAll(dir) })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

// told returns the next datagram, as lines.
func told(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestNotifier(t *testing.T) {
	c := manager(t)
	n := newNotifier(slog.New(slog.DiscardHandler))
	n.ready("epoch 1 serves")
	if got, want := told(t, c), fmt.Sprintf("READY=1\nMAINPID=%d\nSTATUS=epoch 1 serves", os.Getpid()); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	// The manager compares the time with that of its own order.
	before := clock(t)
	n.reloading("reloading")
	got := told(t, c)
	m := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=(\d+)\nSTATUS=reloading$`).FindStringSubmatch(got)
	if m == nil {
		t.Fatalf("told %q", got)
	}
	var at int64
	if _, err := fmt.Sscan(m[1], &at); err != nil || at < before || at > clock(t) {
		t.Errorf("reloading at %d, not within %d and now", at, before)
	}
	n.extend(15*time.Second, "draining")
	if got, want := told(t, c), "EXTEND_TIMEOUT_USEC=15000000\nSTATUS=draining"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	n.say("draining") // no news
	n.say("news")
	if got := told(t, c); got != "STATUS=news" {
		t.Errorf("told %q", got)
	}
	n.stopping("stopping")
	n.close()
	if got := told(t, c); got != "STOPPING=1\nSTATUS=stopping" {
		t.Errorf("told %q", got)
	}
}

func clock(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano() / 1000
}

// A manager that does not read holds up nobody, and gets every state and the
// newest status when it reads again.
func TestNotifierOfAManagerThatSleeps(t *testing.T) {
	c := manager(t)
	n := newNotifier(slog.New(slog.DiscardHandler))
	const states = 500 // more than a socket queues
	for i := range states {
		n.stopping(fmt.Sprint(i))
		n.say("status " + fmt.Sprint(i))
	}
	seen := 0
	for {
		text := told(t, c)
		if strings.HasPrefix(text, "STOPPING=1") {
			if want := fmt.Sprintf("STOPPING=1\nSTATUS=%d", seen); text != want {
				t.Fatalf("told %q, want %q", text, want)
			}
			seen++
		}
		if text == fmt.Sprintf("STATUS=status %d", states-1) {
			break
		}
	}
	if seen != states {
		t.Errorf("%d states of %d", seen, states)
	}
	n.close()
}

// Where nobody listens nothing happens.
func TestNoNotifier(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := newNotifier(slog.New(slog.DiscardHandler))
	if n != nil {
		t.Fatal("there is a notifier")
	}
	n.ready("")
	n.say("")
	n.close()
}

// While the manager waits it is asked for more time, again and again, and not
// after that.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := looping(t)
		s.manager = &notifier{wake: make(chan struct{}, 1)} // it only queues
		asked := func() (n int) {
			s.manager.mu.Lock()
			defer s.manager.mu.Unlock()
			for _, d := range s.manager.states {
				if strings.HasPrefix(d.text, "EXTEND_TIMEOUT_USEC=15000000\nSTATUS=starting") {
					n++
				}
			}
			return n
		}
		busy := func(yes bool) {
			if err := s.ask(t.Context(), func() { s.busy(yes) }); err != nil {
				t.Fatal(err)
			}
		}
		busy(true)
		<-time.After(patienceInterval - time.Millisecond)
		if n := asked(); n != 0 {
			t.Errorf("asked %d times before the interval was over", n)
		}
		<-time.After(2*patienceInterval + 2*time.Millisecond)
		if n := asked(); n != 3 {
			t.Errorf("asked %d times in three intervals", n)
		}
		busy(false)
		<-time.After(10 * patienceInterval)
		if n := asked(); n != 3 {
			t.Errorf("asked %d times when it was over", n-3)
		}
	})
}
