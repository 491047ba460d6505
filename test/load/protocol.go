package load

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Protocol makes requests and judges answers. It keeps no state of a run and is
// safe for concurrent use.
type Protocol interface {
	// AppendRequest appends request number seq of a flow to b.
	AppendRequest(b []byte, flow int, seq uint32) []byte

	// ID returns the low 16 bits of the request number that an answer is for.
	// ok is false where the protocol's answers carry none: then the oldest open
	// request of the flow is taken as answered.
	ID(answer []byte) (id uint16, ok bool)

	// Check returns an error where answer is not a right one for this request.
	// The tag is zero where the protocol has none.
	Check(answer []byte, flow int, seq uint32) (Tag, error)

	// AppendFrame appends a request as it travels on a stream.
	AppendFrame(b []byte, request []byte) []byte

	// ReadFrame reads one answer from a stream into buf, which it may replace.
	ReadFrame(r *bufio.Reader, buf []byte) ([]byte, error)

	// Leave reports whether an answer on a stream asks the client to send no
	// more on it.
	Leave(answer []byte) bool
}

// Identify is the protocol of `service: identify`: anything is answered with
// the tag of who answers.
type Identify struct{}

var _ Protocol = Identify{}

func (Identify) AppendRequest(b []byte, flow int, seq uint32) []byte {
	b = strconv.AppendInt(b, int64(flow), 10)
	b = append(b, ' ')
	return strconv.AppendUint(b, uint64(seq), 10)
}

func (Identify) ID([]byte) (uint16, bool) { return 0, false }

func (Identify) Check(answer []byte, _ int, _ uint32) (Tag, error) { return ParseTag(answer) }

func (Identify) AppendFrame(b, request []byte) []byte { return append(append(b, request...), '\n') }

func (Identify) ReadFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	return append(buf[:0], line...), err
}

func (Identify) Leave([]byte) bool { return false }

// Rcodes of RFC 1035 4.1.1 that expectations name.
const (
	NoError  = 0
	NXDomain = 3
	AnyRcode = -1
)

// Query is one question and what its answer must look like.
type Query struct {
	Name  string // presentation form without escapes; the final dot is optional
	Type  uint16
	Class uint16 // 0: IN
	Rcode int    // AnyRcode: any
	EDNS  uint16 // UDP payload size to offer (RFC 6891); 0: no OPT record

	// Keepalive adds the edns-tcp-keepalive option, by which the server can ask
	// the client to go (RFC 7828). Valid iff EDNS is not 0 and over TCP.
	Keepalive bool
}

const (
	headerSize      = 12
	typeOPT         = 41
	optionKeepalive = 11
)

// wire returns the query with ID 0 and RD clear, and where its question ends.
func (q Query) wire() (b []byte, end int, err error) {
	b = make([]byte, headerSize, 64)
	binary.BigEndian.PutUint16(b[4:], 1) // QDCOUNT
	for label := range strings.SplitSeq(strings.TrimSuffix(q.Name, "."), ".") {
		if q.Name == "." {
			break
		}
		if label == "" || len(label) > 63 {
			return nil, 0, fmt.Errorf("building a query for %q: label of %d octets", q.Name, len(label))
		}
		b = append(append(b, byte(len(label))), label...)
	}
	b = binary.BigEndian.AppendUint16(append(b, 0), q.Type)
	b = binary.BigEndian.AppendUint16(b, max(q.Class, 1))
	end = len(b)
	if q.EDNS != 0 {
		b[11] = 1 // ARCOUNT
		b = binary.BigEndian.AppendUint16(append(b, 0, 0, typeOPT), q.EDNS)
		b = append(b, 0, 0, 0, 0) // extended rcode, version, flags
		if q.Keepalive {
			b = append(b, 0, 4, 0, optionKeepalive, 0, 0)
		} else {
			b = append(b, 0, 0)
		}
	}
	return b, end, nil
}

// DNS asks a list of queries in turn.
type DNS struct {
	queries []Query
	wires   [][]byte
	ends    []int // of the questions in wires
}

var _ Protocol = (*DNS)(nil)

