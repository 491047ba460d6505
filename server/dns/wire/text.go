package wire

import (
	"errors"
	"fmt"
)

// AppendText appends the presentation form of an uncompressed wire name
// (RFC 1035 5.1, RFC 4343 2.1): absolute, dots and specials within labels
// escaped.
func AppendText(dst, name []byte) []byte {
	if len(name) == 0 || name[0] == 0 {
		return append(dst, '.')
	}
	for len(name) > 0 && name[0] != 0 && int(name[0]) < len(name) {
		for _, c := range name[1 : 1+name[0]] {
			switch {
			case c <= ' ' || c > '~':
				dst = append(dst, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
			case c == '.' || c == '\\' || c == '"' || c == '(' || c == ')' || c == ';' || c == '@' || c == '$':
				dst = append(dst, '\\', c)
			default:
				dst = append(dst, c)
			}
		}
		dst = append(dst, '.')
		name = name[1+name[0]:]
	}
	return dst
}

// Text returns AppendText as a string.
func Text(name []byte) string { return string(AppendText(nil, name)) }

// ErrName is matched by every error of AppendName.
var ErrName = errors.New("malformed name")

// AppendName appends the wire form of the name whose presentation form is text.
// A name that does not end in a dot is completed by origin, a wire name; with a
// nil origin it is refused. "@" alone is the origin.
func AppendName(dst []byte, text, origin []byte) ([]byte, error) {
	if len(text) == 1 {
		switch text[0] {
		case '.':
			return append(dst, 0), nil
		case '@':
			if origin == nil {
				return dst, fmt.Errorf("no origin for @: %w", ErrName)
			}
			return append(dst, origin...), nil
		}
	}
	if len(text) == 0 {
		return dst, fmt.Errorf("empty name: %w", ErrName)
	}
	start := len(dst)
	at := start // of the current label's length octet
	dst = append(dst, 0)
	absolute := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		absolute = false
		switch c {
		case '.':
			size := len(dst) - at - 1
			if size == 0 {
				return dst[:start], fmt.Errorf("empty label: %w", ErrName)
			}
			if size > MaxLabel {
				return dst[:start], fmt.Errorf("label of %d octets, at most %d are allowed: %w", size, MaxLabel, ErrName)
			}
			dst[at] = byte(size)
			at = len(dst)
			dst = append(dst, 0)
			absolute = true
			continue
		case '\\':
			v, n := Unescape(text[i:])
			if n == 0 {
				return dst[:start], fmt.Errorf("bad escape: %w", ErrName)
			}
			c = v
			i += n - 1
		}
		dst = append(dst, c)
	}
	if !absolute {
		size := len(dst) - at - 1
		if size > MaxLabel {
			return dst[:start], fmt.Errorf("label of %d octets, at most %d are allowed: %w", size, MaxLabel, ErrName)
		}
		if origin == nil {
			return dst[:start], fmt.Errorf("relative name without an origin: %w", ErrName)
		}
		dst[at] = byte(size)
		dst = append(dst, origin...)
	}
	if size := len(dst) - start; size > MaxName {
		return dst[:start], fmt.Errorf("name of %d octets, at most %d are allowed: %w", size, MaxName, ErrName)
	}
	return dst, nil
}

// Unescape returns the octet that the escape at the start of text ("\X" or
// "\DDD") stands for and the octets it takes, 0 if it is none (RFC 1035 5.1).
func Unescape(text []byte) (c byte, n int) {
	if len(text) < 2 || text[0] != '\\' {
		return 0, 0
	}
	if !digit(text[1]) {
		return text[1], 2
	}
	if len(text) < 4 || !digit(text[2]) || !digit(text[3]) {
		return 0, 0
	}
	v := int(text[1]-'0')*100 + int(text[2]-'0')*10 + int(text[3]-'0')
	if v > 255 {
		return 0, 0
	}
	return byte(v), 4
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
