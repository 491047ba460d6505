package master

import (
	"bytes"
	"fmt"
	"math"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// maxDepth is how deep files may include each other.
const maxDepth = 16

// parser reads one file. An include has a parser of its own.
type parser struct {
	scanner
	h     *Handler
	file  uint16
	path  string
	level int // includes around this file

	origin   []byte
	owner    []byte // of the last record; empty: none yet
	ownOwner bool   // it was stated since the start
	moved    bool   // the origin changed since an owner was stated

	ttl    uint32 // of $TTL, else of the last record with a TTL
	hasTTL bool
	dollar bool // $TTL was given
	ownTTL bool // ttl was stated since the start

	cut        cutting
	ahead      bool // this reads a piece ahead, and ends before a directive
	needsOwner bool // a record took its owner from before the start
	needsTTL   bool // a record took its TTL from before the start

	rdata   []byte
	rec     Record
	lastTok []byte // the last type token, and what it meant
	lastTyp *typeInfo
	err     error // of the handler
	stop    bool  // a bad directive: what follows makes no sense
}

// Parse reads data, the content of the file number 0 at path, as a zone with
// this origin (wire form). The error is that of the handler's Record or Open;
// what is wrong with the text goes to Errorf.
func Parse(data []byte, path string, origin []byte, h *Handler) error {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // the byte order mark of some editors
	return parse(data, path, origin, h, cuts())
}

func parse(data []byte, path string, origin []byte, h *Handler, cut cutting) error {
	p := parser{scanner: scanner{data: data, line: 1}, h: h, path: path, origin: origin, cut: cut}
	p.rdata = make([]byte, 0, 512)
	p.parse()
	return p.err
}

func (p *parser) pos() Pos { return Pos{File: p.file, Line: p.line} }

func (p *parser) errorf(format string, args ...any) bool {
	p.h.Errorf(p.pos(), format, args...)
	return false
}

// parseTo reads all entries that start before end.
func (p *parser) parseTo(end int) {
	for p.going() && p.scanner.pos < end {
		if p.ahead && p.data[p.scanner.pos] == '$' {
			return
		}
		line := p.line
		if p.logicalLine() {
			p.endLine()
			continue
		}
		if p.fault != "" {
			if p.scanner.depth > 0 && p.scanner.pos >= len(p.data) {
				line = p.open
			}
			p.h.Errorf(Pos{p.file, max(line, p.open)}, "%s", p.fault)
			p.fault = ""
		}
		p.skipLine()
	}
}

// endLine goes behind the newline that ends a logical line.
func (p *parser) endLine() {
	if p.scanner.pos < len(p.data) {
		p.scanner.pos++
		p.line++
	}
	p.open = 0
}

// logicalLine reads one entry. It returns false where the rest of the line has
// to be skipped; what is wrong has been reported or is in p.fault.
func (p *parser) logicalLine() bool {
	switch c := p.data[p.scanner.pos]; {
	case c == '$':
		return p.directive()
	case class[c] == blank || class[c] == opening:
		if !p.next() {
			return p.fault == ""
		}
		p.needsOwner = p.needsOwner || !p.ownOwner
		if len(p.owner) == 0 {
			return p.errorf("record without an owner, and there is none before it")
		}
		if p.moved {
			p.moved = false
			p.h.Warnf(p.pos(), "record without an owner behind a change of origin: it belongs to %s", wire.Text(p.owner))
		}
	default:
		if !p.next() {
			return p.fault == "" // an empty line
		}
		if p.quoted || p.glued {
			return p.errorf("quote in an owner name")
		}
		owner, err := appendName(p.owner[:0], p.tok, p.origin)
		p.owner, p.ownOwner, p.moved = owner, true, false
		if err != nil {
			return p.errorf("owner: %v", err)
		}
		if !p.next() {
			return p.missing("type")
		}
	}
	return p.record()
}

// missing reports that the line ended where something was due.
func (p *parser) missing(what string) bool {
	if p.fault == "" {
		p.errorf("%s is missing", what)
	}
	return false
}

// record reads [TTL] [class] type RDATA, in either order of the first two, of
// which the first token is read.
func (p *parser) record() bool {
	p.rec.Pos = p.pos()
	ttl, hasTTL, hasClass := p.ttl, false, false
	var typ *typeInfo
	for typ == nil {
		if p.quoted || p.glued {
			return p.errorf("quote where a type was expected")
		}
		if t, ok := p.lookupType(); ok {
			typ = t
			break
		}
		switch c, ok := classByName(p.tok); {
		case ok && !hasClass:
			p.rec.Class, hasClass = c, true
		case !hasTTL && p.tok[0]-'0' <= 9:
			v, err := parseTTL(p.tok)
			if err != nil {
				return p.errorf("TTL: %v", err)
			}
			ttl, hasTTL = v, true
		default:
			return p.errorf("%q is no TTL, class or type", p.tok)
		}
		if !p.next() {
			return p.missing("type")
		}
	}
	if !hasClass {
		p.rec.Class = wire.ClassIN
	}
	p.rdata = p.rdata[:0]
	if !p.readRData(typ) {
		return false
	}
	p.needsTTL = p.needsTTL || !hasTTL && !p.ownTTL
	if hasTTL && !p.dollar {
		p.ttl, p.hasTTL, p.ownTTL = ttl, true, true // RFC 1035: the last stated one holds on
	}
	if !hasTTL && !p.hasTTL {
		if typ.code != wire.TypeSOA {
			return p.errorf("no TTL: neither the record, nor one before it, nor $TTL has one")
		}
		n := len(p.rdata)
		ttl = be32(p.rdata[n-4:])
		p.ttl, p.hasTTL, p.ownTTL = ttl, true, true
		p.h.Warnf(p.rec.Pos, "no TTL: MINIMUM of the SOA record is used")
	}
	p.rec.Owner, p.rec.Type, p.rec.TTL, p.rec.RData = p.owner, typ.code, ttl, p.rdata
	p.err = p.h.Record(&p.rec)
	return true
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// lookupType returns the type that the token names.
func (p *parser) lookupType() (*typeInfo, bool) {
	if bytes.Equal(p.tok, p.lastTok) && p.lastTyp != nil {
		return p.lastTyp, true
	}
	t, ok := typeByName(p.tok)
	if ok {
		p.lastTok, p.lastTyp = p.tok, t
	}
	return t, ok
}

// parseTTL reads a TTL: seconds, or numbers with units as "1h30m" (as BIND).
func parseTTL(tok []byte) (uint32, error) {
	var sum, n uint64
	digits := false
	for _, c := range tok {
		if c-'0' <= 9 {
			n = n*10 + uint64(c-'0')
			digits = true
			if n > math.MaxUint32 {
				return 0, fmt.Errorf("%q is above %d", tok, uint32(math.MaxUint32))
			}
			continue
		}
		unit := uint64(0)
		switch c | 0x20 {
		case 's':
			unit = 1
		case 'm':
			unit = 60
		case 'h':
			unit = 3600
		case 'd':
			unit = 86400
		case 'w':
			unit = 604800
		}
		if unit == 0 || !digits {
			return 0, fmt.Errorf("%q is not a number of seconds", tok)
		}
		sum += n * unit
		n, digits = 0, false
		if sum > math.MaxUint32 {
			return 0, fmt.Errorf("%q is above %d", tok, uint32(math.MaxUint32))
		}
	}
	sum += n
	switch {
	case len(tok) == 0:
		return 0, fmt.Errorf("empty number")
	case sum > math.MaxUint32:
		return 0, fmt.Errorf("%q is above %d", tok, uint32(math.MaxUint32))
	}
	return uint32(sum), nil
}

// classByName returns the class that tok names.
func classByName(tok []byte) (wire.Class, bool) {
	if len(tok) == 2 {
		switch {
		case equalFold(tok, "IN"):
			return wire.ClassIN, true
		case equalFold(tok, "CH"):
			return wire.ClassCH, true
		case equalFold(tok, "HS"):
			return wire.ClassHS, true
		}
	}
	if len(tok) > 5 && equalFold(tok[:5], "CLASS") {
		if n, err := parseUint(tok[5:], math.MaxUint16); err == nil {
			return wire.Class(n), true
		}
	}
	return 0, false
}

// equalFold compares tok with an upper-case word.
func equalFold(tok []byte, word string) bool {
	if len(tok) != len(word) {
		return false
	}
	for i, c := range tok {
		if 'a' <= c && c <= 'z' {
			c -= 0x20
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// parseUint reads a decimal number up to most.
func parseUint(tok []byte, most uint64) (uint64, error) {
	var n uint64
	for _, c := range tok {
		if c-'0' > 9 {
			return 0, fmt.Errorf("%q is not a number", tok)
		}
		d := uint64(c - '0')
		if n > most/10 || d > most-n*10 {
			return 0, fmt.Errorf("%q is above %d", tok, most)
		}
		n = n*10 + d
	}
	if len(tok) == 0 {
		return 0, fmt.Errorf("empty number")
	}
	return n, nil
}
