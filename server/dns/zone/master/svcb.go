package master

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// The SvcParamKeys (RFC 9460 14.3.2, RFC 9461, RFC 9540, and the IANA registry
// behind them).
const (
	keyMandatory     = 0
	keyALPN          = 1
	keyNoDefaultALPN = 2
	keyPort          = 3
	keyIPv4Hint      = 4
	keyECH           = 5
	keyIPv6Hint      = 6
	keyDoHPath       = 7
	keyOHTTP         = 8
	keyTLSGroups     = 9
	keyDocPath       = 10
	keyPVD           = 11
	keyOOTS          = 12
)

var svcKeys = map[string]uint16{
	"mandatory": keyMandatory, "alpn": keyALPN, "no-default-alpn": keyNoDefaultALPN, "port": keyPort,
	"ipv4hint": keyIPv4Hint, "ech": keyECH, "ipv6hint": keyIPv6Hint, "dohpath": keyDoHPath, "ohttp": keyOHTTP,
	"tls-supported-groups": keyTLSGroups, "docpath": keyDocPath, "pvd": keyPVD, "oots": keyOOTS,
	"echconfig": keyECH, // its name in drafts
}

// svcParam is a service parameter in wire form.
type svcParam struct {
	key   uint16
	value []byte
}

// readSVCB reads service parameters to the end of the line and appends them in
// ascending order of keys (RFC 9460 2.2).
func (p *parser) readSVCB() (bool, error) {
	var params []svcParam
	for {
		param, err := p.svcParam()
		if err != nil {
			return false, err
		}
		params = append(params, param)
		if !p.next() {
			break
		}
	}
	if p.fault != "" {
		return false, nil
	}
	slices.SortStableFunc(params, func(a, b svcParam) int { return int(a.key) - int(b.key) })
	if err := checkParams(params); err != nil {
		return false, err
	}
	for _, q := range params {
		p.rdata = binary.BigEndian.AppendUint16(p.rdata, q.key)
		p.rdata = binary.BigEndian.AppendUint16(p.rdata, uint16(len(q.value)))
		p.rdata = append(p.rdata, q.value...)
	}
	return false, nil
}

// checkParams checks what RFC 9460 says of parameters together, which are in
// ascending order.
func checkParams(params []svcParam) error {
	has := func(key uint16) bool {
		return slices.ContainsFunc(params, func(q svcParam) bool { return q.key == key })
	}
	for i, q := range params {
		if i > 0 && q.key == params[i-1].key {
			return fmt.Errorf("parameter %d is there twice", q.key)
		}
		if q.key == keyMandatory {
			for v := q.value; len(v) > 0; v = v[2:] {
				if k := binary.BigEndian.Uint16(v); !has(k) {
					return fmt.Errorf("mandatory parameter %d is not there", k)
				}
			}
		}
	}
	if has(keyNoDefaultALPN) && !has(keyALPN) {
		return fmt.Errorf("no-default-alpn without alpn (RFC 9460 7.1.1)")
	}
	return nil
}

// svcParam reads one parameter: the present token, and the quoted one that may
// follow it without a blank.
func (p *parser) svcParam() (svcParam, error) {
	if p.quoted {
		return svcParam{}, fmt.Errorf("quoted string %q where a parameter was expected", p.tok)
	}
	name, text, given := bytes.Cut(p.tok, []byte("="))
	if p.glued {
		if !given || len(text) > 0 {
			return svcParam{}, fmt.Errorf("quote inside %q", p.tok)
		}
		if !p.next() {
			return svcParam{}, errors.New(p.fault)
		}
		text = p.tok
	}
	key, raw, err := svcKey(name)
	if err != nil {
		return svcParam{}, err
	}
	value, err := appendText(nil, text)
	if err == nil && !raw {
		value, err = svcValue(key, value)
	}
	if err == nil && len(value) > math.MaxUint16 {
		err = fmt.Errorf("value of %d octets", len(value))
	}
	if err != nil {
		return svcParam{}, fmt.Errorf("%s: %w", name, err)
	}
	return svcParam{key, value}, nil
}

// svcKey returns the key that name stands for. raw says that it was written as
// keyNNNNN, so that its value is given in wire form (RFC 9460 2.1).
func svcKey(name []byte) (key uint16, raw bool, err error) {
	if k, ok := svcKeys[string(name)]; ok {
		return k, false, nil
	}
	if rest, ok := bytes.CutPrefix(name, []byte("key")); ok && (len(rest) == 1 || len(rest) > 1 && rest[0] != '0') {
		if n, err := parseUint(rest, math.MaxUint16); err == nil {
			return uint16(n), true, nil
		}
	}
	return 0, false, fmt.Errorf("%q is no parameter name", name)
}

