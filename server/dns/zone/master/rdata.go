package master

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// readRData reads the RDATA of a record of type t into p.rdata, to the end of
// the line. It reports what is wrong.
func (p *parser) readRData(t *typeInfo) bool {
	if t.meta {
		return p.errorf("%s is a query or meta type: it cannot stand in a zone", t.name)
	}
	more := p.next()
	if p.fault != "" {
		return false
	}
	if more && !p.quoted && len(p.tok) == 2 && p.tok[0] == '\\' && p.tok[1] == '#' {
		return p.unknown(t)
	}
	if t.fields == nil {
		if t.name == "" {
			return p.errorf(`data of TYPE%d can be given as \# only (RFC 3597 5)`, t.code)
		}
		return p.errorf(`data of type %s can be given as \# only (RFC 3597 5)`, t.name)
	}
	for _, f := range t.fields {
		var err error
		if more, err = p.readField(f, more); err != nil {
			return p.errorf("%s: %v", t.name, err)
		}
		if p.fault != "" {
			return false
		}
	}
	if more {
		return p.errorf("%s: unexpected %q at the end", t.name, p.tok)
	}
	if len(p.rdata) > wire.MaxMessage {
		return p.errorf("%s: RDATA of %d octets, at most %d are possible", t.name, len(p.rdata), wire.MaxMessage)
	}
	return true
}

// errMissing is for a field that the line has no token for.
var errMissing = errors.New("data is missing")

// readField reads one field, whose first token is in p.tok if more is set, and
// reports whether there is a token behind it.
func (p *parser) readField(f field, more bool) (bool, error) {
	if !more {
		switch f {
		case fTextOpt, fBase64Opt, fTypes, fAPL, fSVCB, fNXT:
			return false, nil
		}
		return false, errMissing
	}
	if p.glued && f != fSVCB {
		return false, fmt.Errorf("quote inside %q", p.tok)
	}
	switch f {
	case fText, fTextOpt, fTexts, fLong, fTarget, fTag, fSVCB:
	default:
		if p.quoted {
			return false, fmt.Errorf("quoted string %q where none is allowed", p.tok)
		}
	}
	var err error
	switch f {
	case fA:
		err = p.readA()
	case fName:
		p.rdata, err = appendName(p.rdata, p.tok, p.origin)
	case fU16:
		err = p.readUint(2)
	case fU8:
		err = p.readUint(1)
	case fU32:
		err = p.readUint(4)
	case fU64:
		err = p.readUint(8)
	case fAAAA:
		err = p.readAAAA()
	case fText, fTextOpt:
		err = p.readText()
	case fTexts:
		return p.readTexts()
	case fLong, fTarget:
		if f == fTarget && len(p.tok) == 0 {
			return false, errors.New("empty target")
		}
		p.rdata, err = appendText(p.rdata, p.tok)
	case fTag:
		err = p.readTag()
	case fPeriod:
		var v uint32
		v, err = parseTTL(p.tok)
		p.rdata = binary.BigEndian.AppendUint32(p.rdata, v)
	case fTime:
		err = p.readTime()
	case fHex:
		return p.readHex()
	case fBase64, fBase64Opt:
		return p.readBase64()
	case fSalt:
		err = p.readSalt()
	case fHash:
		err = p.readHash()
	case fType:
		t, ok := typeByName(p.tok)
		if !ok {
			return false, fmt.Errorf("%q is no type", p.tok)
		}
		p.rdata = binary.BigEndian.AppendUint16(p.rdata, uint16(t.code))
	case fTypes:
		return p.readTypes()
	case fAlgorithm:
		err = p.readMnemonic(algorithms, 1)
	case fCertType:
		err = p.readMnemonic(certTypes, 2)
	case fScheme:
		err = p.readMnemonic(schemes, 1)
	case fGroups64:
		err = p.readGroups(4, 4, ':')
	case fEUI48:
		err = p.readGroups(6, 2, '-')
	case fEUI64:
		err = p.readGroups(8, 2, '-')
	default:
		return p.readSpecial(f)
	}
	if err != nil {
		return false, err
	}
	return p.next(), nil
}

