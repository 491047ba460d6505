package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// parse returns the one mapping that a configuration file is, or nil after it
// has reported why it is not.
func (c *checker) parse(data []byte) *yaml.Node {
	if !c.printable(data) {
		return nil
	}
	c.lines = countLines(bytes.TrimRight(data, "\r\n"))
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		c.empty(place{line: 1})
		return nil
	case err != nil:
		c.syntax(data, err)
		return nil
	}
	switch err := dec.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		c.syntax(data, err)
		return nil
	default:
		c.report(place{line: next.Line, column: next.Column},
			fault{"begins a second document", "a configuration is one document: leave out the line ---"})
	}
	top := doc.Content[0]
	at := place{line: top.Line, column: top.Column}
	switch {
	case !c.plain(top, ""):
		return nil
	case isNull(top):
		c.empty(at)
		return nil
	case top.Kind != yaml.MappingNode:
		c.report(at, fault{"is " + nodeKind(top) + ", not keys and values", "write lines such as workers: 1"})
		return nil
	}
	return top
}

// empty reports a file without a key, unless another one may have them.
func (c *checker) empty(at place) {
	if !c.included {
		c.report(at, fault{"is empty", "it needs at least one entry in listeners"})
	}
}

// printable reports every octet that YAML does not allow (YAML 1.2 section
// 5.1), a line at a time. yaml.v3 refuses them too, without their line.
func (c *checker) printable(data []byte) bool {
	ok := true
	for n, line := range bytes.Split(data, []byte("\n")) {
		if n == 0 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		for i := 0; i < len(line); {
			r, size := utf8.DecodeRune(line[i:])
			bad := ""
			switch {
			case r == utf8.RuneError && size == 1:
				bad = fmt.Sprintf("has the octet 0x%02x, which is not UTF-8", line[i])
			case r < ' ' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfeff || r == 0xfffe || r == 0xffff:
				bad = fmt.Sprintf("has the control character %U", r)
			}
			if bad != "" {
				c.report(place{line: n + 1, column: i + 1}, fault{bad, "a configuration is UTF-8 text"})
				ok = false
				break
			}
			i += size
		}
	}
	return ok
}

// countLines counts lines as yaml.v3 does.
func countLines(data []byte) int {
	n := 1 - bytes.Count(data, []byte("\r\n")) // counted twice below
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		n += bytes.Count(data, []byte(end))
	}
	return n
}

// pattern returns a regular expression that is compiled when it is first used: most
// processes never do, and each of them would be started later.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

var (
	yamlError = pattern(`^yaml: (?:line (\d+): )?(.*)`)

	// What the parser of yaml.v3 says, in contrast to its scanner.
	parserError = pattern(`^did not find expected (<document start>|node content|key|'-' indicator|',' or '[\]}]')$`)
	blockError  = pattern(`^did not find expected (key|'-' indicator)$`)

	unknownAnchor = pattern(`^unknown anchor '(.*)' referenced$`)
)

// syntax reports an error of the YAML parser, with its line put right and a
// hint for the slips that everybody makes.
func (c *checker) syntax(data []byte, err error) {
	line, msg := syntaxLine(data, err)
	text := ""
	if lines := bytes.Split(data, []byte("\n")); line <= len(lines) {
		text = string(lines[line-1])
	}
	f := fault{"YAML: " + msg, ""}
	switch {
	case c.tabs(data):
		return
	case strings.Contains(text, "::"):
		f.fix = `quote IPv6 addresses, such as "[::1]:53"`
	case strings.Contains(text, "${"):
		f.fix = `quote it within braces and brackets, such as "${NAME}"`
	case strings.Contains(msg, "mapping values are not allowed"):
		f.fix = "is the indentation right? Text with a colon and a space needs quotes"
	case strings.HasPrefix(msg, "unknown anchor"):
		f.fix = "write the value out"
	case strings.HasPrefix(msg, "did not find expected ','"):
		f.fix = "close the bracket or brace that is open here"
	case strings.Contains(msg, "unexpected end of stream"):
		f.fix = "close the quotes that are open here"
	case blockError().MatchString(msg):
		f.fix = "indent it like the lines that it belongs to"
	}
	c.report(place{line: line}, f)
}

// tabs reports the lines that are indented by a tab, which YAML does not
// allow, and whether there are any.
func (c *checker) tabs(data []byte) bool {
	found := false
	for i, line := range strings.Split(string(data), "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if col := strings.IndexByte(indent, '\t'); col >= 0 && len(indent) < len(line) {
			c.report(place{line: i + 1, column: col + 1}, fault{"is indented by a tab", "indent by spaces"})
			found = true
		}
	}
	return found
}

// syntaxLine returns the line, from 1, and the text of an error of yaml.v3,
// whose own line is missing for the first one and for an alias, one too small
// when the parser (and not the scanner) complains, and that of the start of the
// block when something in the block is out of place.
func syntaxLine(data []byte, err error) (int, string) {
	number, msg := splitYAMLError(err)
	line := max(number, 1)
	if m := unknownAnchor().FindStringSubmatch(msg); m != nil {
		head, _, _ := strings.Cut(string(data), "*"+m[1])
		return 1 + strings.Count(head, "\n"), msg
	}
	if parserError().MatchString(msg) && number > 0 {
		line++
	}
	if !blockError().MatchString(msg) {
		return line, msg
	}
	// The shortest head of the file that shows the error ends with its line.
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := sort.Search(len(lines), func(n int) bool {
		var node yaml.Node
		err := yaml.Unmarshal(bytes.Join(lines[:n+1], nil), &node)
		if err == nil {
			return false
		}
		_, m := splitYAMLError(err)
		return m == msg
	})
	if n < len(lines) {
		line = n + 1
	}
	return line, msg
}

func splitYAMLError(err error) (line int, msg string) {
	m := yamlError().FindStringSubmatch(err.Error())
	if m == nil {
		return 0, err.Error()
	}
	line, _ = strconv.Atoi(m[1]) // "": no line
	return line, m[2]
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// nodeKind names what n is.
func nodeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if isNull(n) {
		return "no value"
	}
	return describe(scalar{text: n.Value, tag: n.ShortTag()})
}
