package handover

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// whyVariable has the number of the pipe in which a supervisor that was started to
// take over says why it ends. One that knows nothing of it says so in the log alone.
const whyVariable = "DNSAPP_WHY_FD"

// maxWhy bounds what it may say, in octets; whyTime how long it is listened to once it
// has ended, since a process of its own may have the pipe, too.
const (
	maxWhy  = 4 << 10
	whyTime = 100 * time.Millisecond
)

// AskWhy has a process that is to be started say why it ends. The caller closes theirs
// once it has started, and calls why once it has ended: that returns "" if it said
// nothing.
func AskWhy(c *exec.Cmd) (theirs io.Closer, why func() string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("a pipe for the reason: %w", err)
	}
	c.ExtraFiles = []*os.File{w}
	c.Env = append(c.Environ(), whyVariable+"=3")
	return w, func() string {
		defer r.Close()
		if err := r.SetReadDeadline(time.Now().Add(whyTime)); err != nil {
			return ""
		}
		b, _ := io.ReadAll(io.LimitReader(r, maxWhy)) // what there is
		return strings.TrimSpace(string(b))
	}, nil
}

// Why is where this process says why it ends, if somebody has asked.
type Why struct{ f *os.File }

// TakeWhy looks whether somebody has asked, once: what this process starts does not
// learn of it.
func TakeWhy() Why {
	fd, err := strconv.ParseUint(os.Getenv(whyVariable), 10, 16)
	if uerr := os.Unsetenv(whyVariable); uerr != nil || err != nil {
		return Why{}
	}
	var st unix.Stat_t
	if unix.Fstat(int(fd), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return Why{}
	}
	unix.CloseOnExec(int(fd))
	return Why{os.NewFile(uintptr(fd), "why")}
}

// Say says it. Nil is no reason.
func (w Why) Say(err error) {
	if w.f == nil {
		return
	}
	defer w.f.Close()
	if err == nil {
		return
	}
	text := err.Error()
	_, _ = io.WriteString(w.f, text[:min(len(text), maxWhy)]) // it is in the log, too
}
