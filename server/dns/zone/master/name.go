package master

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// nameChar has the characters that a name may hold without an escape: all that
// print, but those that mean something to the scanner, and a few that in a name
// are nearly always a slip (a comma for a dot, a template that was not filled
// in).
var nameChar = func() (c [256]bool) {
	for i := range c {
		c[i] = i > ' ' && i != 0x7f
	}
	for _, no := range `.\"();,&%$@` {
		c[no] = false
	}
	return c
}()

// appendName appends the wire form of the name in tok, completed by origin where
// it is relative.
func appendName(dst, tok, origin []byte) ([]byte, error) {
	if len(tok) == 1 && tok[0] == '@' {
		return append(dst, origin...), nil
	}
	start, at := len(dst), len(dst)
	dst = append(dst, 0)
	for i := 0; i < len(tok); i++ {
		c := tok[i]
		if nameChar[c] {
			dst = append(dst, c)
			continue
		}
		switch c {
		case '.':
			size := len(dst) - at - 1
			if size == 0 {
				if len(tok) == 1 {
					return dst, nil // the root
				}
				return dst[:start], fmt.Errorf("empty label in name %q", tok)
			}
			if size > wire.MaxLabel {
				return dst[:start], labelError(size)
			}
			dst[at] = byte(size)
			at = len(dst)
			dst = append(dst, 0)
		case '\\':
			v, n := wire.Unescape(tok[i:])
			if n == 0 {
				return dst[:start], fmt.Errorf("bad escape in name %q", tok)
			}
			dst = append(dst, v)
			i += n - 1
		case '@': // alone it is the origin, doubled a slip
			if i == 0 {
				return dst[:start], fmt.Errorf("name %q begins with @", tok)
			}
			dst = append(dst, c)
		default:
			return dst[:start], fmt.Errorf("character %q in name %q needs a backslash", c, tok)
		}
	}
	if size := len(dst) - at - 1; size > 0 {
		if size > wire.MaxLabel {
			return dst[:start], labelError(size)
		}
		dst[at] = byte(size)
		dst = append(dst, origin...)
	}
	switch size := len(dst) - start; {
	case len(tok) == 0:
		return dst[:start], fmt.Errorf("empty name")
	case size > wire.MaxName:
		return dst[:start], fmt.Errorf("name of %d octets, at most %d are allowed", size, wire.MaxName)
	}
	return dst, nil
}

func labelError(size int) error {
	return fmt.Errorf("label of %d octets, at most %d are allowed", size, wire.MaxLabel)
}
