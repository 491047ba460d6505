package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// Kind says what a Message is.
type Kind string

// The messages, in the order of a hand-over. The one that has the instance is the
// giver, the other the taker.
//
//	taker                      giver
//	Hello(terms, place) ->
//	                       <- Refused(reason), and it is over
//	                       <- Offer(lock; number of estates), then the estates
//	Taken ->                   (the taker coordinates)
//	News... ->
//	Committed ->               (the taker's own generation has the wire)
//	News... ->
//	Done(report) ->            (nothing of the giver's generation is left)
//
// Instead of Taken and of Done, Failed says that the taker has given everything back
// and ends. So does the end of the connection. From Taken on the one that coordinates
// may say Leave, and from Committed on Return: the other one ends, or takes the
// instance back as a taker. Giver and Taker have the rules.
const (
	Hello     Kind = "hello"
	Refused   Kind = "refused"
	Offer     Kind = "offer"
	Taken     Kind = "taken"
	News      Kind = "news"
	Committed Kind = "committed"
	Done      Kind = "done"
	Failed    Kind = "failed"
	Leave     Kind = "leave"
	Return    Kind = "return"
)

// Message is one datagram between two supervisors.
type Message struct {
	Kind     Kind            `json:"kind"`
	Protocol uint32          `json:"protocol,omitempty"` // of Hello
	Terms    Terms           `json:"terms,omitempty"`    // of Hello
	Place    Place           `json:"place,omitzero"`     // of Hello
	Version  string          `json:"version,omitempty"`  // of Hello and Offer: of the binary
	Estates  int             `json:"estates,omitempty"`  // of Offer: how many follow
	Early    bool            `json:"early,omitempty"`    // of Offer: Return may come before Done
	Reason   string          `json:"reason,omitempty"`   // of Refused and Failed; of Leave: "" in a stop
	Body     json.RawMessage `json:"body,omitempty"`     // of News and Done: what the supervisors know
}

// maxMessage bounds a message, in octets.
const maxMessage = 64 << 10

// Tell sends m with descriptors, which stay the caller's. A body that is too long
// is left out, and a reason cut.
func Tell(c *net.UnixConn, m Message, fds ...int) error {
	m.Reason = m.Reason[:min(len(m.Reason), maxMessage/4)]
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxMessage {
		m.Body = nil
		b, err = json.Marshal(m)
	}
	if err != nil {
		return fmt.Errorf("saying %s: %w", m.Kind, err)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("saying %s: %w", m.Kind, err)
	}
	return nil
}

// Gone reports whether err says that the other side has closed its end, in the middle
// of whatever it was: mostly because it has ended.
func Gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// Hear waits for a message, as long as the connection's deadline lets it. The
// descriptors are the caller's. It returns io.EOF when the other side is gone.
func Hear(c *net.UnixConn) (Message, []int, error) {
	p := new(Parcel)
	b := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*ChunkFDs)+unix.CmsgSpace(unix.SizeofUcred))
	n, err := get(c, b, oob, p)
	if Gone(err) {
		err = io.EOF
	}
	var m Message
	if err == nil {
		err = json.Unmarshal(b[:n], &m)
	}
	if err != nil {
		p.Close()
		if errors.Is(err, io.EOF) {
			return m, nil, io.EOF
		}
		return m, nil, fmt.Errorf("listening to the other supervisor: %w", err)
	}
	return m, p.FDs, nil
}

// HearOne waits for a message of one of these kinds. Another kind is an error, as
// are descriptors where there should be none.
func HearOne(c *net.UnixConn, kinds ...Kind) (Message, error) {
	m, fds, err := Hear(c)
	if err != nil {
		return m, err
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if !slices.Contains(kinds, m.Kind) || len(fds) > 0 {
		return m, fmt.Errorf("the other supervisor says %q with %d descriptors, and %v was due", m.Kind, len(fds), kinds)
	}
	return m, nil
}
