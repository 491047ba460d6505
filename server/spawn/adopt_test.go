package spawn

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that somebody else has started is waited for and signalled like a
// child, but for how it ended; one of another start time is not taken for it.
func TestAdopt(t *testing.T) {
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	pid := c.Process.Pid
	if _, err := Adopt(pid, 1); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("another start time: %v", err)
	}
	p, err := AdoptNow(pid)
	if err != nil || p.PID != pid || p.Start != startTime(pid) {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("the signal did not end it")
	}
	if _, err := p.Wait(); !errors.Is(err, ErrNotChild) {
		t.Errorf("its end: %v", err)
	}
	if _, err := AdoptNow(pid); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after its end: %v", err)
	}
}
