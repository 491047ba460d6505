// Package exit holds the exit codes of dnsapp and dnsappctl.
//
// Invariant: a code means the same in every command of both programs, so that
// a script can act on the number alone:
//
//	0  done: what was asked has happened
//	1  failed: it was tried and did not work; what ran before still runs
//	2  usage: the command line is wrong; nothing was tried
//	3  refused: it cannot be done now or with this configuration; nothing was touched
//	4  still draining: taken up, and the --timeout is over; the work goes on
//	5  unreachable: no supervisor answers on the control socket; nothing is begun
package exit

import "errors"

// The exit codes.
const (
	Done        = 0
	Failed      = 1
	Usage       = 2
	Refused     = 3
	Draining    = 4
	Unreachable = 5
)

// coder is an error that knows its exit code.
type coder interface{ ExitCode() int }

// Of returns the exit code that err stands for: Done for nil, the code of the
// first error in its tree that has an ExitCode method, else Failed.
func Of(err error) int {
	if err == nil {
		return Done
	}
	var c coder
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return Failed
}

// With returns err with an exit code, nil for a nil err. The text is err's.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &coded{error: err, code: code}
}

type coded struct {
	error
	code int
}

// ExitCode returns the code given to With.
func (c *coded) ExitCode() int { return c.code }

// Unwrap returns the error given to With.
func (c *coded) Unwrap() error { return c.error }
