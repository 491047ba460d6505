package stream

import (
	"bufio"

	"github.com/dnsapp/dnsapp/server/counters"
)

// Lines answers every line of a connection with the same text.
type Lines struct{ Text []byte }

// maxLine bounds a line, in octets. A longer one ends the connection.
const maxLine = 64 << 10

// ServeStream implements Handler.
func (l *Lines) ServeStream(c *Conn) {
	if err := c.AwaitQuery(); err != nil {
		c.LogEnd(err)
		return
	}
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		if in.Err() != nil { // what came of a line before the time was up
			break
		}
		c.Begin()
		c.Block.Add(counters.TCPQueries, 1)
		err := c.WriteAnswer(l.Text)
		if err == nil {
			c.Block.Add(counters.TCPAnswers, 1)
		} else {
			c.Block.Add(counters.DroppedTCP+counters.ID(counters.DropSend), 1)
		}
		c.End()
		if err == nil {
			err = c.AwaitQuery()
		}
		if err != nil {
			c.LogEnd(err)
			return
		}
	}
	c.LogEnd(in.Err())
}
