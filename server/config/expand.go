package config

import (
	"fmt"
	"strings"
)

// expand replaces ${NAME} in s by the value of the environment variable NAME,
// ${NAME:-text} by text if NAME is unset or empty, and $$ by $. Nothing that
// it puts in is expanded again. All faults are reported, s is then as it was.
func expand(s string, env func(string) (string, bool)) (string, []fault) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	var faults []fault
	for rest := s; rest != ""; {
		text, after, found := strings.Cut(rest, "$")
		b.WriteString(text)
		if !found {
			break
		}
		rest = after
		if strings.HasPrefix(rest, "$") {
			b.WriteByte('$')
			rest = rest[1:]
			continue
		}
		body, tail, closed := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		if !strings.HasPrefix(rest, "{") || !closed {
			faults = append(faults, fault{"has a $ that begins no ${NAME}", "write $$ for the character itself"})
			continue
		}
		rest = tail
		name, def, hasDefault := strings.Cut(body, ":-")
		if !isVariable(name) {
			faults = append(faults, fault{
				fmt.Sprintf("%q names no environment variable", "${"+body+"}"),
				"write ${NAME} or ${NAME:-default}",
			})
			continue
		}
		if strings.Contains(def, "$") {
			faults = append(faults, fault{fmt.Sprintf("the default of ${%s} has a $", name), "a default is plain text"})
			continue
		}
		value, set := env(name)
		switch {
		case hasDefault && value == "":
			value = def
		case !set:
			faults = append(faults, fault{
				fmt.Sprintf("the environment variable %s is not set", name),
				fmt.Sprintf("set it, or write ${%s:-default}", name),
			})
		}
		b.WriteString(value)
	}
	if faults != nil {
		return s, faults
	}
	return b.String(), nil
}

// isVariable reports whether s is a name that a shell would accept.
func isVariable(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
