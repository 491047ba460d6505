package master

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The reference points of RFC 1876 2.
const (
	locEquator   = 1 << 31
	locAltitude  = 100_000_00 // cm below the reference spheroid that 0 means
	locMaxLength = 90_000_000_00
)

// readLOC reads
//
//	d [m [s[.fff]]] N|S  d [m [s[.fff]]] E|W  alt[m] [size[m] [hp[m] [vp[m]]]]
//
// (RFC 1876 3) to the end of the line.
func (p *parser) readLOC() (bool, error) {
	lat, err := p.readAngle(90, 'N', 'S')
	if err != nil {
		return false, fmt.Errorf("latitude: %w", err)
	}
	if err := p.need("longitude"); err != nil {
		return false, err
	}
	lon, err := p.readAngle(180, 'E', 'W')
	if err != nil {
		return false, fmt.Errorf("longitude: %w", err)
	}
	if err := p.need("altitude"); err != nil {
		return false, err
	}
	alt, err := parseMetres(p.tok, true)
	if err != nil {
		return false, fmt.Errorf("altitude: %w", err)
	}
	alt += locAltitude
	if alt < 0 || alt > math.MaxUint32 {
		return false, fmt.Errorf("altitude: %q is out of range", p.tok)
	}
	size := [3]int64{1_00, 10_000_00, 10_00} // size, horizontal and vertical precision
	more := p.next()
	for i := 0; i < len(size) && more; i++ {
		if size[i], err = parseMetres(p.tok, false); err != nil {
			return false, fmt.Errorf("size or precision: %w", err)
		}
		if size[i] > locMaxLength {
			return false, fmt.Errorf("size or precision: %q is above %d m", p.tok, locMaxLength/100)
		}
		more = p.next()
	}
	p.rdata = append(p.rdata, 0, locLength(size[0]), locLength(size[1]), locLength(size[2]))
	p.rdata = binary.BigEndian.AppendUint32(p.rdata, lat)
	p.rdata = binary.BigEndian.AppendUint32(p.rdata, lon)
	p.rdata = binary.BigEndian.AppendUint32(p.rdata, uint32(alt))
	return more, nil
}

// readAngle reads degrees, minutes, seconds and hemisphere, the first of which
// is the present token.
func (p *parser) readAngle(most uint64, plus, minus byte) (uint32, error) {
	deg, err := parseUint(p.tok, most)
	if err != nil {
		return 0, err
	}
	ms := deg * 3600_000
	for part := 1; ; part++ {
		if err := p.need("hemisphere"); err != nil {
			return 0, err
		}
		if len(p.tok) == 1 {
			switch p.tok[0] &^ 0x20 {
			case plus:
				return uint32(locEquator + ms), nil
			case minus:
				return uint32(locEquator - ms), nil
			}
		}
		switch part {
		case 1:
			min, err := parseUint(p.tok, 59)
			if err != nil {
				return 0, fmt.Errorf("minutes: %w", err)
			}
			ms += min * 60_000
		case 2:
			sec, err := parseDecimal(p.tok, 3)
			if err != nil || sec >= 60_000 {
				return 0, fmt.Errorf("seconds: %q is not 0 to 59.999", p.tok)
			}
			ms += uint64(sec)
		default:
			return 0, fmt.Errorf("%q is no hemisphere", p.tok)
		}
	}
}

// parseMetres reads a length in metres with up to two decimals and an optional
// "m", and returns centimetres.
func parseMetres(tok []byte, signed bool) (int64, error) {
	t := tok
	if n := len(t); n > 0 && t[n-1]|0x20 == 'm' {
		t = t[:n-1]
	}
	neg := signed && len(t) > 0 && t[0] == '-'
	if neg {
		t = t[1:]
	}
	cm, err := parseDecimal(t, 2)
	if err != nil {
		return 0, fmt.Errorf("%q is no length in metres", tok)
	}
	if neg {
		cm = -cm
	}
	return cm, nil
}

// parseDecimal reads a number with up to places decimals and returns it times
// 10^places.
func parseDecimal(tok []byte, places int) (int64, error) {
	var n int64
	digits, decimals, dot := 0, 0, false
	for _, c := range tok {
		switch {
		case c-'0' <= 9:
			if dot {
				decimals++
			}
			digits++
			n = n*10 + int64(c-'0')
			if decimals > places || digits > 15 {
				return 0, fmt.Errorf("%q has too many digits", tok)
			}
		case c == '.' && !dot && digits > 0:
			dot = true
		default:
			return 0, fmt.Errorf("%q is not a number", tok)
		}
	}
	if digits == 0 || dot && decimals == 0 {
		return 0, fmt.Errorf("%q is not a number", tok)
	}
	for ; decimals < places; decimals++ {
		n *= 10
	}
	return n, nil
}

// locLength returns cm as one digit and a power of ten (RFC 1876 2).
func locLength(cm int64) byte {
	exp := byte(0)
	for cm > 9 {
		cm /= 10
		exp++
	}
	return byte(cm)<<4 | exp
}
