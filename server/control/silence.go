package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/server/exit"
)

const (
	// AckTimeout is how long a supervisor may take to take a request up, which it
	// does before it begins to carry it out.
	AckTimeout = 10 * time.Second

	// lastMoment is how long the word that a request was taken up may be on its way
	// when nobody wants to wait any more: then it goes on, and is not withdrawn.
	lastMoment = 100 * time.Millisecond

	// silenceAfter is how long a supervisor may say nothing before Client.OnSilence
	// is called.
	silenceAfter = 2 * time.Second
)

// SilentError says that a supervisor is there and has not taken up a request,
// which is withdrawn: a supervisor begins nothing for a client that has gone.
type SilentError struct {
	Path  string // the control socket
	PID   int    // the supervisor; 0 if not known
	After time.Duration
	Err   error // of the context
}

// Error names the supervisor, what it does, and a remedy.
func (e *SilentError) Error() string {
	text := fmt.Sprintf("%s has not answered on %s for %v", whoIs(e.PID), e.Path, e.After.Round(100*time.Millisecond))
	switch {
	case errors.Is(e.Err, context.Canceled):
		return text + "; interrupted"
	case e.PID > 0 && isStopped(e.PID):
		return text + fmt.Sprintf(": it is stopped; kill -CONT %d lets it go on", e.PID)
	}
	return text + "; its log may say why"
}

// Unwrap returns the error of the context.
func (e *SilentError) Unwrap() error { return e.Err }

// ExitCode returns exit.Unreachable.
func (e *SilentError) ExitCode() int { return exit.Unreachable }

// Silence describes a supervisor that says nothing, in words.
func Silence(pid int) string {
	if pid > 0 && isStopped(pid) {
		return whoIs(pid) + ", which is stopped"
	}
	return whoIs(pid)
}

func whoIs(pid int) string {
	if pid > 0 {
		return fmt.Sprintf("the supervisor (pid %d)", pid)
	}
	return "the supervisor"
}

// isStopped reports whether a process is stopped by a signal, or traced.
func isStopped(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// The command name, in parentheses, may hold anything: look behind its end.
	state := strings.TrimSpace(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// silence calls OnSilence, once, when nothing has been heard for silenceAfter.
type silence struct {
	heard chan struct{}
	ended chan struct{}
	done  sync.WaitGroup
}

// listen begins to wait for a supervisor to say something. With idle, one that is
// not stopped may say nothing for as long as it likes. The caller must call end.
func (c *Client) listen(idle bool) *silence {
	s := &silence{heard: make(chan struct{}, 1), ended: make(chan struct{})}
	if c.OnSilence == nil {
		return s
	}
	s.done.Go(func() {
		t := time.NewTimer(silenceAfter)
		defer t.Stop()
		for {
			select {
			case <-s.ended:
				return
			case <-s.heard:
			case <-t.C:
				if !idle || isStopped(c.pid) {
					c.OnSilence(c.pid)
					return
				}
			}
			t.Reset(silenceAfter)
		}
	})
	return s
}

// news notes that the supervisor has said something.
func (s *silence) news() {
	select {
	case s.heard <- struct{}{}:
	default:
	}
}

// end stops the waiting. OnSilence is not called any more when it has returned.
func (s *silence) end() {
	close(s.ended)
	s.done.Wait()
}
