package zone

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"strconv"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// This file holds the checks that need to understand the data: what a zone says
// that cannot work, or that clients will not accept.

// DNSSEC and digest algorithm numbers that must no longer be used
// (RFC 8624 3.1 and 3.3, RFC 9905).
var (
	oldAlgorithms = map[byte]string{1: "RSAMD5", 3: "DSA", 5: "RSASHA1", 6: "DSA-NSEC3-SHA1", 7: "RSASHA1-NSEC3-SHA1", 12: "ECC-GOST"}
	oldDigests    = map[byte]string{1: "SHA-1", 3: "GOST R 34.11-94"}
)

const (
	typeKEY     = wire.TypeKEY
	typeDNSKEY  = wire.Type(48)
	typeCDS     = wire.Type(59)
	typeCDNSKEY = wire.Type(60)

	keyALPN    = 1 // SvcParamKeys (RFC 9460 14.3.2, RFC 9461)
	keyDoHPath = 7
)

// lint checks the records of node i by what they mean.
func (b *builder) lint(i int32) {
	name, list := b.name(&b.nodes[i]), b.list(i)
	for _, at := range list {
		r := &b.rrs[at]
		rd := b.rd(r)
		switch r.typ {
		case typeDNSKEY, typeKEY:
			if alg, ok := oldAlgorithms[rd[3]]; ok {
				b.diags.warnf(r.pos, "algorithm %s is deprecated (RFC 8624 3.1)", alg)
			}
		case wire.TypeDS, typeCDS:
			if digest, ok := oldDigests[rd[3]]; ok {
				b.diags.warnf(r.pos, "digest algorithm %s is deprecated (RFC 8624 3.3)", digest)
			}
			if r.typ == typeCDS && !b.matchesKey(rd) {
				b.diags.errorf(r.pos, "CDS record matches no DNSKEY record (RFC 7344 4)")
			}
		case typeCDNSKEY:
			if !b.hasKey(rd) {
				b.diags.errorf(r.pos, "CDNSKEY record matches no DNSKEY record (RFC 7344 4)")
			}
		case wire.TypeSVCB, wire.TypeHTTPS:
			b.lintSVCB(name, r, rd)
		case wire.TypePTR:
			if isReverse(name) && !isServiceDiscovery(name) && !isHostName(rd) {
				b.diags.errorf(r.pos, "PTR record in the reverse tree points to %s, which is no host name", wire.Text(rd))
			}
		}
	}
	if len(list) > 0 && !isPolicyTrigger(name, b.origin.Bytes()) {
		b.diags.errorf(b.rrs[list[0]].pos, "%s is no canonical response policy trigger", wire.Text(name))
	}
}

// keys calls f with the RDATA of every DNSKEY record at the apex.
func (b *builder) keys(f func(rd []byte)) (n int) {
	for _, i := range b.list(0) {
		if r := &b.rrs[i]; r.typ == typeDNSKEY {
			f(b.rd(r))
			n++
		}
	}
	return n
}

// matchesKey reports whether the RDATA of a CDS record is that of a DNSKEY of
// the zone, asks for deletion (RFC 8078 4), or the zone has no keys.
func (b *builder) matchesKey(cds []byte) bool {
	if cds[2] == 0 {
		return true
	}
	found := false
	n := b.keys(func(key []byte) {
		if keyTag(key) != binary.BigEndian.Uint16(cds) || key[3] != cds[2] {
			return
		}
		owned := append(append([]byte(nil), b.origin.Bytes()...), key...)
		switch cds[3] {
		case 1:
			sum := sha1.Sum(owned)
			found = found || bytes.Equal(sum[:], cds[4:])
		case 2:
			sum := sha256.Sum256(owned)
			found = found || bytes.Equal(sum[:], cds[4:])
		case 4:
			sum := sha512.Sum384(owned)
			found = found || bytes.Equal(sum[:], cds[4:])
		default:
			found = true // a digest we cannot check
		}
	})
	return found || n == 0
}

