package wire

import "encoding/binary"

// Verdict is what Parse makes of a message.
type Verdict uint8

// The verdicts.
const (
	Valid       Verdict = iota
	Short               // no whole header: no answer
	Response            // QR is set: no answer, or two servers would talk for ever
	Malformed           // answer FORMERR
	Unsupported         // not an ordinary query: answer NOTIMP
	BadVersion          // EDNS version above 0: answer BADVERS
)

// Query is a parsed request. It holds no reference to the message.
type Query struct {
	Name   Name // QNAME, lower-cased; valid iff Question
	QType  Type // Valid iff Question
	QClass Class
	// Question says that there is exactly one well-formed question, in octets
	// HeaderSize to End of the message.
	Question bool
	End      int // offset behind the question; HeaderSize without one
	EDNS     EDNS
}

// EDNS is the OPT record of a request (RFC 6891 6.1).
type EDNS struct {
	Present   bool
	UDPSize   uint16 // requestor's UDP payload size, as sent
	Version   uint8
	DO        bool // DNSSEC answers OK (RFC 3225)
	NSID      bool // name server identifier asked for (RFC 5001)
	Keepalive bool // TCP keepalive offered (RFC 7828); to be ignored over UDP
}

// The EDNS options that are understood or given (IANA registry); others are
// ignored.
const (
	OptionNSID      = 3
	OptionKeepalive = 11
	OptionEDE       = 15
)

// Parse parses msg, a message from the network. Whatever the verdict, the
// fields that could be parsed are set, so that an error answer can echo the
// question and carry an OPT record.
func (q *Query) Parse(msg []byte) Verdict {
	q.Question, q.End, q.EDNS = false, HeaderSize, EDNS{}
	if len(msg) < HeaderSize {
		return Short
	}
	h := Header(msg)
	if h.QR() {
		return Response
	}
	verdict := Valid
	if h.Opcode() != OpcodeQuery {
		verdict = Unsupported
	}
	if h.QDCOUNT() != 1 {
		return max(verdict, Malformed)
	}
	n := q.Name.Set(msg[HeaderSize:])
	end := HeaderSize + n + 4
	if n == 0 || end > len(msg) {
		return max(verdict, Malformed)
	}
	q.QType = Type(binary.BigEndian.Uint16(msg[end-4:]))
	q.QClass = Class(binary.BigEndian.Uint16(msg[end-2:]))
	q.Question, q.End = true, end

	rest, ok := end, true
	if binary.BigEndian.Uint32(msg[6:]) != 0 { // ANCOUNT or NSCOUNT
		rest, ok = skipRecords(msg, end, h.ANCOUNT()+h.NSCOUNT())
	}
	if ok {
		rest, ok = q.parseAdditional(msg, rest, h.ARCOUNT())
	}
	if !ok || rest != len(msg) {
		return max(verdict, Malformed)
	}
	if q.EDNS.Version != 0 {
		return max(verdict, BadVersion)
	}
	return verdict
}

// skipRecords returns the offset behind n records at off. It refuses a record
// that leaves msg, and OPT, which belongs into the additional section only
// (RFC 6891 6.1.1).
func skipRecords(msg []byte, off, n int) (int, bool) {
	for range n {
		off = SkipName(msg, off)
		if off == 0 || off+10 > len(msg) || Type(binary.BigEndian.Uint16(msg[off:])) == TypeOPT {
			return 0, false
		}
		off += 10 + int(binary.BigEndian.Uint16(msg[off+8:]))
		if off > len(msg) {
			return 0, false
		}
	}
	return off, true
}

// parseAdditional goes over the n additional records at off and reads OPT.
func (q *Query) parseAdditional(msg []byte, off, n int) (int, bool) {
	for range n {
		root := off < len(msg) && msg[off] == 0
		off = SkipName(msg, off)
		if off == 0 || off+10 > len(msg) {
			return 0, false
		}
		size := int(binary.BigEndian.Uint16(msg[off+8:]))
		end := off + 10 + size
		if end > len(msg) {
			return 0, false
		}
		if Type(binary.BigEndian.Uint16(msg[off:])) == TypeOPT {
			// "If a query message with more than one OPT RR is received, a
			// FORMERR MUST be returned." The owner must be the root.
			if q.EDNS.Present || !root {
				return 0, false
			}
			q.EDNS = EDNS{
				Present: true,
				UDPSize: binary.BigEndian.Uint16(msg[off+2:]),
				Version: msg[off+5],
				DO:      msg[off+6]&0x80 != 0,
			}
			if size != 0 && !q.EDNS.parseOptions(msg[off+10:end]) {
				return 0, false
			}
		}
		off = end
	}
	return off, true
}

// parseOptions reads the RDATA of OPT and reports whether it is well formed.
func (e *EDNS) parseOptions(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		code, size := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if 4+size > len(b) {
			return false
		}
		switch code {
		case OptionNSID:
			if size != 0 { // RFC 5001 2.1: empty in a query
				return false
			}
			e.NSID = true
		case OptionKeepalive:
			e.Keepalive = true
		}
		b = b[4+size:]
	}
	return true
}

// EDE is an extended DNS error (RFC 8914); 0, "other error", says nothing and
// stands for none.
type EDE uint16

// The extended errors that the server gives (IANA registry).
const (
	EDENone             EDE = 0
	EDEProhibited       EDE = 18
	EDENotAuthoritative EDE = 20
	EDENotSupported     EDE = 21
)

// EDESize is the octets of an extended error without text.
const EDESize = 6

// AppendOPT appends the OPT record of a response (RFC 6891 6.1.2): the server's
// UDP payload size, the upper bits of rcode, version 0, DO as asked, options,
// which are already in wire form, and ede.
func AppendOPT(dst []byte, udpSize uint16, rcode RCODE, do bool, options []byte, ede EDE) []byte {
	var flags byte
	if do {
		flags = 0x80
	}
	size := len(options)
	if ede != EDENone {
		size += EDESize
	}
	dst = append(dst, 0, 0, byte(TypeOPT), byte(udpSize>>8), byte(udpSize), byte(rcode>>4), 0, flags, 0,
		byte(size>>8), byte(size))
	dst = append(dst, options...)
	if ede != EDENone {
		dst = append(dst, 0, OptionEDE, 0, 2, byte(ede>>8), byte(ede))
	}
	return dst
}
