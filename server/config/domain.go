package config

import (
	"fmt"
	"strings"
)

// Limits of RFC 1035 section 2.3.4, in octets.
const (
	maxLabel  = 63
	maxDomain = 255 // in wire form
)

// canonicalDomain returns s, a domain name in the presentation form of RFC
// 1035 section 5.1, absolute, in lower case (RFC 4343) and with as few escapes
// as its text needs, so that equal names are equal strings.
func canonicalDomain(s string) (string, *fault) {
	if s == "" {
		return "", &fault{"is empty", `write a domain name, "." for the root`}
	}
	if s == "." {
		return s, nil
	}
	var b strings.Builder
	wire, label := 1, 0 // the root label is 1 octet
	for i := 0; i < len(s); {
		if s[i] == '.' {
			if label == 0 {
				return "", &fault{fmt.Sprintf("%q has an empty label", s), "put a label between the dots"}
			}
			b.WriteByte('.')
			label = 0
			i++
			continue
		}
		c, n := octet(s[i:])
		switch {
		case n == 0:
			return "", &fault{fmt.Sprintf("%q has a broken escape", s), `write \DDD with DDD from 000 to 255, or \ and the character`}
		case n == 1 && c >= 0x80:
			return "", &fault{fmt.Sprintf("%q is not ASCII", s), "write its A-labels, such as xn--bcher-kva.example"}
		case n == 1 && (c <= ' ' || c == 0x7f):
			return "", &fault{fmt.Sprintf("%q has a space", s), `write \032 if it belongs to the name`}
		}
		if label == 0 {
			wire++
		}
		label++
		wire++
		if label > maxLabel {
			return "", &fault{fmt.Sprintf("%q has a label of more than %d octets", s, maxLabel), "shorten it"}
		}
		if wire > maxDomain {
			return "", &fault{fmt.Sprintf("%q is longer than %d octets", s, maxDomain), "shorten it"}
		}
		writeOctet(&b, c)
		i += n
	}
	if label > 0 {
		b.WriteByte('.')
	}
	return b.String(), nil
}

// octet decodes the first octet of s, which is not empty, and returns it with
// the number of characters it took: 0 if it is a broken escape.
func octet(s string) (c byte, n int) {
	if s[0] != '\\' {
		return s[0], 1
	}
	digit := func(i int) (int, bool) {
		return int(s[i] - '0'), '0' <= s[i] && s[i] <= '9'
	}
	if len(s) < 2 {
		return 0, 0
	}
	if _, ok := digit(1); !ok {
		if s[1] <= ' ' || s[1] >= 0x7f {
			return 0, 0
		}
		return s[1], 2
	}
	if len(s) < 4 {
		return 0, 0
	}
	v := 0
	for i := 1; i <= 3; i++ {
		d, ok := digit(i)
		if !ok {
			return 0, 0
		}
		v = 10*v + d
	}
	if v > 255 {
		return 0, 0
	}
	return byte(v), 4
}

func writeOctet(b *strings.Builder, c byte) {
	switch {
	case 'A' <= c && c <= 'Z':
		b.WriteByte(c + 'a' - 'A')
	case strings.IndexByte(`."\;()@$`, c) >= 0:
		b.WriteByte('\\')
		b.WriteByte(c)
	case c <= ' ' || c >= 0x7f:
		fmt.Fprintf(b, `\%03d`, c)
	default:
		b.WriteByte(c)
	}
}
