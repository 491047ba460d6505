package control

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/dnsapp/dnsapp/server/exit"
)

// Code is the kind of an Error.
type Code string

// The codes.
const (
	CodeFailed   Code = "failed"   // tried, and did not work
	CodeUsage    Code = "usage"    // the request is malformed
	CodeRefused  Code = "refused"  // cannot be done now, or with this configuration; nothing was touched
	CodeDraining Code = "draining" // the time of the request is over; the work goes on
)

// Error is the answer to a request that did not work out.
type Error struct {
	Code     Code      `json:"code"`
	Message  string    `json:"message"`
	Problems []Problem `json:"problems,omitempty"`
}

// Refuse returns an *Error with CodeRefused.
func Refuse(format string, args ...any) *Error {
	return &Error{Code: CodeRefused, Message: fmt.Sprintf(format, args...)}
}

// Error returns the message and, below it, one line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// ExitCode returns the exit code of a program that ends with e.
func (e *Error) ExitCode() int {
	switch e.Code {
	case CodeUsage:
		return exit.Usage
	case CodeRefused:
		return exit.Refused
	case CodeDraining:
		return exit.Draining
	case CodeFailed:
	}
	return exit.Failed
}

// status is the HTTP status of an answer whose body is e.
func (e *Error) status() int {
	switch e.Code {
	case CodeUsage:
		return http.StatusBadRequest
	case CodeRefused:
		return http.StatusConflict
	case CodeDraining:
		return http.StatusGatewayTimeout
	case CodeFailed:
	}
	return http.StatusInternalServerError
}

// String returns p as compilers print it: FILE:LINE: KEY: MESSAGE (WANT).
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	if p.Want != "" {
		b.WriteString(" (" + p.Want + ")")
	}
	return b.String()
}