// readSpecial reads the fields that only one type has.
func (p *parser) readSpecial(f field) (bool, error) {
	switch f {
	case fGateway:
		return p.readGateway()
	case fRelay:
		return p.readRelay()
	case fHIP:
		return p.readHIP()
	case fLOC:
		return p.readLOC()
	case fAPL:
		return p.readAPL()
	case fWKS:
		return p.readWKS()
	case fNSAP:
		return p.readNSAP()
	case fATMA:
		return p.readATMA()
	case fA6:
		return p.readA6()
	case fNXT:
		return p.readNXT()
	case fSVCB:
		return p.readSVCB()
	}
	return false, fmt.Errorf("no reader for field %d", f)
}

// readUint reads a number of octets octets.
func (p *parser) readUint(octets int) error {
	n, err := parseUint(p.tok, math.MaxUint64>>(64-8*octets))
	if err != nil {
		return err
	}
	p.appendUint(n, octets)
	return nil
}

func (p *parser) appendUint(n uint64, octets int) {
	for i := octets - 1; i >= 0; i-- {
		p.rdata = append(p.rdata, byte(n>>(8*i)))
	}
}

// readMnemonic reads a number of octets octets, or a word that stands for it.
func (p *parser) readMnemonic(words map[string]uint64, octets int) error {
	if len(p.tok) > 0 && p.tok[0]-'0' <= 9 {
		return p.readUint(octets)
	}
	n, ok := words[strings.ToUpper(string(p.tok))]
	if !ok {
		return fmt.Errorf("%q is neither a number nor a known mnemonic", p.tok)
	}
	p.appendUint(n, octets)
	return nil
}

// readA reads an IPv4 address in its one allowed form: four decimal numbers.
func (p *parser) readA() error {
	a, ok := parseIPv4(p.tok)
	if !ok {
		return fmt.Errorf("%q is no IPv4 address", p.tok)
	}
	p.rdata = append(p.rdata, a[:]...)
	return nil
}

func parseIPv4(tok []byte) (a [4]byte, ok bool) {
	n, digits, at := 0, 0, 0
	for _, c := range tok {
		switch {
		case c-'0' <= 9:
			n = n*10 + int(c-'0')
			if digits++; n > 255 || digits > 3 {
				return a, false
			}
		case c == '.' && digits > 0 && at < 3:
			a[at] = byte(n)
			at++
			n, digits = 0, 0
		default:
			return a, false
		}
	}
	a[at] = byte(n)
	return a, at == 3 && digits > 0
}

func (p *parser) readAAAA() error {
	a, ok := parseIPv6(p.tok)
	if !ok {
		return fmt.Errorf("%q is no IPv6 address", p.tok)
	}
	p.rdata = append(p.rdata, a[:]...)
	return nil
}

// parseIPv6 reads an IPv6 address. The loop is for the plain form, which netip,
// wanting a string, would allocate for.
func parseIPv6(tok []byte) (a [16]byte, ok bool) {
	group, digits, at, gap := 0, 0, 0, -1
	for i, c := range tok {
		h := unhex[c]
		switch {
		case h < 16:
			group = group<<4 | int(h)
			if digits++; digits > 4 || at == 16 {
				return a, false
			}
		case c == ':':
			if digits > 0 {
				binary.BigEndian.PutUint16(a[at:], uint16(group))
				at += 2
				group, digits = 0, 0
			} else if i > 0 && (gap >= 0 || tok[i-1] != ':') {
				return a, false
			}
			if i > 0 && tok[i-1] == ':' {
				gap = at
			} else if i == 0 && (len(tok) < 2 || tok[1] != ':') || i == len(tok)-1 || at == 16 {
				return a, false
			}
		default: // an IPv4 address at the end, or nothing that belongs here
			addr, err := netip.ParseAddr(string(tok))
			if err != nil || !addr.Is6() || addr.Zone() != "" {
				return a, false
			}
			return addr.As16(), true
		}
	}
	if digits > 0 {
		binary.BigEndian.PutUint16(a[at:], uint16(group))
		at += 2
	}
	if gap < 0 {
		return a, at == 16
	}
	if at == 16 {
		return a, false
	}
	n := copy(a[16-(at-gap):], a[gap:at])
	clear(a[gap : 16-n])
	return a, true
}

