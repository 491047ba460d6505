package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Where servers listen: one at a time.
var (
	flowsAt   = netip.MustParseAddrPort("127.0.0.1:5399")
	dnsAt     = netip.MustParseAddrPort("127.0.0.1:5353")
	versionAt = netip.MustParseAddrPort("127.0.0.1:5398") // of nginx
	echoAt    = netip.MustParseAddrPort("127.0.0.1:5397") // behind nginx
	behindAt  = netip.MustParseAddrPort("127.0.0.1:5396") // DNS behind nginx
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 15 * time.Second

	// drainTime is how long old processes may take to finish, with every server.
	drainTime = 10 * time.Second
)

// server is one kind of server.
type server interface {
	name() string

	// start serves with version 0 of the configuration from a folder, and returns
	// when it answers. The error is a *missingError where it is not installed.
	start(dir string) (*running, error)
}

// running is a server that serves.
type running struct {
	flows netip.AddrPort // invalid: it knows none

	// change writes version n of the configuration; apply has it taken up and
	// returns when the server says that it is done, if it does.
	change func(n int) error
	apply  func() error

	// version asks which version answers.
	version func() (int, error)

	closers []func() error
}

// stop ends it and what belongs to it.
func (r *running) stop() error {
	var errs []error
	for _, c := range slices.Backward(r.closers) {
		errs = append(errs, c())
	}
	r.closers = nil
	return errors.Join(errs...)
}

// await waits until version 0 answers.
func (r *running) await() error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		if n, err := r.version(); err == nil && n == 0 {
			return nil
		} else if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("it does not answer after %v: %w", startTimeout, err), r.stop())
		}
	}
}

// process is a program that was started.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// launch starts a program that logs to a file in dir.
func launch(dir string, program string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), log: filepath.Join(dir, filepath.Base(program)+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the exit code after a signal says nothing
		close(p.done)
	}()
	return p, nil
}

// end sends a signal and waits until the program is gone.
func (p *process) end(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s has not ended after %v", p.cmd.Path, stopTimeout), p.cmd.Process.Kill())
	}
}

// command runs a program to its end.
func command(program string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, oneLine(out.String()))
	}
	return nil
}

// writeZone writes version n of example.com.
func writeZone(dir string, n int) error {
	return os.WriteFile(filepath.Join(dir, "example.com.zone"), fmt.Appendf(nil, `$ORIGIN example.com.
$TTL 300
@ SOA ns1 admin %d 3600 600 86400 300
@ NS ns1
ns1 A 192.0.2.1
www A 192.0.2.2
now A 192.0.2.%d
`, n+1, n), 0o644)
}
