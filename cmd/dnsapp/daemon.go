package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// readyFD is where a daemon tells the process that started it that it serves: the
// writing end of a pipe.
const readyFD = 3

// endTimeout is how long a daemon that was not ready in time has to clean up.
const endTimeout = 5 * time.Second

// daemonize starts this program again as a daemon, and waits until that serves.
// Its error has the exit code of the daemon if that has ended instead. more are further
// arguments of serve.
func daemonize(ctx context.Context, path string, timeout time.Duration, more ...string) error {
	path, err := filepath.Abs(path) // the daemon runs in the root directory
	if err != nil {
		return err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to the daemon: %w", err)
	}
	defer ready.Close()
	// Not by the path it came from: the file may have been replaced since.
	c := exec.Command("/proc/self/exe", append([]string{"serve", "--config", path, "--ready-fd", fmt.Sprint(readyFD)}, more...)...)
	c.Args[0] = "dnsapp"
	c.Dir = "/"
	c.Stderr = os.Stderr // the log
	c.ExtraFiles = []*os.File{tell}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	tell.Close()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	// The pipe ends with the daemon, or with the word that it serves.
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word, err := io.ReadAll(ready)
	switch {
	case len(word) > 0:
		return c.Process.Release()
	case err == nil: // its end, which its own words on standard error explain
		return exitOf(c.Wait())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the daemon does not serve after %v: stopping it", timeout)
	default:
		err = errors.New("interrupted: stopping the daemon")
	}
	return errors.Join(err, end(c))
}

// exitOf returns how a daemon ended that has never served.
func exitOf(err error) error {
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() > 0 {
		return exit.With(e.ExitCode(), fmt.Errorf("the daemon has ended; its reason is above: %w", err))
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("the daemon has ended before it served: %w", err)
}

// end stops a daemon at once, and kills it should it not obey.
func end(c *exec.Cmd) error {
	if err := c.Process.Signal(unix.SIGINT); err != nil {
		return fmt.Errorf("stopping the daemon: %w", err)
	}
	kill := time.AfterFunc(endTimeout, func() { _ = c.Process.Kill() })
	defer kill.Stop()
	err := c.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return fmt.Errorf("waiting for the daemon: %w", err)
	}
	return nil
}

// tellReady returns what tells the process behind the pipe fd that this one
// serves, nil for the fd 0.
func tellReady(fd int) func() {
	if fd == 0 {
		return nil
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "ready")
	return func() {
		// An error means that the other process has gone: there is nobody to tell.
		_, _ = io.WriteString(pipe, "ready")
		_ = pipe.Close()
	}
}
