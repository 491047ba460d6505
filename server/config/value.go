package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// scalar is a value as it is written, with the environment put in.
type scalar struct {
	text  string
	tag   string // "!!str", "!!int", ... as YAML resolves it
	loose bool   // the environment was put in: tag says nothing, text decides
}

// parse returns what viper is to decode for s: a string, an int or a bool in
// the one form that the decoder accepts. dir is where relative paths start.
func (k *key) parse(s scalar, dir string) (any, *fault) {
	switch k.kind {
	case kindInt, kindSlots:
		return k.parseInt(s)
	case kindLanes:
		if s.text == "auto" {
			return 0, nil
		}
		return k.parseInt(s)
	case kindBool:
		return k.parseBool(s)
	case kindDuration:
		return k.parseDuration(s)
	}
	if s.tag != "!!str" && s.tag != "!!timestamp" {
		f := &fault{fmt.Sprintf("is %s, not text", describe(s)), "write " + k.accepts()}
		switch k.kind {
		case kindText, kindNoText, kindLabel, kindPath, kindFile, kindSocket, kindNoPath, kindGlob:
			f.fix = fmt.Sprintf("write %q", s.text)
		}
		return nil, f
	}
	if f := checkText(s.text); f != nil {
		return nil, f
	}
	switch k.kind {
	case kindText:
		switch n := int64(len(s.text)); {
		case n == 0:
			return nil, &fault{"is empty", "write " + k.accepts()}
		case n > k.max:
			return nil, &fault{fmt.Sprintf("has %d octets", n), "write " + k.accepts()}
		}
		return s.text, nil
	case kindNoText:
		if n := int64(len(s.text)); n > k.max {
			return nil, &fault{fmt.Sprintf("has %d octets", n), "write " + k.accepts()}
		}
		return s.text, nil
	case kindLabel:
		return k.parseLabel(s.text)
	case kindHost:
		return parseHost(s.text)
	case kindPrefix:
		return parsePrefix(s.text)
	case kindNeighbour:
		return parseNeighbour(s.text)
	case kindPath, kindFile, kindSocket, kindNoPath, kindGlob:
		return k.parsePath(s.text, dir)
	case kindAdmin:
		if s.text == "" || s.text == "off" {
			return "", nil
		}
		return parseAddr(s.text, "9153")
	case kindAddr, kindAddrs:
		return parseAddr(s.text, "53")
	case kindServer:
		return parseServer(s.text, "9000")
	case kindWord, kindWords:
		return k.parseWord(s.text)
	case kindDomain:
		name, f := canonicalDomain(s.text)
		if f != nil {
			return nil, f
		}
		return name, nil
	}
	return nil, &fault{fmt.Sprintf("is %s", describe(s)), "write " + k.accepts()}
}

// describe names what s is to YAML.
func describe(s scalar) string {
	switch s.tag {
	case "!!int", "!!float":
		return "the number " + s.text
	case "!!bool":
		return "the truth value " + s.text
	case "!!str", "!!timestamp":
		return fmt.Sprintf("the text %q", s.text)
	}
	return fmt.Sprintf("%q of the type %s", s.text, s.tag)
}

func checkText(s string) *fault {
	if !utf8.ValidString(s) { // only the environment can bring it in
		return &fault{fmt.Sprintf("%q is not UTF-8", s), ""}
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return &fault{fmt.Sprintf("%q has a control character", s), "leave it out"}
	}
	return nil
}

func (k *key) parseInt(s scalar) (any, *fault) {
	if s.tag == "!!str" && !s.loose {
		f := &fault{fmt.Sprintf("is %s, not a number", describe(s)), "write " + k.accepts()}
		if n, err := strconv.ParseInt(s.text, 10, 64); err == nil && k.inRange(n) {
			f.fix = fmt.Sprintf("write %d without quotes", n)
		}
		return nil, f
	}
	var n int64
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: s.text}
	if plain.ShortTag() != "!!int" || plain.Decode(&n) != nil {
		return nil, &fault{fmt.Sprintf("is %s", describe(s)), "write " + k.accepts()}
	}
	if !k.inRange(n) {
		return nil, &fault{fmt.Sprintf("is %d, out of range", n), "write " + k.accepts()}
	}
	if k.kind == kindSlots && n&(n-1) != 0 {
		up := int64(1)
		for up < n {
			up <<= 1
		}
		return nil, &fault{fmt.Sprintf("is %d, not a power of two", n), fmt.Sprintf("write %d or %d", up/2, up)}
	}
	return int(n), nil
}

