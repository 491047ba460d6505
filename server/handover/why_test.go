package handover

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that is asked why it ends says so, and one that knows nothing of the
// question says nothing.
func TestWhy(t *testing.T) {
	for text, want := range map[string]string{
		`printf 'no such file' >&$DNSAPP_WHY_FD`: "no such file",
		`exit 3`:                                 "",
		`sleep 1000 & printf x >&3`:              "x", // what it has started has the pipe, too
	} {
		c := exec.Command("/bin/sh", "-c", text)
		c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		theirs, why, err := AskWhy(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		_ = c.Wait() // it ends as it likes
		if got := why(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL)
	}
}

// Whoever was asked takes the question once, and says no more than is read.
func TestTakeWhy(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], 0); err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(p[0]), "pipe")
	defer r.Close()
	t.Setenv(whyVariable, strconv.Itoa(p[1]))
	w := TakeWhy()
	if flags, err := unix.FcntlInt(uintptr(p[1]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x (%v)", flags, err)
	}
	TakeWhy().Say(errors.New("nobody has asked"))
	w.Say(errors.New(strings.Repeat("x", 2*maxWhy)))
	b := make([]byte, 3*maxWhy)
	n, err := r.Read(b)
	if err != nil || n != maxWhy {
		t.Errorf("%d octets (%v)", n, err)
	}
	for _, odd := range []string{"", "x", "-1", strconv.Itoa(p[0] + 1000)} {
		t.Setenv(whyVariable, odd)
		if w := TakeWhy(); w.f != nil {
			t.Errorf("%q is taken for a pipe", odd)
		}
	}
}
