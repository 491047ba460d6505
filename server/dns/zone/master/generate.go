package master

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// maxGenerated bounds what one $GENERATE can make.
const maxGenerated = 1 << 24

// generate reads
//
//	$GENERATE start-stop[/step] owner [TTL] [class] type RDATA
//
// and the records that it stands for: each "$" in owner and RDATA becomes the
// number, "${offset[,width[,base]]}" the number plus offset, padded with zeros
// to width, in base d, o, x, X, or, as nibbles in reverse with dots between
// them, n or N; "\$" and "$$" are a dollar sign.
func (p *parser) generate() bool {
	if !p.next() {
		return p.missing("range")
	}
	start, stop, step, err := parseRange(p.tok)
	if err != nil {
		return p.errorf("$GENERATE: %v", err)
	}
	if (stop-start)/step >= maxGenerated {
		return p.errorf("$GENERATE: more than %d records", maxGenerated)
	}
	if !p.next() {
		return p.missing("owner")
	}
	// The rest of the line is a record once the numbers are in.
	if p.quoted || p.glued {
		return p.errorf("$GENERATE: quote in an owner name")
	}
	from, to, line := p.scanner.pos-len(p.tok), p.scanner.pos, p.line
	for p.next() {
		to = p.scanner.pos
	}
	if p.fault != "" {
		return false
	}
	template := p.data[from:to]
	sub := *p
	text := make([]byte, 0, 2*len(template))
	for n := start; n <= stop; n += step {
		if text, err = expand(text[:0], template, n); err != nil {
			return p.errorf("$GENERATE: %v", err)
		}
		sub.scanner = scanner{data: text, line: line}
		if !sub.logicalLine() {
			if sub.fault != "" {
				sub.errorf("$GENERATE: %s", sub.fault)
			}
			return false
		}
		if sub.err != nil {
			break
		}
	}
	p.owner, p.rdata, p.ttl, p.hasTTL, p.err = sub.owner, sub.rdata, sub.ttl, sub.hasTTL, sub.err
	p.lastTok, p.lastTyp = nil, nil
	return true
}

// parseRange reads start-stop[/step].
func parseRange(tok []byte) (start, stop, step uint64, err error) {
	step = 1
	span, rest, ok := bytes.Cut(tok, []byte("/"))
	if ok {
		if step, err = parseUint(rest, math.MaxInt32); err != nil || step == 0 {
			return 0, 0, 0, fmt.Errorf("%q is no step", rest)
		}
	}
	first, last, ok := bytes.Cut(span, []byte("-"))
	if !ok {
		return 0, 0, 0, fmt.Errorf("%q is not start-stop[/step]", tok)
	}
	if start, err = parseUint(first, math.MaxInt32); err != nil {
		return 0, 0, 0, err
	}
	if stop, err = parseUint(last, math.MaxInt32); err != nil {
		return 0, 0, 0, err
	}
	if stop < start {
		return 0, 0, 0, fmt.Errorf("range %q runs backwards", tok)
	}
	return start, stop, step, nil
}

// expand appends template with the number n in it.
func expand(dst, template []byte, n uint64) ([]byte, error) {
	for i := 0; i < len(template); i++ {
		c := template[i]
		switch {
		case c == '\\' && i+1 < len(template):
			if template[i+1] != '$' {
				dst = append(dst, c)
			} else {
				dst = append(dst, '\\') // "\$" is a dollar sign in a name, too
			}
			i++
			dst = append(dst, template[i])
		case c != '$':
			dst = append(dst, c)
		case i+1 < len(template) && template[i+1] == '$':
			i++
			dst = append(dst, '\\', '$')
		case i+1 < len(template) && template[i+1] == '{':
			end := bytes.IndexByte(template[i:], '}')
			if end < 0 {
				return dst, fmt.Errorf("modifier in %q is not closed", template)
			}
			var err error
			if dst, err = appendModified(dst, template[i+2:i+end], n); err != nil {
				return dst, err
			}
			i += end
		default:
			dst = strconv.AppendUint(dst, n, 10)
		}
	}
	return dst, nil
}

// appendModified appends n as modifier, offset[,width[,base]], says.
func appendModified(dst, modifier []byte, n uint64) ([]byte, error) {
	bad := func() ([]byte, error) { return dst, fmt.Errorf("bad modifier ${%s}", modifier) }
	parts := bytes.Split(modifier, []byte(","))
	if len(parts) > 3 {
		return bad()
	}
	offset, err := strconv.ParseInt(string(parts[0]), 10, 32)
	if err != nil {
		return bad()
	}
	v := int64(n) + offset
	if v < math.MinInt32 || v > math.MaxInt32 {
		return dst, fmt.Errorf("${%s} makes %d of %d, which is out of range", modifier, v, n)
	}
	bits := uint64(uint32(v)) // a negative number as 32 bits, as in BIND
	width, base := uint64(0), byte('d')
	if len(parts) > 1 {
		if width, err = parseUint(parts[1], 255); err != nil {
			return bad()
		}
	}
	if len(parts) > 2 {
		if len(parts[2]) != 1 {
			return bad()
		}
		base = parts[2][0]
	}
	var digits []byte
	switch base {
	case 'd':
		digits = strconv.AppendInt(nil, v, 10)
	case 'o':
		digits = strconv.AppendUint(nil, bits, 8)
	case 'x':
		digits = strconv.AppendUint(nil, bits, 16)
	case 'X':
		digits = bytes.ToUpper(strconv.AppendUint(nil, bits, 16))
	case 'n', 'N':
		return appendNibbles(dst, bits, int(width), base), nil
	default:
		return bad()
	}
	for i := len(digits); i < int(width); i++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...), nil
}

// appendNibbles appends the hexadecimal digits of v, the lowest first, with dots
// between them, in at least width characters.
func appendNibbles(dst []byte, v uint64, width int, base byte) []byte {
	const lower, upper = "0123456789abcdef", "0123456789ABCDEF"
	set := lower
	if base == 'N' {
		set = upper
	}
	for {
		dst = append(dst, set[v&15])
		v >>= 4
		width--
		if width > 0 {
			dst = append(dst, '.')
			width--
		} else if v > 0 {
			dst = append(dst, '.')
		}
		if v == 0 && width <= 0 {
			return dst
		}
	}
}
