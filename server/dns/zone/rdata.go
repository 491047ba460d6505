package zone

import "github.com/dnsapp/dnsapp/server/dns/wire"

// nameSpan is a name within RDATA.
type nameSpan struct{ off, len int }

// compressible returns the names in rdata that may be compressed, at most two.
// Those are the ones of the types of RFC 1035 and no others (RFC 3597 4).
func compressible(t wire.Type, rdata []byte) (spans [2]nameSpan) {
	name := func(off int) nameSpan {
		if off > len(rdata) {
			return nameSpan{}
		}
		return nameSpan{off, wire.NameLen(rdata[off:])}
	}
	switch t {
	case wire.TypeNS, wire.TypeCNAME, wire.TypePTR, wire.TypeMB, wire.TypeMD, wire.TypeMF, wire.TypeMG, wire.TypeMR:
		spans[0] = name(0)
	case wire.TypeMX:
		spans[0] = name(2)
	case wire.TypeSOA, wire.TypeMINFO:
		spans[0] = name(0)
		spans[1] = name(spans[0].len)
	}
	return spans
}

// hasAdditional reports whether records of type t can have additional data.
func hasAdditional(t wire.Type) bool {
	switch t {
	case wire.TypeNS, wire.TypeMB, wire.TypeMD, wire.TypeMF, wire.TypeMX, wire.TypeAFSDB, wire.TypeRT, wire.TypeKX,
		wire.TypeSRV, wire.TypeSVCB, wire.TypeHTTPS, wire.TypeNAPTR:
		return true
	}
	return false
}

// additional returns the name in rdata whose data belongs into the additional
// section, and which data. ok is false if there is none.
func additional(t wire.Type, rdata []byte) (span nameSpan, kind AddKind, ok bool) {
	off := 0
	switch t {
	case wire.TypeNS, wire.TypeMB, wire.TypeMD, wire.TypeMF:
	case wire.TypeMX, wire.TypeAFSDB, wire.TypeRT, wire.TypeKX:
		off = 2
	case wire.TypeSRV:
		off = 6
	case wire.TypeSVCB, wire.TypeHTTPS:
		off = 2
		if len(rdata) > 2 && rdata[0] == 0 && rdata[1] == 0 { // AliasMode
			kind = AddSVCB
			if t == wire.TypeHTTPS {
				kind = AddHTTPS
			}
		}
	case wire.TypeNAPTR:
		// ORDER, PREFERENCE, FLAGS, SERVICES, REGEXP, REPLACEMENT (RFC 3403 4.1)
		off = 4
		var flag byte
		for i := range 3 {
			if off >= len(rdata) {
				return span, 0, false
			}
			if i == 0 && rdata[off] == 1 && off+1 < len(rdata) {
				flag = wire.Lower(rdata[off+1])
			}
			off += 1 + int(rdata[off])
		}
		switch flag {
		case 'a':
		case 's':
			kind = AddSRV
		default:
			return span, 0, false
		}
	default:
		return span, 0, false
	}
	if off >= len(rdata) {
		return span, 0, false
	}
	span = nameSpan{off, wire.NameLen(rdata[off:])}
	return span, kind, span.len > 0
}