// svcValue returns the wire form of the value text, escapes resolved, of key.
func svcValue(key uint16, text []byte) ([]byte, error) {
	switch empty := len(text) == 0; key {
	case keyNoDefaultALPN, keyOHTTP, keyPVD:
		if !empty {
			return nil, errors.New("takes no value")
		}
		return nil, nil
	case keyECH, keyDocPath:
		if empty {
			return nil, nil
		}
	default:
		if empty {
			return nil, errors.New("needs a value")
		}
	}
	switch key {
	case keyMandatory:
		return mandatoryValue(text)
	case keyALPN, keyDocPath:
		return itemsValue(text)
	case keyPort:
		n, err := parseUint(text, math.MaxUint16)
		return binary.BigEndian.AppendUint16(nil, uint16(n)), err
	case keyIPv4Hint:
		return appendAddrs(nil, text, false)
	case keyIPv6Hint:
		return appendAddrs(nil, text, true)
	case keyECH:
		return base64.StdEncoding.AppendDecode(nil, text)
	case keyTLSGroups:
		return groupsValue(text)
	case keyOOTS:
		return ootsValue(text)
	case keyDoHPath:
		// A relative URI template with the variable "dns" (RFC 9461 5).
		if text[0] != '/' || !bytes.Contains(text, []byte("{")) || !bytes.Contains(text, []byte("dns")) || !utf8.Valid(text) {
			return nil, fmt.Errorf("%q is no relative URI template with {?dns}", text)
		}
	}
	return text, nil
}

// splitList splits a value-list (RFC 9460 A.1): commas separate, "\," and "\\"
// are octets of an item. The escapes of the file are resolved already.
func splitList(list []byte) ([][]byte, error) {
	var items [][]byte
	item := []byte{}
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || list[i] == ',':
			if len(item) == 0 {
				return nil, fmt.Errorf("empty item in list %q", list)
			}
			items = append(items, item)
			item = []byte{}
		case list[i] == '\\':
			if i+1 == len(list) || list[i+1] != ',' && list[i+1] != '\\' {
				return nil, fmt.Errorf("bad escape in list %q", list)
			}
			i++
			item = append(item, list[i])
		default:
			item = append(item, list[i])
		}
	}
	return items, nil
}

// itemsValue returns a list of items with a length octet each.
func itemsValue(list []byte) ([]byte, error) {
	items, err := splitList(list)
	if err != nil {
		return nil, err
	}
	var v []byte
	for _, item := range items {
		if len(item) > 255 {
			return nil, fmt.Errorf("item of %d octets", len(item))
		}
		v = append(append(v, byte(len(item))), item...)
	}
	return v, nil
}

// mandatoryValue returns a list of keys in ascending order (RFC 9460 8).
func mandatoryValue(list []byte) ([]byte, error) {
	var keys []uint16
	for name := range bytes.SplitSeq(list, []byte(",")) {
		key, _, err := svcKey(name)
		if err != nil {
			return nil, err
		}
		if key == keyMandatory || slices.Contains(keys, key) {
			return nil, fmt.Errorf("%q is listed twice or lists itself", name)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return appendUint16s(nil, keys), nil
}

// groupsValue returns a list of TLS group numbers.
func groupsValue(list []byte) ([]byte, error) {
	var groups []uint16
	for item := range bytes.SplitSeq(list, []byte(",")) {
		n, err := parseUint(item, math.MaxUint16)
		if err != nil {
			return nil, err
		}
		if slices.Contains(groups, uint16(n)) {
			return nil, fmt.Errorf("%d is listed twice", n)
		}
		groups = append(groups, uint16(n))
	}
	return appendUint16s(nil, groups), nil
}

func appendUint16s(dst []byte, list []uint16) []byte {
	for _, n := range list {
		dst = binary.BigEndian.AppendUint16(dst, n)
	}
	return dst
}

// ootsValue returns a list of transports with a percentage each, "name:0..100".
func ootsValue(list []byte) ([]byte, error) {
	var v []byte
	var names []string
	for item := range bytes.SplitSeq(list, []byte(",")) {
		name, share, ok := bytes.Cut(item, []byte(":"))
		n, err := parseUint(share, 100)
		if !ok || err != nil || len(name) == 0 || len(name) > 255 || slices.Contains(names, string(name)) {
			return nil, fmt.Errorf("%q is no transport with a share of 0 to 100, or is listed twice", item)
		}
		names = append(names, string(name))
		v = append(append(append(v, byte(len(name))), name...), byte(n))
	}
	return v, nil
}

// validParams reports whether b is service parameters in wire form.
func validParams(b []byte) bool {
	last := -1
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		key, size := int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
		if key <= last || 4+size > len(b) {
			return false
		}
		last, b = key, b[4+size:]
	}
	return true
}
