package control

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// The socket is closed to others from the first moment, whatever the umask.
func TestModes(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := socketPath(t)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release(t, l)
	for file, want := range map[string]os.FileMode{
		path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700, filepath.Join(filepath.Dir(path), LockName): 0o600,
	} {
		info, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", file, info.Mode(), want)
		}
	}
}

func TestSecondInstance(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release(t, l)
	// Also under another name in the same directory.
	for _, p := range []string{path, filepath.Join(filepath.Dir(path), "other.sock")} {
		_, err = listen(p)
		var in *InUseError
		if !errors.As(err, &in) || in.PID != os.Getpid() || in.Dir != filepath.Dir(path) {
			t.Errorf("the second listen on %s: %v", p, err)
		}
		wantText(t, err, "is in use by dnsapp pid", "dnsappctl stop")
		if exit.Of(err) != exit.Refused {
			t.Errorf("exit code is %d", exit.Of(err))
		}
	}
	// The first is not disturbed.
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first instance after the second: %v", err)
	}
	c.Close()
}

// Who has just been killed holds the lock for as long as it takes to die, and
// keeps nobody from starting.
func TestHolderThatWasKilled(t *testing.T) {
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("SKIPPED: flock is not installed (util-linux)")
	}
	dir := filepath.Dir(socketPath(t))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, LockName)
	for range 20 {
		holder := exec.Command(flock, "--no-fork", file, "sleep", "60")
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		in := new(InUseError)
		for deadline := time.Now().Add(10 * time.Second); in.PID == 0; { // until it has the lock
			if time.Now().After(deadline) {
				t.Fatal("nobody takes the lock")
			}
			if err := os.WriteFile(file, []byte(strconv.Itoa(holder.Process.Pid)), 0o600); err != nil {
				t.Fatal(err)
			}
			lock, err := tryLockDir(dir)
			if err == nil {
				lock.Close()
			}
			errors.As(err, &in)
		}
		if _, err := lockDir(dir); !errors.As(err, &in) { // it lives
			t.Errorf("a second holder: %v", err)
		}
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		lock, err := lockDir(dir)
		if err != nil {
			t.Fatalf("over one that was killed: %v", err)
		}
		lock.Close()
		if err := holder.Wait(); err == nil {
			t.Error("the holder has ended by itself")
		}
	}
}

// Somebody removed the lock file of a live instance.
func TestLiveInstanceWithoutLock(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release(t, l)
	if err := os.Remove(filepath.Join(filepath.Dir(path), LockName)); err != nil {
		t.Fatal(err)
	}
	_, err = listen(path)
	var in *InUseError
	if !errors.As(err, &in) || in.PID != os.Getpid() {
		t.Errorf("listen: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of the live instance: %v", err)
	}
}

func TestStaleSocket(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as if it had been killed
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("no stale socket: %v", err)
	}
	l, err = listen(path)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after release: %v", err)
	}
}

func TestFileInTheWay(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := listen(path)
	wantText(t, err, path, "not a socket", "set control:")
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file is %q, %v", b, err)
	}
	// The failure gave the directory up again.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	release(t, l)
}

func TestMissingParent(t *testing.T) {
	path := filepath.Join(filepath.Dir(socketPath(t)), "sub", "control.sock")
	_, err := listen(path)
	wantText(t, err, "its parent directory does not exist", filepath.Dir(path))
}

func TestPathLength(t *testing.T) {
	dir := filepath.Dir(filepath.Dir(socketPath(t)))
	fits := filepath.Join(dir, strings.Repeat("a", MaxPath-len(dir)-1))
	l, err := listen(fits)
	if err != nil {
		t.Fatalf("with %d bytes: %v", len(fits), err)
	}
	c, err := Dial(fits)
	if err != nil {
		t.Errorf("dialing %d bytes: %v", len(fits), err)
	} else {
		c.Close()
	}
	release(t, l)

	_, err = listen(fits + "a")
	wantText(t, err, "has 108 bytes", "at most 107", "choose a shorter one")
	_, err = Dial(fits + "a")
	wantText(t, err, "at most 107")
	if exit.Of(err) != exit.Usage {
		t.Errorf("exit code is %d", exit.Of(err))
	}
}

func TestPathNeverMeant(t *testing.T) {
	for path, want := range map[string]string{"": "is empty", "/run/a\n": `"/run/a\n" has a control character`, "/run/\x00": "has a control character"} {
		_, err := Dial(path)
		wantText(t, err, want)
		if exit.Of(err) != exit.Usage {
			t.Errorf("exit code is %d", exit.Of(err))
		}
		if _, err := listen(path); err == nil {
			t.Errorf("%q was bound", path)
		}
	}
}

func TestUnreachable(t *testing.T) {
	path := socketPath(t)
	_, err := Dial(path)
	wantText(t, err, path, "no such file", "try dnsapp serve -c FILE")
	if exit.Of(err) != exit.Unreachable {
		t.Errorf("exit code is %d", exit.Of(err))
	}
	err = &UnreachableError{Path: path, Err: unix.EACCES}
	wantText(t, err, "permission denied", "run this as root")
}

func release(t *testing.T, l *listener) {
	t.Helper()
	if err := l.release(); err != nil {
		t.Error(err)
	}
}
