package master

import (
	"math"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// field is a piece of RDATA: how it is written, and what it is on the wire.
type field uint8

// The fields. "rest" fields take all tokens that are left.
const (
	fU8        field = iota + 1
	fU16             //
	fU32             //
	fU64             //
	fPeriod          // 32-bit time span, units allowed
	fTime            // 32-bit time, YYYYMMDDHHmmSS or seconds (RFC 4034 3.2)
	fName            // domain name, uncompressed
	fText            // character-string
	fTextOpt         // one or none
	fTexts           // rest: one or more
	fLong            // text without a length octet, to the end of RDATA
	fTarget          // the same, at least one octet (RFC 7553 4.4)
	fTag             // CAA property tag (RFC 8659 4.1)
	fA               //
	fAAAA            //
	fHex             // rest: at least one octet
	fBase64          // rest: at least one octet
	fBase64Opt       // rest
	fSalt            // one token of hex with a length octet, "-" is none (RFC 5155 3.3)
	fHash            // one token of base32hex with a length octet
	fType            // one type as a mnemonic
	fTypes           // rest: type bitmap (RFC 4034 4.1.2)
	fAlgorithm       // DNSSEC algorithm, number or mnemonic
	fCertType        // RFC 4398 2.1
	fScheme          // DSYNC scheme (RFC 9859 2.1)
	fGroups64        // four hex groups of 16 bits (RFC 6742 2.1)
	fEUI48           // RFC 7043
	fEUI64           //
	fGateway         // IPSECKEY from its second octet on (RFC 4025 2)
	fRelay           // AMTRELAY from its second octet on (RFC 8777 4)
	fHIP             // RFC 8005 5
	fLOC             // RFC 1876
	fAPL             // rest (RFC 3123)
	fWKS             // rest: protocol and services (RFC 1035 3.4.2)
	fNSAP            // RFC 1706 5
	fATMA            //
	fA6              // RFC 2874 3.1
	fNXT             // rest: bitmap of RFC 2535 5.2
	fSVCB            // rest: parameters (RFC 9460 2.1)
)

// typeInfo is what the parser knows of a type.
type typeInfo struct {
	name   string
	code   wire.Type
	fields []field // nil: only \# will do
	meta   bool    // cannot stand in a zone
}

var types = []typeInfo{
	{name: "A", code: 1, fields: []field{fA}},
	{name: "NS", code: 2, fields: []field{fName}},
	{name: "MD", code: 3, fields: []field{fName}},
	{name: "MF", code: 4, fields: []field{fName}},
	{name: "CNAME", code: 5, fields: []field{fName}},
	{name: "SOA", code: 6, fields: []field{fName, fName, fU32, fPeriod, fPeriod, fPeriod, fPeriod}},
	{name: "MB", code: 7, fields: []field{fName}},
	{name: "MG", code: 8, fields: []field{fName}},
	{name: "MR", code: 9, fields: []field{fName}},
	{name: "NULL", code: 10},
	{name: "WKS", code: 11, fields: []field{fA, fWKS}},
	{name: "PTR", code: 12, fields: []field{fName}},
	{name: "HINFO", code: 13, fields: []field{fText, fText}},
	{name: "MINFO", code: 14, fields: []field{fName, fName}},
	{name: "MX", code: 15, fields: []field{fU16, fName}},
	{name: "TXT", code: 16, fields: []field{fTexts}},
	{name: "RP", code: 17, fields: []field{fName, fName}},
	{name: "AFSDB", code: 18, fields: []field{fU16, fName}},
	{name: "X25", code: 19, fields: []field{fText}},
	{name: "ISDN", code: 20, fields: []field{fText, fTextOpt}},
	{name: "RT", code: 21, fields: []field{fU16, fName}},
	{name: "NSAP", code: 22, fields: []field{fNSAP}},
	{name: "NSAP-PTR", code: 23, fields: []field{fName}},
	{name: "SIG", code: 24, fields: []field{fType, fAlgorithm, fU8, fU32, fTime, fTime, fU16, fName, fBase64}},
	{name: "KEY", code: 25, fields: []field{fU16, fU8, fAlgorithm, fBase64}},
	{name: "PX", code: 26, fields: []field{fU16, fName, fName}},
	{name: "GPOS", code: 27, fields: []field{fText, fText, fText}},
	{name: "AAAA", code: 28, fields: []field{fAAAA}},
	{name: "LOC", code: 29, fields: []field{fLOC}},
	{name: "NXT", code: 30, fields: []field{fName, fNXT}},
	{name: "EID", code: 31, fields: []field{fHex}},
	{name: "NIMLOC", code: 32, fields: []field{fHex}},
	{name: "SRV", code: 33, fields: []field{fU16, fU16, fU16, fName}},
	{name: "ATMA", code: 34, fields: []field{fATMA}},
	{name: "NAPTR", code: 35, fields: []field{fU16, fU16, fText, fText, fText, fName}},
	{name: "KX", code: 36, fields: []field{fU16, fName}},
	{name: "CERT", code: 37, fields: []field{fCertType, fU16, fAlgorithm, fBase64}},
	{name: "A6", code: 38, fields: []field{fA6}},
	{name: "DNAME", code: 39, fields: []field{fName}},
	{name: "SINK", code: 40, fields: []field{fU8, fU8, fU8, fBase64Opt}},
	{name: "OPT", code: 41, meta: true},
	{name: "APL", code: 42, fields: []field{fAPL}},
	{name: "DS", code: 43, fields: []field{fU16, fAlgorithm, fU8, fHex}},
	{name: "SSHFP", code: 44, fields: []field{fU8, fU8, fHex}},
	{name: "IPSECKEY", code: 45, fields: []field{fU8, fGateway, fBase64Opt}},
	{name: "RRSIG", code: 46, fields: []field{fType, fAlgorithm, fU8, fU32, fTime, fTime, fU16, fName, fBase64}},
	{name: "NSEC", code: 47, fields: []field{fName, fTypes}},
	{name: "DNSKEY", code: 48, fields: []field{fU16, fU8, fAlgorithm, fBase64}},
	{name: "DHCID", code: 49, fields: []field{fBase64}},
	{name: "NSEC3", code: 50, fields: []field{fU8, fU8, fU16, fSalt, fHash, fTypes}},
	{name: "NSEC3PARAM", code: 51, fields: []field{fU8, fU8, fU16, fSalt}},
	{name: "TLSA", code: 52, fields: []field{fU8, fU8, fU8, fHex}},
	{name: "SMIMEA", code: 53, fields: []field{fU8, fU8, fU8, fHex}},
	{name: "HIP", code: 55, fields: []field{fHIP}},
	{name: "NINFO", code: 56, fields: []field{fTexts}},
	{name: "RKEY", code: 57, fields: []field{fU16, fU8, fAlgorithm, fBase64}},
	{name: "TALINK", code: 58, fields: []field{fName, fName}},
	{name: "CDS", code: 59, fields: []field{fU16, fAlgorithm, fU8, fHex}},
	{name: "CDNSKEY", code: 60, fields: []field{fU16, fU8, fAlgorithm, fBase64}},
	{name: "OPENPGPKEY", code: 61, fields: []field{fBase64}},
	{name: "CSYNC", code: 62, fields: []field{fU32, fU16, fTypes}},
	{name: "ZONEMD", code: 63, fields: []field{fU32, fU8, fU8, fHex}},
	{name: "SVCB", code: 64, fields: []field{fU16, fName, fSVCB}},
	{name: "HTTPS", code: 65, fields: []field{fU16, fName, fSVCB}},
	{name: "DSYNC", code: 66, fields: []field{fType, fScheme, fU16, fName}},
	{name: "HHIT", code: 67, fields: []field{fBase64}},
	{name: "BRID", code: 68, fields: []field{fBase64}},
	{name: "SPF", code: 99, fields: []field{fTexts}},
	{name: "UINFO", code: 100},
	{name: "UID", code: 101},
	{name: "GID", code: 102},
	{name: "UNSPEC", code: 103},
	{name: "NID", code: 104, fields: []field{fU16, fGroups64}},
	{name: "L32", code: 105, fields: []field{fU16, fA}},
	{name: "L64", code: 106, fields: []field{fU16, fGroups64}},
	{name: "LP", code: 107, fields: []field{fU16, fName}},
	{name: "EUI48", code: 108, fields: []field{fEUI48}},
	{name: "EUI64", code: 109, fields: []field{fEUI64}},
	{name: "NXNAME", code: 128, meta: true},
	{name: "TKEY", code: 249, meta: true},
	{name: "TSIG", code: 250, meta: true},
	{name: "IXFR", code: 251, meta: true},
	{name: "AXFR", code: 252, meta: true},
	{name: "MAILB", code: 253, meta: true},
	{name: "MAILA", code: 254, meta: true},
	{name: "ANY", code: 255, meta: true},
	{name: "URI", code: 256, fields: []field{fU16, fU16, fTarget}},
	{name: "CAA", code: 257, fields: []field{fU8, fTag, fLong}},
	{name: "AVC", code: 258, fields: []field{fTexts}},
	{name: "DOA", code: 259, fields: []field{fU32, fU32, fU8, fText, fBase64Opt}},
	{name: "AMTRELAY", code: 260, fields: []field{fU8, fRelay}},
	{name: "RESINFO", code: 261, fields: []field{fTexts}},
	{name: "WALLET", code: 262, fields: []field{fTexts}},
	{name: "CLA", code: 263, fields: []field{fTexts}},
	{name: "IPN", code: 264, fields: []field{fU64}},
	{name: "TA", code: 32768, fields: []field{fU16, fAlgorithm, fU8, fHex}},
	{name: "DLV", code: 32769, fields: []field{fU16, fAlgorithm, fU8, fHex}},
	{name: "ALIAS", code: 65401, fields: []field{fName}},
}

var (
	byName = map[string]*typeInfo{}
	byCode = map[wire.Type]*typeInfo{}
)

func init() {
	for i := range types {
		byName[types[i].name] = &types[i]
		byCode[types[i].code] = &types[i]
	}
}

// maxMnemonic is longer than every mnemonic of a type.
const maxMnemonic = 16

// typeByName returns the type that tok names, by its mnemonic or as TYPEnnn.
func typeByName(tok []byte) (*typeInfo, bool) {
	if len(tok) > maxMnemonic {
		return nil, false
	}
	var upper [maxMnemonic]byte
	for i, c := range tok {
		if 'a' <= c && c <= 'z' {
			c -= 0x20
		}
		upper[i] = c
	}
	if t, ok := byName[string(upper[:len(tok)])]; ok {
		return t, true
	}
	if len(tok) > 4 && string(upper[:4]) == "TYPE" {
		if n, err := parseUint(tok[4:], math.MaxUint16); err == nil {
			if t, ok := byCode[wire.Type(n)]; ok {
				return t, true
			}
			return &typeInfo{code: wire.Type(n)}, true
		}
	}
	return nil, false
}

// algorithms are the mnemonics of DNSSEC algorithm numbers (IANA registry).
var algorithms = map[string]uint64{
	"DELETE": 0, "RSAMD5": 1, "DH": 2, "DSA": 3, "RSASHA1": 5, "DSA-NSEC3-SHA1": 6, "NSEC3DSA": 6,
	"RSASHA1-NSEC3-SHA1": 7, "NSEC3RSASHA1": 7, "RSASHA256": 8, "RSASHA512": 10, "ECC-GOST": 12, "ECCGOST": 12,
	"ECDSAP256SHA256": 13, "ECDSAP384SHA384": 14, "ED25519": 15, "ED448": 16, "SM2SM3": 17, "ECC-GOST12": 23,
	"INDIRECT": 252, "PRIVATEDNS": 253, "PRIVATEOID": 254,
}

// certTypes are the mnemonics of RFC 4398 2.1.
var certTypes = map[string]uint64{
	"PKIX": 1, "SPKI": 2, "PGP": 3, "IPKIX": 4, "ISPKI": 5, "IPGP": 6, "ACPKIX": 7, "IACPKIX": 8, "URI": 253, "OID": 254,
}

// schemes are the mnemonics of RFC 9859 2.1.
var schemes = map[string]uint64{"NOTIFY": 1}
