// Command dnsappctl controls a running dnsapp over its control socket.
//
// Invariant: the exit code says how it went (package server/exit), standard
// output holds the answer and nothing else, standard error what went wrong. So
// a script needs no other knowledge than the exit code and -o json.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/exit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	a := &app{out: os.Stdout, err: os.Stderr, env: os.LookupEnv}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// app is one run of the program.
type app struct {
	out, err io.Writer
	env      func(string) (string, bool)

	path    string // of the control socket
	format  format
	running bool // the command line was understood
}

// run executes a command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.Done
	}
	if !a.running {
		err = exit.With(exit.Usage, fmt.Errorf("%w\ntry %s --help", err, cmd.CommandPath()))
	}
	fmt.Fprintln(a.err, "dnsappctl: "+err.Error())
	return exit.Of(err)
}

// dial connects to the supervisor.
func (a *app) dial() (*control.Client, error) {
	c, err := control.Dial(a.path)
	if err != nil {
		return nil, err
	}
	c.OnSilence = func(pid int) { fmt.Fprintf(a.err, "dnsappctl: waiting for %s ...\n", control.Silence(pid)) }
	return c, nil
}

// asLine returns err as the last line of JSON output says it.
func asLine(err error) *control.Error {
	if e, ok := errors.AsType[*control.Error](err); ok {
		return e
	}
	code := control.CodeFailed
	switch exit.Of(err) {
	case exit.Usage:
		code = control.CodeUsage
	case exit.Draining:
		code = control.CodeDraining
	case exit.Unreachable:
		code = codeUnreachable
	}
	return &control.Error{Code: code, Message: err.Error()}
}

// codeUnreachable is the code of an error that no supervisor can send.
const codeUnreachable control.Code = "unreachable"