// appendText appends what tok stands for.
func appendText(dst, tok []byte) ([]byte, error) {
	for i := 0; i < len(tok); i++ {
		c := tok[i]
		if c == '\\' {
			v, n := wire.Unescape(tok[i:])
			if n == 0 {
				return dst, fmt.Errorf("bad escape in %q", tok)
			}
			c = v
			i += n - 1
		}
		dst = append(dst, c)
	}
	return dst, nil
}

// readText reads a character-string.
func (p *parser) readText() error {
	at := len(p.rdata)
	p.rdata = append(p.rdata, 0)
	var err error
	if p.rdata, err = appendText(p.rdata, p.tok); err != nil {
		return err
	}
	size := len(p.rdata) - at - 1
	if size > 255 {
		return fmt.Errorf("string of %d octets, at most 255 are allowed", size)
	}
	p.rdata[at] = byte(size)
	return nil
}

// readTexts reads character-strings to the end of the line.
func (p *parser) readTexts() (bool, error) {
	for {
		if p.glued {
			return false, fmt.Errorf("quote inside %q", p.tok)
		}
		if err := p.readText(); err != nil {
			return false, err
		}
		if !p.next() {
			return false, nil
		}
	}
}

// readTag reads the property tag of CAA.
func (p *parser) readTag() error {
	at := len(p.rdata)
	if err := p.readText(); err != nil {
		return err
	}
	for _, c := range p.rdata[at+1:] {
		if c = wire.Lower(c); c-'0' > 9 && (c < 'a' || c > 'z') {
			return fmt.Errorf("character %q in a property tag", c)
		}
	}
	return nil
}

// readTime reads a time of RRSIG: seconds since 1970 modulo 2^32, or as a date.
func (p *parser) readTime() error {
	if len(p.tok) != len("20060102150405") {
		return p.readUint(4)
	}
	t, err := time.Parse("20060102150405", string(p.tok))
	if err != nil {
		return fmt.Errorf("%q is no time", p.tok)
	}
	if t.Year() < 1970 || t.Year() > 2225 { // more than one wrap of 32 bits ahead is a slip
		return fmt.Errorf("%q is out of range", p.tok)
	}
	p.appendUint(uint64(uint32(t.Unix())), 4)
	return nil
}

// unhex has the values of hexadecimal digits; 0xff: none.
var unhex = func() (t [256]uint8) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range uint8(10) {
		t['0'+i] = i
	}
	for i := range uint8(6) {
		t['a'+i], t['A'+i] = 10+i, 10+i
	}
	return t
}()

// appendHex appends the octets that the pairs of digits in tok stand for.
func appendHex(dst, tok []byte) ([]byte, error) {
	if len(tok)%2 != 0 {
		return dst, fmt.Errorf("odd number of hexadecimal digits in %q", tok)
	}
	for i := 0; i < len(tok); i += 2 {
		hi, lo := unhex[tok[i]], unhex[tok[i+1]]
		if hi|lo > 15 {
			return dst, fmt.Errorf("%q is not hexadecimal", tok)
		}
		dst = append(dst, hi<<4|lo)
	}
	return dst, nil
}

// readHex reads hexadecimal digits to the end of the line, in words of whole
// octets.
func (p *parser) readHex() (bool, error) {
	for {
		var err error
		if p.rdata, err = appendHex(p.rdata, p.tok); err != nil {
			return false, err
		}
		if !p.next() {
			return false, nil
		}
	}
}

