package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
)

// Answerer answers DNS messages. One is used by one goroutine at a time.
type Answerer interface {
	// AnswerStream appends to dst the answer to query, which client sent over TCP,
	// and says of what class it is. An answer not given has its reason.
	AnswerStream(dst, query []byte, client netip.AddrPort) ([]byte, counters.Class, counters.Reason)
}

// Messages serves DNS over TCP (RFC 7766): any number of queries a connection,
// pipelined or not, answered in their order.
type Messages struct {
	pool sync.Pool
}

// NewMessages returns a handler whose Answerers come from newAnswerer.
func NewMessages(newAnswerer func() Answerer) *Messages {
	m := new(Messages)
	m.pool.New = func() any { return &exchange{answerer: newAnswerer()} }
	return m
}

// exchange is what one query needs while it is read and answered, so that a
// connection that waits holds no buffers at all.
type exchange struct {
	answerer Answerer
	in       [readSize]byte
	out      []byte
}

const (
	lengthSize = 2
	maxMessage = 1<<16 - 1
	readSize   = 4096
)

// ServeStream implements Handler.
func (m *Messages) ServeStream(c *Conn) { c.LogEnd(m.serve(c)) }

func (m *Messages) serve(c *Conn) error {
	r := newReader(m, c)
	var held []byte // the beginning of a message
	for {
		if err := c.AwaitQuery(); err != nil {
			return err
		}
		for answered := false; !answered; {
			x, n, err := r.read(missing(held))
			if n > 0 {
				var answerErr error
				held, answered, answerErr = m.take(c, x, held, n)
				if answerErr != nil {
					err = answerErr
				}
			}
			if x != nil {
				m.pool.Put(x)
			}
			if errors.Is(err, io.EOF) && len(held) > 0 {
				return io.ErrUnexpectedEOF
			}
			if err != nil {
				return err
			}
		}
	}
}

// missing returns how many octets must come before anything can be done about
// held.
func missing(held []byte) int {
	switch {
	case len(held) == 0:
		return 1
	case len(held) < lengthSize:
		return lengthSize - len(held)
	}
	return lengthSize + int(binary.BigEndian.Uint16(held)) - len(held)
}

// take answers the messages that held and the n octets in x make complete, and
// returns the beginning of the next one.
func (m *Messages) take(c *Conn, x *exchange, held []byte, n int) (rest []byte, answered bool, err error) {
	in := x.in[:n]
	if len(held) > 0 {
		held = append(held, in...)
		in = held
	}
	if complete(in) == 0 {
		if len(held) == 0 {
			held = bytes.Clone(in)
		}
		return held, false, nil
	}
	used, err := m.answer(c, x, in)
	if used == len(in) {
		return nil, true, err
	}
	return bytes.Clone(in[used:]), true, err
}

// complete returns the length on the wire of the message that in begins with,
// or 0 while it is not all there.
func complete(in []byte) int {
	if len(in) < lengthSize {
		return 0
	}
	if n := lengthSize + int(binary.BigEndian.Uint16(in)); len(in) >= n {
		return n
	}
	return 0
}

// flushSize is how many octets of answers are gathered before they are written.
const flushSize = 16 << 10

// answer answers all complete messages in in, with as few writes as possible,
// and returns how much of in they took.
func (m *Messages) answer(c *Conn, x *exchange, in []byte) (used int, err error) {
	c.Begin()
	defer c.End()
	x.out = x.out[:0]
	answers := uint64(0)
	flush := func() error {
		if len(x.out) == 0 {
			return nil
		}
		err := c.WriteAnswer(x.out)
		if err != nil {
			c.Block.Add(counters.DroppedTCP+counters.ID(counters.DropSend), answers)
		} else {
			c.Block.Add(counters.TCPAnswers, answers)
		}
		x.out, answers = x.out[:0], 0
		return err
	}
	for {
		n := complete(in[used:])
		if n == 0 {
			return used, flush()
		}
		query := in[used+lengthSize : used+n]
		used += n
		c.Block.Add(counters.TCPQueries, 1)
		start := len(x.out)
		x.out = append(x.out, 0, 0)
		began := time.Now()
		out, class, drop := x.answerer.AnswerStream(x.out, query, c.remote)
		if drop != counters.NotDropped {
			x.out = x.out[:start]
			c.Block.Add(counters.DroppedTCP+counters.ID(drop), 1)
			continue
		}
		x.out = out
		binary.BigEndian.PutUint16(x.out[start:], uint16(len(x.out)-start-lengthSize))
		answers++
		took := int64(time.Since(began))
		c.Block.Add(counters.LatencyID(counters.TCP, class, took), 1)
		c.Block.Add(counters.LatencyNsID(counters.TCP, class), uint64(took))
		if len(x.out) >= flushSize {
			if err := flush(); err != nil {
				return used, err
			}
		}
	}
}
