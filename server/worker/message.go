package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Op says what a control message is about.
type Op string

// The messages of the supervisor.
const (
	OpWakes   Op = "wakes"   // eventfds of Producer's lanes, from that with number First on
	OpWindow  Op = "window"  // a newer generation is to get the wire: see SendWindow
	OpDrain   Op = "drain"   // report what is left to serve until nothing is
	OpResume  Op = "resume"  // take OpDrain back: this generation owns the wire again
	OpRelease Op = "release" // empty the rings of Window for the last time
	OpClosed  Op = "closed"  // the generation in slot Producer is gone
	OpRegions Op = "regions" // zone regions (IDs) for the next catalog
	OpZones   Op = "zones"   // answer from the zones of the catalog that comes with it
	OpTrace   Op = "trace"   // copy what Filter lets through, Snap octets of each, to the region that comes with it; without one, nothing
	OpStop    Op = "stop"    // take no new work
	OpQuit    Op = "quit"    // exit
)

// The messages of a worker. They only hasten: the directory has the facts.
const (
	OpReady    Op = "ready"
	OpReport   Op = "report"   // a drain report has been written
	OpReleased Op = "released" // the rings are empty
	OpLost     Op = "lost"     // a message did not come whole: say everything again
	OpZoned    Op = "zoned"    // every lane answers from catalog Version from its next burst on; with Error, none does
)

// Message is one datagram on a control socket (SOCK_SEQPACKET), possibly with
// descriptors.
type Message struct {
	Op       Op     `json:"op"`
	Producer int    `json:"producer,omitempty"` // slot of the generation it is about
	Epoch    uint32 `json:"epoch,omitempty"`    // its epoch
	First    int    `json:"first,omitempty"`    // number of the first eventfd that comes with it
	Window   uint32 `json:"window,omitempty"`

	IDs     []uint64 `json:"ids,omitempty"`     // of the zone regions that come with it, at most MaxFDs
	Version uint64   `json:"version,omitempty"` // of a catalog
	Error   string   `json:"error,omitempty"`

	Filter string `json:"filter,omitempty"` // see trace.Parse
	Snap   int    `json:"snap,omitempty"`
}

// maxMessage bounds a message, in octets, and MaxFDs its descriptors.
const (
	maxMessage = 4096
	MaxFDs     = 128 // the kernel takes 253
)

// Link is one end of a control socket.
type Link struct{ conn *net.UnixConn }

// NewLink wraps fd, one end of a SOCK_SEQPACKET pair, and takes it over.
func NewLink(fd int) (*Link, error) {
	f := os.NewFile(uintptr(fd), "control")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("opening the control socket: not a unix socket")
	}
	return &Link{conn: u}, nil
}

// LinkOf makes a link of a connection on which an estate was received. It takes c
// over.
func LinkOf(c *net.UnixConn) *Link { return &Link{conn: c} }

// Send sends m with descriptors, which stay the caller's.
func (l *Link) Send(m Message, fds ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("sending %s: %w", m.Op, err)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := l.conn.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("sending %s: %w", m.Op, err)
	}
	return nil
}

// Window is what a worker is told of a newer generation: the rings that its lanes
// fill for the worker, and, should the wire come back, its flow table and the
// rings to it. They are descriptors, which stay the caller's.
type Window struct {
	Slot  int // of the newer generation
	Epoch uint32
	Wakes []int // eventfds of its lanes
	From  int   // the rings it fills
	Table int
	To    int // the rings to it
}

// SendWindow sends win. It may be sent again.
func (l *Link) SendWindow(win Window) error {
	for first := 0; first < len(win.Wakes); first += MaxFDs {
		part := win.Wakes[first:min(first+MaxFDs, len(win.Wakes))]
		if err := l.Send(Message{Op: OpWakes, Producer: win.Slot, Epoch: win.Epoch, First: first}, part...); err != nil {
			return err
		}
	}
	return l.Send(Message{Op: OpWindow, Producer: win.Slot, Epoch: win.Epoch}, win.From, win.Table, win.To)
}

// ErrLost is wrapped by the errors of Receive after which the next message may be
// received, and one is missing: the kernel, short of descriptors or memory, or the
// sender has spoilt it.
var ErrLost = errors.New("control message lost")

// Receive waits for a message. Its descriptors are the caller's. It returns
// io.EOF when the other end is closed, and ErrLost for a message that it closed
// the descriptors of.
func (l *Link) Receive() (Message, []int, error) {
	b := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*MaxFDs))
	n, oobn, flags, _, err := l.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return Message{}, nil, fmt.Errorf("receiving: %w", err)
	}
	if n == 0 {
		return Message{}, nil, io.EOF
	}
	fds, err := rights(oob[:oobn])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("it was cut short: too many descriptors are open, or it is too long")
	}
	var m Message
	if err == nil {
		err = json.Unmarshal(b[:n], &m)
	}
	if err != nil {
		closeAll(fds)
		return Message{}, nil, fmt.Errorf("receiving: %w: %w", ErrLost, err)
	}
	return m, fds, nil
}

func rights(oob []byte) ([]int, error) {
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receiving descriptors: %w", err)
	}
	var fds []int
	for i := range cmsgs {
		f, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("receiving descriptors: %w", err)
		}
		fds = append(fds, f...)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Close closes this end.
func (l *Link) Close() error { return l.conn.Close() }
