package primary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/dnsapp/dnsapp/server/exit"
)

// answerTimeout is how long a primary that lives may take to answer.
const answerTimeout = 5 * time.Second

// DiffersError says that the primary that lives was made for another Spec.
type DiffersError struct {
	PID     int
	Changes []Change
}

// Error names each key, and the remedy.
func (e *DiffersError) Error() string {
	var all []string
	for _, c := range e.Changes {
		all = append(all, c.String())
	}
	return fmt.Sprintf("the primary, pid %d, was started with other devices (%s); write them back, or stop dnsapp and then the primary (dnsappctl primary stop)",
		e.PID, strings.Join(all, "; "))
}

// ExitCode returns exit.Refused.
func (e *DiffersError) ExitCode() int { return exit.Refused }

// Order is what a started primary is told: on descriptor orderFD, as JSON.
type Order struct {
	Dir       string `json:"dir"` // of the control socket
	Spec      Spec   `json:"spec"`
	LogLevel  string `json:"log_level"`
	LogFormat string `json:"log_format"`
}

// The descriptors of a primary that Ensure starts, and what it writes to the second
// when it is ready.
const (
	orderFD   = 0
	readyFD   = 3
	readyWord = "ready"
)

// Ensure returns the primary for the folder o.Dir: the one that lives, if it answers
// and has the Spec of o, else a new one, with a new prefix. reused says which. The new
// one is this program with args, such as primary --ordered, in a session of its own,
// and lives on when this process ends.
func Ensure(ctx context.Context, o Order, args ...string) (s *State, reused bool, err error) {
	s, err = ReadState(o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, false, err
	case s.Alive():
		return s, true, usable(ctx, s, o)
	}
	if err := start(ctx, o, args); err != nil {
		return nil, false, err
	}
	s, err = ReadState(o.Dir)
	return s, false, err
}

// usable says why the primary that lives does not serve for o, nil if it does.
func usable(ctx context.Context, s *State, o Order) error {
	if c := s.Spec.Changes(&o.Spec); len(c) > 0 {
		return &DiffersError{s.PID, c}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	now, err := NewClient(o.Dir).Status(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the primary, pid %d, lives and does not answer; kill it, and start dnsapp again: %w", s.PID, err)
	case now.PID != s.PID:
		return fmt.Errorf("the primary that answers in %s is pid %d, not %d", o.Dir, now.PID, s.PID)
	case now.Stuck != "":
		return fmt.Errorf("nobody can attach to the primary, pid %d: %s; stop it (dnsappctl primary stop --force), and start dnsapp again", s.PID, now.Stuck)
	}
	return nil
}

// start starts a primary and waits until it is ready.
func start(ctx context.Context, o Order, args []string) error {
	order, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("starting the primary: %w", err)
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the primary: %w", err)
	}
	defer ready.Close()
	// Not by the path it came from: the file may have been replaced since.
	c := exec.Command("/proc/self/exe", args...)
	c.Args[0] = "dnsapp"
	c.Dir = "/"
	c.Stdin = bytes.NewReader(order)
	c.Stderr = os.Stderr
	c.ExtraFiles = []*os.File{tell} // readyFD
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	tell.Close()
	if err != nil {
		return fmt.Errorf("starting the primary: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word, err := io.ReadAll(ready)
	if string(word) == readyWord {
		go func() { _ = c.Wait() }() // it is our child until one of the two ends
		return nil
	}
	if err == nil {
		err = errors.New("it ended before it was ready; its reason is above")
	} else {
		err = fmt.Errorf("it is not ready: %w", context.Cause(ctx))
	}
	_ = c.Process.Kill() // an error means that it has ended
	_ = c.Wait()
	return fmt.Errorf("starting the primary: %w", err)
}

// ReadOrder reads what Ensure tells the primary that it starts.
func ReadOrder(r io.Reader) (Order, error) {
	var o Order
	if err := json.NewDecoder(io.LimitReader(r, maxAnswer)).Decode(&o); err != nil {
		return o, fmt.Errorf("reading the order on descriptor %d: %w; dnsapp serve starts this command, or use --config", orderFD, err)
	}
	return o, nil
}

// TellReady returns what tells Ensure that the primary is ready.
func TellReady() func() {
	syscall.CloseOnExec(readyFD)
	pipe := os.NewFile(readyFD, "ready")
	return func() {
		_, _ = io.WriteString(pipe, readyWord) // an error: who waited has gone
		_ = pipe.Close()
	}
}
