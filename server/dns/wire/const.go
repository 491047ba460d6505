package wire

// Type is a record type or QTYPE (RFC 1035 3.2.2 and 3.2.3, IANA registry).
type Type uint16

// The types that the server treats in a way of their own. Every other type is
// served from its wire form without being understood (RFC 3597).
const (
	TypeA     Type = 1
	TypeNS    Type = 2
	TypeMD    Type = 3
	TypeMF    Type = 4
	TypeCNAME Type = 5
	TypeSOA   Type = 6
	TypeMB    Type = 7
	TypeMG    Type = 8
	TypeMR    Type = 9
	TypePTR   Type = 12
	TypeMINFO Type = 14
	TypeMX    Type = 15
	TypeTXT   Type = 16
	TypeRP    Type = 17
	TypeAFSDB Type = 18
	TypeRT    Type = 21
	TypeSIG   Type = 24
	TypeKEY   Type = 25
	TypePX    Type = 26
	TypeAAAA  Type = 28
	TypeNXT   Type = 30
	TypeSRV   Type = 33
	TypeNAPTR Type = 35
	TypeKX    Type = 36
	TypeDNAME Type = 39
	TypeOPT   Type = 41
	TypeDS    Type = 43
	TypeRRSIG Type = 46
	TypeNSEC  Type = 47
	TypeNSEC3 Type = 50
	TypeSVCB  Type = 64
	TypeHTTPS Type = 65
	TypeTKEY  Type = 249
	TypeTSIG  Type = 250
	TypeIXFR  Type = 251
	TypeAXFR  Type = 252
	TypeMAILB Type = 253
	TypeMAILA Type = 254
	TypeANY   Type = 255
)

// Class is a record class or QCLASS (RFC 1035 3.2.4 and 3.2.5).
type Class uint16

// The classes.
const (
	ClassIN   Class = 1
	ClassCH   Class = 3
	ClassHS   Class = 4
	ClassNONE Class = 254
	ClassANY  Class = 255
)

// Opcode is the kind of query (RFC 1035 4.1.1).
type Opcode uint8

// The opcodes.
const (
	OpcodeQuery  Opcode = 0
	OpcodeNotify Opcode = 4
	OpcodeUpdate Opcode = 5
)

// RCODE is a response code; values above 15 need EDNS (RFC 6891 6.1.3).
type RCODE uint16

// The response codes.
const (
	NoError  RCODE = 0
	FormErr  RCODE = 1
	ServFail RCODE = 2
	NXDomain RCODE = 3
	NotImp   RCODE = 4
	Refused  RCODE = 5
	YXDomain RCODE = 6
	BadVers  RCODE = 16
)

// Sizes and bounds of RFC 1035 2.3.4 and RFC 6891.
const (
	MaxName      = 255    // octets of a name, root label included
	MaxLabel     = 63     // octets of a label
	MaxLabels    = 127    // labels of a name, root label not counted
	MaxPointer   = 0x3fff // the highest offset a compression pointer reaches
	MaxMessage   = 65535  // octets of a message
	MinUDPSize   = 512    // what every requestor takes; smaller sizes count as this
	OPTSize      = 11     // octets of an OPT record without options
	pointerFlags = 0xc000
)