// NewDNS returns a protocol that asks these queries, each flow beginning at
// another one. The answer must have the request's ID and question, to the octet
// (RFC 1035 7.3), QR set and the expected rcode. A TXT answer of class CH is read as
// a tag.
func NewDNS(queries []Query) (*DNS, error) {
	if len(queries) == 0 {
		return nil, errors.New("building the DNS load: no query")
	}
	p := &DNS{queries: queries, wires: make([][]byte, len(queries)), ends: make([]int, len(queries))}
	for i, q := range queries {
		var err error
		if p.wires[i], p.ends[i], err = q.wire(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// index spreads the flows over the list with a stride that shares no factor
// with it for any realistic length (it is prime).
func (p *DNS) index(flow int, seq uint32) int {
	return int((uint64(flow)*104729 + uint64(seq)) % uint64(len(p.queries)))
}

func (p *DNS) AppendRequest(b []byte, flow int, seq uint32) []byte {
	start := len(b)
	b = append(b, p.wires[p.index(flow, seq)]...)
	binary.BigEndian.PutUint16(b[start:], uint16(seq))
	return b
}

func (*DNS) ID(answer []byte) (uint16, bool) {
	if len(answer) < 2 {
		return 0, true
	}
	return binary.BigEndian.Uint16(answer), true
}

const (
	flagQR    = 0x8000
	flagTC    = 0x0200
	maskRcode = 0x000f
	typeTXT   = 16
	classCH   = 3
)

func (p *DNS) Check(answer []byte, flow int, seq uint32) (Tag, error) {
	i := p.index(flow, seq)
	q, w, end := &p.queries[i], p.wires[i], p.ends[i]
	if len(answer) < end {
		return Tag{}, fmt.Errorf("answer to %s: %d octets, the question alone has %d", q.Name, len(answer), end)
	}
	flags := binary.BigEndian.Uint16(answer[2:])
	switch {
	case flags&flagQR == 0:
		return Tag{}, fmt.Errorf("answer to %s: QR is clear", q.Name)
	case flags&flagTC != 0:
		return Tag{}, fmt.Errorf("answer to %s: truncated", q.Name)
	case q.Rcode != AnyRcode && int(flags&maskRcode) != q.Rcode:
		return Tag{}, fmt.Errorf("answer to %s: rcode %d, not %d", q.Name, flags&maskRcode, q.Rcode)
	case binary.BigEndian.Uint16(answer[4:]) != 1 || !bytes.Equal(answer[headerSize:end], w[headerSize:end]):
		return Tag{}, fmt.Errorf("answer to %s: the question is not echoed", q.Name)
	}
	if q.Type != typeTXT || q.Class != classCH {
		return Tag{}, nil
	}
	text, err := firstTXT(answer, end)
	if err != nil {
		return Tag{}, fmt.Errorf("answer to %s: %w", q.Name, err)
	}
	return ParseTag(text)
}

// firstTXT returns the first string of the first answer record, a TXT record
// (RFC 1035 3.3.14). off is where the question ends.
func firstTXT(m []byte, off int) ([]byte, error) {
	if binary.BigEndian.Uint16(m[6:]) == 0 {
		return nil, errors.New("no answer record")
	}
	typ, data, _ := record(m, off)
	if typ != typeTXT || len(data) == 0 || int(data[0]) >= len(data) {
		return nil, errors.New("no TXT record in the answer section")
	}
	return data[1 : 1+int(data[0])], nil
}

// record returns the type and RDATA of the record at off and where the next one
// begins (RFC 1035 4.1.3); next is 0 where there is no whole record.
func record(m []byte, off int) (typ uint16, data []byte, next int) {
	off = skipName(m, off)
	const fixed = 10 // type, class, TTL, RDLENGTH
	if off == 0 || off+fixed > len(m) {
		return 0, nil, 0
	}
	data = m[off+fixed:]
	n := int(binary.BigEndian.Uint16(m[off+8:]))
	if n > len(data) {
		return 0, nil, 0
	}
	return binary.BigEndian.Uint16(m[off:]), data[:n], off + fixed + n
}

// skipName returns where the name at off ends (RFC 1035 4.1.4), 0 where it
// leaves the message.
func skipName(m []byte, off int) int {
	for off < len(m) {
		switch n := int(m[off]); {
		case n == 0:
			return off + 1
		case n >= 0xc0:
			return off + 2
		default:
			off += 1 + n
		}
	}
	return 0
}

// Leave reports whether the answer holds edns-tcp-keepalive with a time-out of 0.
func (*DNS) Leave(answer []byte) bool {
	if len(answer) < headerSize {
		return false
	}
	off := headerSize
	for range binary.BigEndian.Uint16(answer[4:]) {
		if off = skipName(answer, off); off == 0 {
			return false
		}
		off += 4
	}
	for off != 0 && off < len(answer) {
		typ, data, next := record(answer, off)
		for typ == typeOPT && len(data) >= 4 {
			n := int(binary.BigEndian.Uint16(data[2:]))
			if n > len(data)-4 {
				break
			}
			if binary.BigEndian.Uint16(data) == optionKeepalive && n == 2 {
				return data[4] == 0 && data[5] == 0
			}
			data = data[4+n:]
		}
		off = next
	}
	return false
}

func (*DNS) AppendFrame(b, request []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(request))), request...)
}

func (*DNS) ReadFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, fmt.Errorf("reading an answer of %d octets: %w", n, err)
	}
	return buf, nil
}
