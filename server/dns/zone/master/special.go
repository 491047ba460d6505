package master

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// need moves to the next token, which must be there and not quoted.
func (p *parser) need(what string) error {
	if !p.next() || p.quoted || p.glued {
		return fmt.Errorf("%s is missing", what)
	}
	return nil
}

// readGateway reads gateway type, algorithm and gateway of IPSECKEY.
func (p *parser) readGateway() (bool, error) {
	kind, err := parseUint(p.tok, 3)
	if err != nil {
		return false, fmt.Errorf("gateway type: %w", err)
	}
	p.rdata = append(p.rdata, byte(kind))
	if err := p.need("algorithm"); err != nil {
		return false, err
	}
	if err := p.readUint(1); err != nil {
		return false, fmt.Errorf("algorithm: %w", err)
	}
	if err := p.need("gateway"); err != nil {
		return false, err
	}
	return p.readHost(kind)
}

// readRelay reads discovery bit, type and relay of AMTRELAY.
func (p *parser) readRelay() (bool, error) {
	discovery, err := parseUint(p.tok, 1)
	if err != nil {
		return false, fmt.Errorf("discovery optional: %w", err)
	}
	if err := p.need("relay type"); err != nil {
		return false, err
	}
	kind, err := parseUint(p.tok, 3)
	if err != nil {
		return false, fmt.Errorf("relay type: %w", err)
	}
	p.rdata = append(p.rdata, byte(discovery<<7|kind))
	if kind == 0 { // RFC 8777 4.3.1: "." may be left out
		if !p.next() {
			return false, nil
		}
		return p.readHost(kind)
	}
	if err := p.need("relay"); err != nil {
		return false, err
	}
	return p.readHost(kind)
}

// readHost reads what kind says: 0 nothing, written ".", 1 IPv4, 2 IPv6, 3 name.
func (p *parser) readHost(kind uint64) (bool, error) {
	var err error
	switch kind {
	case 0:
		if len(p.tok) != 1 || p.tok[0] != '.' {
			err = fmt.Errorf("%q where none was announced", p.tok)
		}
	case 1:
		err = p.readA()
	case 2:
		err = p.readAAAA()
	case 3:
		p.rdata, err = appendName(p.rdata, p.tok, p.origin)
	}
	if err != nil {
		return false, err
	}
	return p.next(), nil
}

// readHIP reads the RDATA of HIP: algorithm, HIT, key, rendezvous servers.
func (p *parser) readHIP() (bool, error) {
	alg, err := parseUint(p.tok, 255)
	if err != nil {
		return false, fmt.Errorf("algorithm: %w", err)
	}
	p.rdata = append(p.rdata, 0, byte(alg), 0, 0)
	if err := p.need("HIT"); err != nil {
		return false, err
	}
	if p.rdata, err = appendHex(p.rdata, p.tok); err != nil {
		return false, err
	}
	hit := len(p.rdata) - 4
	if hit == 0 || hit > 255 {
		return false, fmt.Errorf("HIT of %d octets", hit)
	}
	p.rdata[0] = byte(hit)
	if err := p.need("public key"); err != nil {
		return false, err
	}
	key, err := base64.StdEncoding.DecodeString(string(p.tok))
	if err != nil || len(key) == 0 || len(key) > math.MaxUint16 {
		return false, fmt.Errorf("%q is no base64 key", p.tok)
	}
	binary.BigEndian.PutUint16(p.rdata[2:], uint16(len(key)))
	p.rdata = append(p.rdata, key...)
	for p.next() {
		if p.quoted || p.glued {
			return false, fmt.Errorf("quote in a rendezvous server")
		}
		if p.rdata, err = appendName(p.rdata, p.tok, p.origin); err != nil {
			return false, err
		}
	}
	return false, nil
}

