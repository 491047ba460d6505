package master

// scanner cuts a file into the tokens of logical lines: parentheses join lines,
// comments end them (RFC 1035 5.1).
type scanner struct {
	data  []byte
	pos   int
	line  uint32 // of data[pos], from 1
	depth int    // open parentheses
	open  uint32 // line of the outermost open one

	tok    []byte // the token, escapes as written; a quoted one without its quotes
	quoted bool
	// glued says that a quoted token follows the token without a blank between.
	glued bool
	fault string // what is wrong with the text; "" nothing
}

// The classes of octets.
const (
	ordinary uint8 = iota
	blank
	newline
	comment
	opening
	closing
	quote
	escape
)

var class = func() (c [256]uint8) {
	c[' '], c['\t'], c['\r'] = blank, blank, blank
	c['\n'], c[';'], c['('], c[')'], c['"'], c['\\'] = newline, comment, opening, closing, quote, escape
	return c
}()

// next moves to the next token of the logical line. It returns false at the
// line's end, before the newline, and at a fault.
func (s *scanner) next() bool {
	d, i := s.data, s.pos
	for i < len(d) {
		switch class[d[i]] {
		case blank:
			i++
		case newline:
			if s.depth == 0 {
				s.pos = i
				return false
			}
			s.line++
			i++
		case comment:
			for i < len(d) && d[i] != '\n' {
				i++
			}
		case opening:
			if s.depth == 0 {
				s.open = s.line
			}
			s.depth++
			i++
		case closing:
			if s.depth == 0 {
				s.pos = i
				return s.fail("closing parenthesis without an opening one")
			}
			s.depth--
			i++
		case quote:
			s.pos = i
			return s.quotedToken()
		default:
			s.pos = i
			return s.token()
		}
	}
	s.pos = i
	if s.depth > 0 {
		return s.fail("end of file inside parentheses")
	}
	return false
}

func (s *scanner) fail(what string) bool {
	s.fault = what
	return false
}

// token reads an unquoted token at pos.
func (s *scanner) token() bool {
	d, start, i := s.data, s.pos, s.pos
	for i < len(d) {
		c := class[d[i]]
		if c == ordinary {
			i++
			continue
		}
		if c != escape {
			break
		}
		if i+1 == len(d) || d[i+1] == '\n' {
			s.pos = i
			return s.fail("backslash at the end of a line")
		}
		i += 2
	}
	s.tok, s.quoted, s.pos = d[start:i], false, i
	s.glued = i < len(d) && d[i] == '"'
	return true
}

// quotedToken reads a quoted token at pos, which may span lines only inside
// parentheses.
func (s *scanner) quotedToken() bool {
	d, start := s.data, s.pos+1
	for i := start; i < len(d); i++ {
		switch d[i] {
		case '\\':
			if i++; i < len(d) && d[i] == '\n' {
				s.line++
			}
		case '\n':
			if s.depth == 0 {
				s.pos = i
				return s.fail("quoted string is not closed")
			}
			s.line++
		case '"':
			s.tok, s.quoted, s.pos = d[start:i], true, i+1
			s.glued = false
			if s.pos < len(d) && (class[d[s.pos]] == ordinary || class[d[s.pos]] == escape) {
				return s.fail("text directly behind a quoted string")
			}
			return true
		}
	}
	s.pos = len(d)
	return s.fail("quoted string is not closed")
}

// skipLine moves behind the end of the logical line, whatever is in it.
func (s *scanner) skipLine() {
	d := s.data
	quoted := false
	for s.pos < len(d) {
		c := d[s.pos]
		s.pos++
		switch {
		case c == '\n':
			s.line++
			if s.depth == 0 {
				return
			}
			quoted = false
		case c == '\\':
			if s.pos < len(d) && d[s.pos] != '\n' {
				s.pos++
			}
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			s.depth++
		case c == ')' && s.depth > 0:
			s.depth--
		case c == ';':
			for s.pos < len(d) && d[s.pos] != '\n' {
				s.pos++
			}
		}
	}
	s.depth = 0
}
