package master

import (
	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// unknown reads RDATA in the form of RFC 3597 5, whose "\#" is the present
// token, and checks that it has the structure of its type.
func (p *parser) unknown(t *typeInfo) bool {
	if !p.next() {
		return p.missing(`number of octets behind \#`)
	}
	size, err := parseUint(p.tok, wire.MaxMessage)
	if err != nil {
		return p.errorf(`\#: %v`, err)
	}
	for p.next() {
		if p.quoted || p.glued {
			return p.errorf(`\#: quoted string`)
		}
		if p.rdata, err = appendHex(p.rdata, p.tok); err != nil {
			return p.errorf(`\#: %v`, err)
		}
	}
	if p.fault != "" {
		return false
	}
	if uint64(len(p.rdata)) != size {
		return p.errorf(`\#: %d octets are announced, %d are there`, size, len(p.rdata))
	}
	if t.fields != nil && !validRData(t.fields, p.rdata) {
		return p.errorf(`\#: these octets are no %s record`, t.name)
	}
	return true
}

// validRData reports whether b has the structure of fields.
func validRData(fields []field, b []byte) bool {
	for _, f := range fields {
		n := fieldSize(f, b)
		if n < 0 || n > len(b) {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

// fieldSize returns the octets that f takes at the start of b, or -1.
func fieldSize(f field, b []byte) int {
	switch f {
	case fU8, fAlgorithm, fScheme:
		return 1
	case fU16, fType, fCertType:
		return 2
	case fU32, fPeriod, fTime, fA:
		return 4
	case fU64, fGroups64, fEUI64:
		return 8
	case fEUI48:
		return 6
	case fAAAA, fLOC:
		return 16
	case fName:
		if n := wire.NameLen(b); n > 0 {
			return n
		}
		return -1
	case fText, fTag, fSalt, fHash:
		if len(b) == 0 {
			return -1
		}
		return 1 + int(b[0])
	case fTextOpt:
		if len(b) == 0 {
			return 0
		}
		return 1 + int(b[0])
	case fTexts:
		n := 0
		for n < len(b) {
			n += 1 + int(b[n])
		}
		if n == 0 {
			return -1
		}
		return n
	case fHex, fBase64, fNSAP, fATMA, fTarget:
		if len(b) == 0 {
			return -1
		}
	case fTypes:
		return typesSize(b)
	case fSVCB:
		if !validParams(b) {
			return -1
		}
	case fGateway:
		if len(b) < 2 {
			return -1
		}
		return hostSize(b[0], b, 2)
	case fRelay:
		if len(b) < 1 {
			return -1
		}
		return hostSize(b[0]&0x7f, b, 1)
	case fAPL:
		return aplSize(b)
	case fHIP:
		return hipSize(b)
	case fA6:
		return a6Size(b)
	case fWKS:
		if len(b) == 0 {
			return -1
		}
	}
	return len(b) // the rest, whatever it is
}

// hostSize returns the octets of a gateway of this kind behind the first at
// octets of b, those included.
func hostSize(kind byte, b []byte, at int) int {
	switch kind {
	case 0:
		return at
	case 1:
		return at + 4
	case 2:
		return at + 16
	case 3:
		if n := wire.NameLen(b[at:]); n > 0 {
			return at + n
		}
	}
	return -1
}

// typesSize checks a type bitmap (RFC 4034 4.1.2).
func typesSize(b []byte) int {
	n, last := 0, -1
	for n < len(b) {
		if n+2 > len(b) || int(b[n]) <= last || b[n+1] == 0 || b[n+1] > 32 {
			return -1
		}
		last = int(b[n])
		n += 2 + int(b[n+1])
	}
	return n
}

func aplSize(b []byte) int {
	n := 0
	for n < len(b) {
		if n+4 > len(b) {
			return -1
		}
		n += 4 + int(b[n+3]&0x7f)
	}
	return n
}

func hipSize(b []byte) int {
	if len(b) < 4 {
		return -1
	}
	n := 4 + int(b[0]) + int(b[2])<<8 + int(b[3])
	for n < len(b) {
		size := wire.NameLen(b[n:])
		if size == 0 {
			return -1
		}
		n += size
	}
	return n
}

func a6Size(b []byte) int {
	if len(b) == 0 || b[0] > 128 {
		return -1
	}
	n := 1 + (128-int(b[0])+7)/8
	if b[0] > 0 {
		if n > len(b) {
			return -1
		}
		size := wire.NameLen(b[n:])
		if size == 0 {
			return -1
		}
		n += size
	}
	return n
}