// hasKey is matchesKey for CDNSKEY.
func (b *builder) hasKey(cdnskey []byte) bool {
	if cdnskey[3] == 0 {
		return true
	}
	found := false
	n := b.keys(func(key []byte) { found = found || bytes.Equal(key, cdnskey) })
	return found || n == 0
}

// keyTag returns the key tag of the RDATA of a DNSKEY record (RFC 4034 B).
func keyTag(rd []byte) uint16 {
	sum := uint32(0)
	for i, c := range rd {
		if i&1 == 0 {
			sum += uint32(c) << 8
		} else {
			sum += uint32(c)
		}
	}
	return uint16(sum + sum>>16)
}

// lintSVCB checks TargetName, and that a DNS server that speaks HTTP says where
// (RFC 9461 5).
func (b *builder) lintSVCB(owner []byte, r *buildRR, rd []byte) {
	if binary.BigEndian.Uint16(rd) == 0 {
		return // AliasMode
	}
	target := rd[2 : 2+wire.NameLen(rd[2:])]
	if len(target) > 1 && !isHostName(target) {
		b.diags.errorf(r.pos, "TargetName %s is no host name", wire.Text(target))
	}
	if r.typ != wire.TypeSVCB || !isDNSService(owner) {
		return
	}
	alpn := svcParam(rd[2+len(target):], keyALPN)
	if alpn == nil {
		b.diags.errorf(r.pos, "SVCB record of a DNS server without alpn (RFC 9461 4.1)")
		return
	}
	for len(alpn) > 0 {
		id := string(alpn[1 : 1+alpn[0]])
		alpn = alpn[1+alpn[0]:]
		switch id {
		case "dot", "doq", "co": // these are not HTTP
		default:
			if svcParam(rd[2+len(target):], keyDoHPath) == nil {
				b.diags.errorf(r.pos, "SVCB record of a DNS server with alpn %q, but without dohpath (RFC 9461 5)", id)
				return
			}
		}
	}
}

// svcParam returns the value of a parameter, or nil. The list is well formed.
func svcParam(params []byte, key uint16) []byte {
	for len(params) >= 4 {
		size := int(binary.BigEndian.Uint16(params[2:]))
		if binary.BigEndian.Uint16(params) == key {
			return params[4 : 4+size]
		}
		params = params[4+size:]
	}
	return nil
}

// isDNSService reports whether name is _dns or _PORT._dns of something.
func isDNSService(name []byte) bool {
	const dns = "\x04_dns"
	if bytes.HasPrefix(name, []byte(dns)) {
		return true
	}
	return len(name) > 1 && name[1] == '_' && bytes.HasPrefix(name[1+name[0]:], []byte(dns))
}

// isHostName reports whether name is letters, digits and hyphens (RFC 952,
// RFC 1123 2.1). The root is one.
func isHostName(name []byte) bool {
	for len(name) > 0 && name[0] != 0 {
		label := name[1 : 1+name[0]]
		for i, c := range label {
			edge := i == 0 || i == len(label)-1
			if c = wire.Lower(c); c-'0' > 9 && (c < 'a' || c > 'z') && (c != '-' || edge) {
				return false
			}
		}
		name = name[1+len(label):]
	}
	return true
}

// isReverse reports whether name is in one of the trees that map addresses.
func isReverse(name []byte) bool {
	return bytes.HasSuffix(name, []byte("\x07in-addr\x04arpa\x00")) || bytes.HasSuffix(name, []byte("\x03ip6\x04arpa\x00"))
}

// isServiceDiscovery reports whether name is one that browsing domains are asked
// for under, whose PTR records name domains, not hosts (RFC 6763 11).
func isServiceDiscovery(name []byte) bool {
	for _, prefix := range []string{"\x01b", "\x02db", "\x01r", "\x02dr", "\x02lb"} {
		if bytes.HasPrefix(name, []byte(prefix+"\x07_dns-sd\x04_udp")) {
			return true
		}
	}
	return false
}