func (k *key) inRange(n int64) bool { return k.min <= n && n <= k.max }

func (k *key) parseBool(s scalar) (any, *fault) {
	if s.tag == "!!bool" || s.loose {
		switch strings.ToLower(s.text) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	f := &fault{fmt.Sprintf("is %s, not a truth value", describe(s)), "write true or false"}
	switch strings.ToLower(s.text) {
	case "yes", "on", "y", "1":
		f.fix = "write true"
	case "no", "off", "n", "0":
		f.fix = "write false"
	}
	return nil, f
}

func (k *key) parseDuration(s scalar) (any, *fault) {
	if s.tag == "!!int" || s.tag == "!!float" {
		// A decoder would take it for nanoseconds.
		return nil, &fault{fmt.Sprintf("is %s, not a duration", describe(s)), fmt.Sprintf("write %q", s.text+"s")}
	}
	d, err := time.ParseDuration(s.text)
	if err != nil {
		f := &fault{fmt.Sprintf("is %s, not a duration", describe(s)), "write " + k.accepts()}
		if days, ok := strings.CutSuffix(s.text, "d"); ok {
			if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 10_000 {
				f.fix = fmt.Sprintf("write %q, a day has no unit", strconv.Itoa(24*n)+"h")
			}
		} else if _, err := strconv.ParseFloat(s.text, 64); err == nil {
			f.fix = fmt.Sprintf("write %q", s.text+"s")
		}
		return nil, f
	}
	if !k.inRange(int64(d)) {
		return nil, &fault{fmt.Sprintf("is %s, out of range", s.text), "write " + k.accepts()}
	}
	return s.text, nil
}

func (k *key) parseLabel(s string) (any, *fault) {
	ok := s != "" && int64(len(s)) <= k.max
	for _, c := range []byte(s) {
		ok = ok && (c == '-' || c == '_' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return nil, &fault{fmt.Sprintf("is %q", s), "write " + k.accepts()}
	}
	return s, nil
}

func (k *key) parsePath(s, dir string) (any, *fault) {
	if s == "" {
		if k.kind == kindNoPath {
			return "", nil
		}
		return nil, &fault{"is empty", "write " + k.accepts()}
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(dir, s)
	}
	s = filepath.Clean(s)
	if k.kind == kindSocket && len(s) > maxSocketPath {
		return nil, &fault{
			fmt.Sprintf("%q has %d octets", s, len(s)),
			fmt.Sprintf("the path of a Unix socket has at most %d octets", maxSocketPath),
		}
	}
	return s, nil
}

func (k *key) parseWord(s string) (any, *fault) {
	if slices.Contains(k.words, s) {
		return s, nil
	}
	f := &fault{fmt.Sprintf("is %q", s), "write " + oneOf(k.words)}
	if w := nearest(strings.ToLower(s), k.words); w != "" {
		f.fix = fmt.Sprintf("did you mean %q?", w)
	}
	return nil, f
}

// parseAddr checks an address to serve on and returns it in canonical form.
// usual is the port to propose where there is none.
func parseAddr(s, usual string) (any, *fault) {
	ap, f := parseAddrPort(s, usual)
	switch a := ap.Addr(); {
	case f != nil:
		return nil, f
	case ofMany(a):
		return nil, &fault{fmt.Sprintf("%q is not the address of one host", s), "write an address of this host"}
	}
	return ap.String(), nil
}

// parseServer is parseAddr for an address to send to.
func parseServer(s, usual string) (any, *fault) {
	ap, f := parseAddrPort(s, usual)
	if host, port, err := net.SplitHostPort(s); err == nil && (host == "" || host == "*") {
		return nil, &fault{fmt.Sprintf("%q names no address", s), fmt.Sprintf(`write the address of the host that serves, such as "192.0.2.1:%s"`, port)}
	}
	switch a := ap.Addr(); {
	case f != nil:
		return nil, f
	case ofMany(a), a.IsUnspecified():
		return nil, &fault{fmt.Sprintf("%q is not the address of one host", s), "write the address of the host that serves"}
	}
	return ap.String(), nil
}

// ofMany reports whether a is never the address of one host.
func ofMany(a netip.Addr) bool {
	return a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func parseAddrPort(s, usual string) (netip.AddrPort, *fault) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return ap, addrFault(s, usual)
	}
	a := ap.Addr()
	switch {
	case ap.Port() == 0:
		return ap, &fault{fmt.Sprintf("%q has port 0", s), "write a port from 1 to 65535"}
	case a.Is4In6():
		return ap, &fault{fmt.Sprintf("%q is an IPv4 address in IPv6 form", s), fmt.Sprintf("write %q", netip.AddrPortFrom(a.Unmap(), ap.Port()))}
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return ap, &fault{
			fmt.Sprintf("%q is link-local and names no interface", s),
			fmt.Sprintf("write %q", netip.AddrPortFrom(a.WithZone("eth0"), ap.Port())),
		}
	}
	return ap, nil
}

// parseHost checks an address of this host without a port and returns it in
// canonical form.
func parseHost(s string) (any, *fault) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return nil, &fault{fmt.Sprintf("%q is not an IP address", s), `write an address without a port, such as "192.0.2.1" or "2001:db8::1"`}
	case a.Is4In6():
		return nil, &fault{fmt.Sprintf("%q is an IPv4 address in IPv6 form", s), fmt.Sprintf("write %q", a.Unmap())}
	case ofMany(a) || a.IsUnspecified():
		return nil, &fault{fmt.Sprintf("%q is not the address of one host", s), "write an address of this host"}
	}
	return a.String(), nil
}

