package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Op says what a control message is about.
type Op string

// The messages of the supervisor.
const (
	OpWakes   Op = "wakes"   // eventfds of Producer's lanes, the next ones in their order
	OpWindow  Op = "window"  // a window has opened: Producer's lanes may fill the rings that come with it
	OpDrain   Op = "drain"   // report what is left to serve until nothing is
	OpResume  Op = "resume"  // take OpDrain back: this generation owns the wire again
	OpRelease Op = "release" // empty the rings of Window for the last time
	OpClosed  Op = "closed"  // the older generation in slot Producer is gone
	OpRegions Op = "regions" // zone regions (IDs) for the next catalog
	OpZones   Op = "zones"   // answer from the zones of the catalog that comes with it
	OpStop    Op = "stop"    // take no new work
	OpQuit    Op = "quit"    // exit
)

// The messages of a worker. They only hasten: the directory has the facts.
const (
	OpReady    Op = "ready"
	OpReport   Op = "report"   // a drain report has been written
	OpReleased Op = "released" // the rings are empty
	OpZoned    Op = "zoned"    // every lane answers from catalog Version from its next burst on; with Error, none does
)

// Message is one datagram on a control socket (SOCK_SEQPACKET), possibly with
// descriptors.
type Message struct {
	Op       Op     `json:"op"`
	Producer int    `json:"producer,omitempty"` // slot of the generation it is about
	Window   uint32 `json:"window,omitempty"`

	IDs     []uint64 `json:"ids,omitempty"`     // of the zone regions that come with it, at most MaxFDs
	Version uint64   `json:"version,omitempty"` // of a catalog
	Error   string   `json:"error,omitempty"`
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

// SendWindow tells a worker that a window has opened: the rings that the
// generation in slot producer fills for it, and the eventfds of its lanes.
func (l *Link) SendWindow(producer, rings int, wakes []int) error {
	for part := range slices.Chunk(wakes, MaxFDs) {
		if err := l.Send(Message{Op: OpWakes, Producer: producer}, part...); err != nil {
			return err
		}
	}
	return l.Send(Message{Op: OpWindow, Producer: producer}, rings)
}

// Receive waits for a message. Its descriptors are the caller's. It returns
// io.EOF when the other end is closed.
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
		err = errors.New("receiving: message cut short")
	}
	var m Message
	if err == nil {
		err = json.Unmarshal(b[:n], &m)
	}
	if err != nil {
		closeAll(fds)
		return Message{}, nil, err
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
