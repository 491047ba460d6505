package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File   string `json:"file"`           // as it was given to Load, or an included one
	Line   int    `json:"line,omitempty"` // from 1; 0: it is about no line
	Column int    `json:"column,omitempty"`
	Key    string `json:"key,omitempty"` // "reload.udp_idle", "listeners[0].address[1]"; "": the whole file
	Msg    string `json:"msg"`           // what is wrong, to be read after the key
	Fix    string `json:"fix,omitempty"` // what would be right
}

// String returns the problem as one line, FILE:LINE: KEY: MSG (FIX), the form
// that editors jump to.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(p.Line))
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key)
		b.WriteString(": ")
	}
	b.WriteString(p.Msg)
	if p.Fix != "" {
		b.WriteString(" (")
		b.WriteString(p.Fix)
		b.WriteByte(')')
	}
	return b.String()
}

// Problems is all that is wrong with a configuration, in the order of the
// file. It is the only type of error that Load returns.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems is how many problems are told. Who gives us a file of another kind
// need not read about each line of it.
const maxProblems = 50

// first returns the first maxProblems of sorted problems, and one that counts the
// rest.
func (ps Problems) first() Problems {
	if len(ps) <= maxProblems {
		return ps
	}
	return append(ps[:maxProblems:maxProblems], Problem{
		File: ps[0].File, Msg: fmt.Sprintf("and %d more problems", len(ps)-maxProblems), Fix: "mend these first",
	})
}

// sort puts problems in the order of the files: that of the configuration, then
// the included ones.
func (ps Problems) sort(included []string) {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(included, a.File), slices.Index(included, b.File)),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
		)
	})
}

// fault is a Problem that does not know yet where it is.
type fault struct{ msg, fix string }