// addrFault says why s is not an address with a port. Its order goes from what
// is nearly right to what is not.
func addrFault(s, usual string) *fault {
	right := fmt.Sprintf(`write an address with its port, such as "127.0.0.1:%s" or "[::1]:%s"`, usual, usual)
	write := func(host, port string) string { return fmt.Sprintf("write %q", net.JoinHostPort(host, port)) }

	if s == "" {
		return &fault{"is empty", right}
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if a, err := netip.ParseAddr(s[:i]); err == nil && a.Is6() && isPort(s[i+1:]) {
			return &fault{fmt.Sprintf("%q is an IPv6 address without brackets", s), write(s[:i], s[i+1:])}
		}
	}
	if bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"); bare != "" {
		if _, err := netip.ParseAddr(bare); err == nil {
			return &fault{fmt.Sprintf("%q has no port", s), write(bare, usual)}
		}
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return &fault{fmt.Sprintf("%q is not an address with a port", s), right}
	}
	if host == "" || host == "*" {
		return &fault{
			fmt.Sprintf("%q names no address", s),
			fmt.Sprintf(`write "0.0.0.0:%s" for every IPv4 address and "[::]:%s" for every IPv6 address`, port, port),
		}
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if strings.Trim(host, "0123456789.") == "" || strings.ContainsAny(host, ":/") {
			return &fault{fmt.Sprintf("%q has the bad address %q", s, host), right}
		}
		return &fault{fmt.Sprintf("%q has the host name %q", s, host), "write an IP address: a name may change its address"}
	}
	if isPort(port) {
		return &fault{fmt.Sprintf("%q is an IPv4 address in brackets", s), write(host, port)}
	}
	return &fault{fmt.Sprintf("%q has the bad port %q", s, port), "write a port from 1 to 65535"}
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