// readAPL reads address prefixes to the end of the line.
func (p *parser) readAPL() (bool, error) {
	for {
		if p.quoted || p.glued {
			return false, fmt.Errorf("quote in an address prefix")
		}
		if err := p.readPrefix(p.tok); err != nil {
			return false, fmt.Errorf("address prefix %q: %w", p.tok, err)
		}
		if !p.next() {
			return false, nil
		}
	}
}

// readPrefix reads [!]family:address/prefix (RFC 3123 5).
func (p *parser) readPrefix(tok []byte) error {
	var not byte
	if len(tok) > 0 && tok[0] == '!' {
		not, tok = 0x80, tok[1:]
	}
	if len(tok) < 2 || tok[1] != ':' {
		return fmt.Errorf("no address family")
	}
	slash := len(tok) - 1
	for slash > 1 && tok[slash] != '/' {
		slash--
	}
	if slash == 1 {
		return fmt.Errorf("no prefix length")
	}
	var addr []byte
	switch text := tok[2:slash]; tok[0] {
	case '1':
		a, ok := parseIPv4(text)
		if !ok {
			return fmt.Errorf("%q is no IPv4 address", text)
		}
		addr = a[:]
	case '2':
		a, ok := parseIPv6(text)
		if !ok {
			return fmt.Errorf("%q is no IPv6 address", text)
		}
		addr = a[:]
	default:
		return fmt.Errorf("unknown address family %q", tok[0])
	}
	prefix, err := parseUint(tok[slash+1:], uint64(8*len(addr)))
	if err != nil {
		return fmt.Errorf("prefix length: %w", err)
	}
	for len(addr) > 0 && addr[len(addr)-1] == 0 { // RFC 3123 4
		addr = addr[:len(addr)-1]
	}
	p.rdata = append(p.rdata, 0, tok[0]-'0', byte(prefix), not|byte(len(addr)))
	p.rdata = append(p.rdata, addr...)
	return nil
}

// services are the names of RFC 1035 3.4.2 that were ever in use with WKS; ports
// can always be given as numbers.
var services = map[string]uint64{
	"echo": 7, "discard": 9, "systat": 11, "daytime": 13, "netstat": 15, "qotd": 17, "chargen": 19, "ftp-data": 20,
	"ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "time": 37, "nameserver": 42, "whois": 43, "domain": 53,
	"bootps": 67, "bootpc": 68, "tftp": 69, "gopher": 70, "finger": 79, "http": 80, "www": 80, "kerberos": 88,
	"hostname": 101, "pop2": 109, "pop3": 110, "sunrpc": 111, "auth": 113, "sftp": 115, "nntp": 119, "ntp": 123,
	"imap": 143, "snmp": 161, "snmptrap": 162, "bgp": 179, "irc": 194, "ldap": 389, "https": 443,
}

var protocols = map[string]uint64{"icmp": 1, "tcp": 6, "udp": 17}

// readWKS reads protocol and services to the end of the line.
func (p *parser) readWKS() (bool, error) {
	proto, err := p.numberOr(protocols, 255)
	if err != nil {
		return false, fmt.Errorf("protocol: %w", err)
	}
	p.rdata = append(p.rdata, byte(proto))
	at := len(p.rdata)
	for p.next() {
		port, err := p.numberOr(services, math.MaxUint16)
		if err != nil {
			return false, fmt.Errorf("service: %w", err)
		}
		for len(p.rdata)-at <= int(port/8) {
			p.rdata = append(p.rdata, 0)
		}
		p.rdata[at+int(port/8)] |= 0x80 >> (port % 8)
	}
	return false, nil
}

// numberOr returns the number, or what the lower-cased word stands for.
func (p *parser) numberOr(words map[string]uint64, most uint64) (uint64, error) {
	if len(p.tok) > 0 && p.tok[0]-'0' <= 9 {
		return parseUint(p.tok, most)
	}
	lower := make([]byte, len(p.tok))
	for i, c := range p.tok {
		lower[i] = wire.Lower(c)
	}
	if n, ok := words[string(lower)]; ok {
		return n, nil
	}
	return 0, fmt.Errorf("%q is neither a number nor a known name", p.tok)
}

