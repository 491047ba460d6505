// Package identify is the service by which anyone sees which generation served
// a flow: it answers every datagram, and every line on a stream, with
//
//	epoch=N worker=I lane=L pid=P config=NAME
//
// Invariant: the answer depends on nothing but the process and lane that gave
// it, so it never differs within one.
package identify

import (
	"fmt"

	"github.com/dnsapp/dnsapp/server/burst"
)

// Text returns the answer of one lane, with the newline.
func Text(epoch uint32, worker, lane, pid int, name string) string {
	return fmt.Sprintf("epoch=%d worker=%d lane=%d pid=%d config=%s\n", epoch, worker, lane, pid, name)
}

// Lane answers datagrams. It implements burst.Handler.
type Lane struct {
	text []byte
}

// NewLane returns a handler that answers text to every datagram.
func NewLane(text string) *Lane { return &Lane{text: []byte(text)} }

// ServeBurst implements burst.Handler.
func (l *Lane) ServeBurst(b *burst.Burst) {
	for i := range b.N {
		p := &b.Packets[i]
		p.Reply = append(p.Reply, l.text...)
	}
}