// isPolicyTrigger reports whether name, if it is an address trigger of a
// response policy zone, is in the one form that resolvers take: prefix length,
// then the address backwards, the longest run of zero groups as "zz". A name of
// another kind is fine, too.
func isPolicyTrigger(name, origin []byte) bool {
	if !bytes.Contains(name, []byte("rpz-")) {
		return true
	}
	var labels []string
	for rest := name[:len(name)-len(origin)]; len(rest) > 0; rest = rest[1+rest[0]:] {
		labels = append(labels, string(rest[1:1+rest[0]]))
	}
	n := len(labels)
	if n == 0 || labels[n-1] != "rpz-ip" && labels[n-1] != "rpz-client-ip" && labels[n-1] != "rpz-nsip" {
		return true
	}
	if n == 1 || n == 2 && labels[0] == "*" {
		return true
	}
	prefix, err := strconv.Atoi(labels[0])
	groups := labels[1 : n-1]
	if err != nil || prefix < 1 || prefix > 128 {
		return false
	}
	if len(groups) == 4 && groups[0] != "zz" && prefix <= 32 {
		for _, g := range groups {
			if v, err := strconv.ParseUint(g, 10, 8); err != nil || strconv.FormatUint(v, 10) != g {
				return false
			}
		}
		return true
	}
	zz, run := 0, 0
	for _, g := range groups {
		v, err := strconv.ParseUint(g, 16, 16)
		switch {
		case g == "zz":
			zz++
			run = 0
		case err != nil || strconv.FormatUint(v, 16) != g:
			return false
		case v == 0:
			if run++; run > 1 && zz == 0 {
				return false // should be zz
			}
		default:
			run = 0
		}
	}
	return zz == 0 && len(groups) == 8 || zz == 1 && len(groups) < 8
}

// lintTarget warns where a record of node i leads clients to a host of this zone that
// has no address, or that is an alias.
func (b *builder) lintTarget(i int32, r *buildRR, name []byte, target int32) {
	switch r.typ {
	case wire.TypeNS, wire.TypeMX, wire.TypeSRV:
	default:
		return
	}
	if target >= 0 {
		host := &b.nodes[target]
		if host.flags&flagCNAME != 0 && host.flags&flagsHidden == 0 {
			b.diags.warnf(r.pos, "%s is an alias (RFC 2181 10.3)", wire.Text(name))
			return
		}
		for _, at := range b.list(target) {
			if t := b.rrs[at].typ; t == wire.TypeA || t == wire.TypeAAAA {
				return
			}
		}
	}
	at := b.encloser(name, &b.scratch)
	if at < 0 {
		return // in another zone
	}
	above := b.cover(at)
	switch {
	case b.nodes[above].flags&flagCut == 0:
		b.diags.warnf(r.pos, "%s has no address", wire.Text(name))
	case above == i && r.typ == wire.TypeNS:
		b.diags.warnf(r.pos, "%s is below the delegation, but has no glue: nobody can find it", wire.Text(name))
	}
}

// lintServers warns where clients of one address family will find no server of
// the zone, though the zone has data for that family.
func (b *builder) lintServers() {
	var has, serves [2]bool // A, AAAA: anywhere; at a server of the zone
	inZone := false
	for i := range b.rrs {
		switch b.rrs[i].typ {
		case wire.TypeA:
			has[0] = true
		case wire.TypeAAAA:
			has[1] = true
		}
	}
	apex := b.list(0)
	for _, i := range apex {
		if b.rrs[i].typ != wire.TypeNS {
			continue
		}
		at := b.findNode(b.rd(&b.rrs[i]), &b.scratch)
		if at < 0 {
			continue
		}
		inZone = true
		for _, j := range b.list(at) {
			switch b.rrs[j].typ {
			case wire.TypeA:
				serves[0] = true
			case wire.TypeAAAA:
				serves[1] = true
			}
		}
	}
	for i, what := range []string{"A", "AAAA"} {
		if inZone && has[i] && !serves[i] {
			b.diags.warnf(b.rrs[apex[0]].pos, "no name server of the zone has an %s record", what)
		}
	}
}