// readNSAP reads "0x" and hexadecimal digits with dots between them.
func (p *parser) readNSAP() (bool, error) {
	if len(p.tok) < 2 || p.tok[0] != '0' || p.tok[1]|0x20 != 'x' {
		return false, fmt.Errorf("%q does not begin with 0x", p.tok)
	}
	if err := p.readDotted(p.tok[2:]); err != nil {
		return false, err
	}
	return p.next(), nil
}

// readATMA reads an ATM address: "+" and E.164 digits, or hexadecimal AESA.
func (p *parser) readATMA() (bool, error) {
	if p.tok[0] != '+' {
		p.rdata = append(p.rdata, 0)
		if err := p.readDotted(p.tok); err != nil {
			return false, err
		}
		return p.next(), nil
	}
	p.rdata = append(p.rdata, 1)
	for _, c := range p.tok[1:] {
		if c-'0' > 9 {
			return false, fmt.Errorf("%q is no E.164 number", p.tok)
		}
		p.rdata = append(p.rdata, c)
	}
	return p.next(), nil
}

// readDotted reads hexadecimal digits among which dots mean nothing.
func (p *parser) readDotted(tok []byte) error {
	digits := make([]byte, 0, len(tok))
	for _, c := range tok {
		if c != '.' {
			digits = append(digits, c)
		}
	}
	if len(digits) == 0 {
		return fmt.Errorf("%q holds no digits", tok)
	}
	var err error
	p.rdata, err = appendHex(p.rdata, digits)
	return err
}

// readA6 reads prefix length, address suffix and prefix name of A6.
func (p *parser) readA6() (bool, error) {
	prefix, err := parseUint(p.tok, 128)
	if err != nil {
		return false, fmt.Errorf("prefix length: %w", err)
	}
	p.rdata = append(p.rdata, byte(prefix))
	if prefix < 128 {
		if err := p.need("address suffix"); err != nil {
			return false, err
		}
		a, ok := parseIPv6(p.tok)
		if !ok {
			return false, fmt.Errorf("%q is no IPv6 address", p.tok)
		}
		suffix := a[prefix/8:]
		suffix[0] &= 0xff >> (prefix % 8)
		p.rdata = append(p.rdata, suffix...)
	}
	if prefix > 0 {
		if err := p.need("prefix name"); err != nil {
			return false, err
		}
		if p.rdata, err = appendName(p.rdata, p.tok, p.origin); err != nil {
			return false, err
		}
	}
	return p.next(), nil
}

// readNXT reads type mnemonics to the end of the line into a plain bitmap.
func (p *parser) readNXT() (bool, error) {
	at := len(p.rdata)
	for {
		t, ok := typeByName(p.tok)
		if !ok || t.code > 127 {
			return false, fmt.Errorf("%q is no type below 128", p.tok)
		}
		for len(p.rdata)-at <= int(t.code/8) {
			p.rdata = append(p.rdata, 0)
		}
		p.rdata[at+int(t.code/8)] |= 0x80 >> (t.code % 8)
		if !p.next() {
			return false, nil
		}
	}
}

// appendAddrs appends the addresses in a comma-separated list, all of one
// family.
func appendAddrs(dst, list []byte, v6 bool) ([]byte, error) {
	for start := 0; start <= len(list); {
		end := start
		for end < len(list) && list[end] != ',' {
			end++
		}
		item := list[start:end]
		addr, err := netip.ParseAddr(string(item))
		if err != nil || addr.Is4() == v6 || addr.Zone() != "" {
			return dst, fmt.Errorf("%q is no address of the family", item)
		}
		dst = append(dst, addr.AsSlice()...)
		start = end + 1
	}
	return dst, nil
}
