package server

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/metrics"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/zones"
)

// located is how a line of an error says where something is wrong: by an
// absolute path and a line, perhaps after what was being done.
var located = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:.*?: )?(/[^:]*):(\d+): (.*)$`) })

// problemsOf takes an error of T0 apart: one problem for each thing that is
// wrong, with its place where that is known. nil for nil.
func problemsOf(err error) []control.Problem {
	if err == nil {
		return nil
	}
	if list, ok := errors.AsType[config.Problems](err); ok {
		return problems(list)
	}
	var out []control.Problem
	if refused, ok := errors.AsType[*zones.RefusedError](err); ok {
		for _, f := range refused.Failures {
			out = append(out, zoneProblems(f)...)
		}
		return out
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p := control.Problem{Message: line}
		if m := located().FindStringSubmatch(line); m != nil {
			if n, err := strconv.Atoi(m[2]); err == nil {
				p = control.Problem{File: m[1], Line: n, Message: m[3]}
			}
		}
		out = append(out, p)
	}
	return out
}

// zoneProblems returns what is wrong with a zone as the API carries it.
func zoneProblems(f *zones.Failure) []control.Problem {
	var out []control.Problem
	for _, e := range f.Problems {
		out = append(out, control.Problem{File: e.File, Line: e.Line, Key: f.Zone.Name, Message: e.Reason})
	}
	return out
}

// problems returns what is wrong with a configuration as the API carries it.
func problems(list []config.Problem) []control.Problem {
	var out []control.Problem
	for _, p := range list {
		out = append(out, control.Problem{File: p.File, Line: p.Line, Key: p.Key, Message: p.Msg, Want: p.Fix})
	}
	return out
}

// brief returns the first line of a reason, and how many there are beside it: the
// end of the request tells them all.
func brief(reason string) string {
	first, rest, more := strings.Cut(reason, "\n")
	if !more {
		return first
	}
	return fmt.Sprintf("%s (and %d more)", first, strings.Count(rest, "\n")+1)
}

// bindError is an error of T0 about an address.
type bindError struct{ error }

// Unwrap returns the error.
func (e *bindError) Unwrap() error { return e.error }

// refusalOf says what an error of T0 is about.
func refusalOf(err error) metrics.Refusal {
	if _, ok := errors.AsType[config.Problems](err); ok {
		return metrics.RefusedConfig
	}
	if _, ok := errors.AsType[*zones.RefusedError](err); ok {
		return metrics.RefusedZone
	}
	if _, ok := errors.AsType[*bindError](err); ok {
		return metrics.RefusedAddress
	}
	return metrics.RefusedSystem
}

// refusal says why r was refused: by T0, or by the machine.
func (s *Supervisor) refusal(r *request) metrics.Refusal {
	switch {
	case r.refusal != "":
		return r.refusal
	case s.state.Phase == reload.PhaseStopping:
		return metrics.RefusedStopping
	}
	return metrics.RefusedOverlap
}

// outOfFiles adds the remedy to an error for the lack of descriptors.
func outOfFiles(err error) error {
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: raise the limit of open files (ulimit -n, LimitNOFILE)", err)
	}
	return err
}
