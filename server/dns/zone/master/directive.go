package master

import (
	"path/filepath"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// directive reads a line that begins with '$'. A bad one ends the reading.
func (p *parser) directive() bool {
	ok := false
	switch {
	case !p.next():
	case p.quoted || p.glued:
		p.errorf("quote in a directive")
	case equalFold(p.tok, "$ORIGIN"):
		ok = p.setOrigin()
	case equalFold(p.tok, "$TTL"):
		ok = p.setTTL()
	case equalFold(p.tok, "$INCLUDE"):
		ok = p.include()
	case equalFold(p.tok, "$GENERATE"):
		ok = p.generate()
	default:
		p.errorf("unknown directive %q", p.tok)
	}
	p.stop = !ok
	return ok
}

// atEnd reports whether nothing is left on the line.
func (p *parser) atEnd() bool {
	if p.next() {
		return p.errorf("unexpected %q at the end", p.tok)
	}
	return p.fault == ""
}

func (p *parser) setOrigin() bool {
	if !p.next() {
		return p.missing("name")
	}
	origin, err := appendName(nil, p.tok, p.origin)
	if err != nil {
		return p.errorf("$ORIGIN: %v", err)
	}
	if !p.atEnd() {
		return false
	}
	p.origin, p.moved = origin, true
	return true
}

func (p *parser) setTTL() bool {
	if !p.next() {
		return p.missing("TTL")
	}
	ttl, err := parseTTL(p.tok)
	if err != nil {
		return p.errorf("$TTL: %v", err)
	}
	if !p.atEnd() {
		return false
	}
	p.ttl, p.hasTTL, p.dollar = ttl, true, true
	return true
}

// include reads another file in place. Origin, owner and TTL are afterwards what
// they were before (RFC 1035 5.1).
func (p *parser) include() bool {
	if !p.next() {
		return p.missing("file name")
	}
	path, ok := p.text(p.tok)
	if !ok {
		return false
	}
	name, origin, moved := string(path), p.origin, false
	if p.next() {
		moved = true
		var err error
		if origin, err = appendName(nil, p.tok, p.origin); err != nil {
			return p.errorf("$INCLUDE: origin: %v", err)
		}
		if !p.atEnd() {
			return false
		}
	}
	if p.fault != "" {
		return false
	}
	switch {
	case p.h.Open == nil:
		return p.errorf("$INCLUDE is not allowed here")
	case p.level == maxDepth:
		return p.errorf("$INCLUDE: more than %d files deep", maxDepth)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(p.path), name)
	}
	data, file, err := p.h.Open(name)
	if err != nil {
		return p.errorf("$INCLUDE: %v", err)
	}
	sub := parser{
		scanner: scanner{data: data, line: 1}, h: p.h, file: file, path: name, level: p.level + 1,
		origin: origin, owner: append([]byte(nil), p.owner...), moved: moved,
		ttl: p.ttl, hasTTL: p.hasTTL, dollar: p.dollar, rdata: p.rdata, cut: p.cut,
	}
	sub.parse()
	p.rdata, p.err = sub.rdata, sub.err
	return !sub.stop
}

// text returns tok with its escapes resolved, in the parser's scratch memory.
func (p *parser) text(tok []byte) ([]byte, bool) {
	p.rdata = p.rdata[:0]
	for i := 0; i < len(tok); i++ {
		c := tok[i]
		if c == '\\' {
			v, n := wire.Unescape(tok[i:])
			if n == 0 {
				return nil, p.errorf("bad escape in %q", tok)
			}
			c = v
			i += n - 1
		}
		p.rdata = append(p.rdata, c)
	}
	return p.rdata, true
}