// readBase64 reads base64 to the end of the line, in words of whole groups of
// four.
func (p *parser) readBase64() (bool, error) {
	for {
		if n := len(p.tok); n%4 != 0 {
			return false, fmt.Errorf("%q is not a whole number of base64 groups", p.tok)
		}
		size := len(p.rdata)
		p.rdata = append(p.rdata, make([]byte, base64.StdEncoding.DecodedLen(len(p.tok)))...)
		n, err := base64.StdEncoding.Decode(p.rdata[size:], p.tok)
		if err != nil {
			return false, fmt.Errorf("%q is not base64", p.tok)
		}
		p.rdata = p.rdata[:size+n]
		last := p.tok[len(p.tok)-1]
		if !p.next() {
			return false, nil
		}
		if last == '=' {
			return false, fmt.Errorf("base64 goes on behind its padding with %q", p.tok)
		}
	}
}

func (p *parser) readSalt() error {
	if len(p.tok) == 1 && p.tok[0] == '-' {
		p.rdata = append(p.rdata, 0)
		return nil
	}
	if len(p.tok) > 2*255 {
		return fmt.Errorf("salt of %d octets, at most 255 are allowed", len(p.tok)/2)
	}
	p.rdata = append(p.rdata, byte(len(p.tok)/2))
	var err error
	p.rdata, err = appendHex(p.rdata, p.tok)
	return err
}

var base32Hex = base32.HexEncoding.WithPadding(base32.NoPadding)

func (p *parser) readHash() error {
	size := base32Hex.DecodedLen(len(p.tok))
	if size == 0 || size > 255 {
		return fmt.Errorf("hash of %d octets", size)
	}
	at := len(p.rdata)
	p.rdata = append(p.rdata, byte(size))
	p.rdata = append(p.rdata, make([]byte, size)...)
	upper := []byte(strings.ToUpper(string(p.tok)))
	if n, err := base32Hex.Decode(p.rdata[at+1:], upper); err != nil || n != size || base32Hex.EncodedLen(n) != len(p.tok) {
		return fmt.Errorf("%q is not base32 with the extended hex alphabet", p.tok)
	}
	return nil
}

// readGroups reads n groups of exactly digits hexadecimal digits (at most, where
// they are 4) with sep between them.
func (p *parser) readGroups(n, digits int, sep byte) error {
	rest := p.tok
	for i := range n {
		size := 0
		v := uint64(0)
		for size < len(rest) && size < digits && unhex[rest[size]] < 16 {
			v = v<<4 | uint64(unhex[rest[size]])
			size++
		}
		if size == 0 || digits == 2 && size != 2 {
			return fmt.Errorf("%q is not %d groups of %d hexadecimal digits", p.tok, n, digits)
		}
		rest = rest[size:]
		if i < n-1 {
			if len(rest) == 0 || rest[0] != sep {
				return fmt.Errorf("%q is not %d groups of %d hexadecimal digits", p.tok, n, digits)
			}
			rest = rest[1:]
		}
		p.appendUint(v, digits/2)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%q is not %d groups of %d hexadecimal digits", p.tok, n, digits)
	}
	return nil
}

// readTypes reads type mnemonics to the end of the line into a bitmap.
func (p *parser) readTypes() (bool, error) {
	var set [65536 / 64]uint64
	for {
		t, ok := typeByName(p.tok)
		if !ok || p.quoted {
			return false, fmt.Errorf("%q is no type", p.tok)
		}
		set[t.code/64] |= 1 << (63 - t.code%64)
		if !p.next() {
			break
		}
	}
	for window := range 256 {
		var bits [32]byte
		used := 0
		for i := range 4 {
			binary.BigEndian.PutUint64(bits[8*i:], set[window*4+i])
		}
		for i, b := range bits {
			if b != 0 {
				used = i + 1
			}
		}
		if used > 0 {
			p.rdata = append(append(p.rdata, byte(window), byte(used)), bits[:used]...)
		}
	}
	return false, nil
}
