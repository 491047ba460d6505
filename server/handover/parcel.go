package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The limits of a parcel.
const (
	MaxFDs   = 1 << 17  // descriptors
	MaxBytes = 64 << 20 // octets

	// ChunkFDs is how many descriptors one datagram carries; the kernel takes 253.
	ChunkFDs = 128

	chunkBytes = 32 << 10
)

// Parcel is what is moved at once.
type Parcel struct {
	Data []byte
	FDs  []int // close-on-exec where they were received
	PID  int   // of the sender, as the kernel says. Valid iff received with ShowSender; else 0
}

// Close closes the descriptors.
func (p *Parcel) Close() {
	for _, fd := range p.FDs {
		unix.Close(fd)
	}
	p.FDs = nil
}

// head opens every parcel: magic, number of descriptors, number of octets.
const (
	headSize  = 16
	headMagic = 0x31766f68 // "hov1"
)

var ack = []byte{'+'}

// ErrParcel is matched by every error over a parcel that is not one.
var ErrParcel = errors.New("not a parcel")

// Send sends data and fds, which stay the caller's, over a SOCK_SEQPACKET
// connection, and returns when the other side has them. It takes at most d.
func Send(c *net.UnixConn, data []byte, fds []int, d time.Duration) error {
	if err := send(c, data, fds, time.Now().Add(d)); err != nil {
		return fmt.Errorf("sending %d octets and %d descriptors: %w", len(data), len(fds), err)
	}
	return nil
}

func send(c *net.UnixConn, data []byte, fds []int, deadline time.Time) error {
	if len(fds) > MaxFDs || len(data) > MaxBytes {
		return fmt.Errorf("more than %d descriptors or %d octets", MaxFDs, MaxBytes)
	}
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	defer c.SetDeadline(time.Time{}) //nolint:errcheck // the connection is closed, or usable
	head := make([]byte, headSize)
	binary.LittleEndian.PutUint32(head, headMagic)
	binary.LittleEndian.PutUint32(head[4:], uint32(len(fds)))
	binary.LittleEndian.PutUint64(head[8:], uint64(len(data)))
	if err := put(c, head, nil); err != nil {
		return err
	}
	for part := range slices.Chunk(fds, ChunkFDs) {
		if err := put(c, []byte{'f'}, unix.UnixRights(part...)); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(data, chunkBytes) {
		if err := put(c, part, nil); err != nil {
			return err
		}
	}
	return nil
}

// put sends one datagram and waits for its acknowledgement.
func put(c *net.UnixConn, b, oob []byte) error {
	if _, _, err := c.WriteMsgUnix(b, oob, nil); err != nil {
		return err
	}
	var got [1]byte
	n, err := c.Read(got[:])
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	case got[0] != ack[0]:
		return fmt.Errorf("%w: no acknowledgement", ErrParcel)
	}
	return nil
}

// Receive waits for a parcel, whose descriptors become the caller's. From its
// first datagram on it takes at most d; until then it waits as long as the
// connection's own deadline lets it. It returns io.EOF when the other side has
// closed the connection instead.
func Receive(c *net.UnixConn, d time.Duration) (*Parcel, error) {
	p, err := receive(c, d)
	if err != nil {
		p.Close()
		if errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, fmt.Errorf("receiving a parcel: %w", err)
	}
	return p, nil
}

func receive(c *net.UnixConn, d time.Duration) (*Parcel, error) {
	p := new(Parcel)
	oob := make([]byte, unix.CmsgSpace(4*ChunkFDs)+unix.CmsgSpace(unix.SizeofUcred))
	b := make([]byte, chunkBytes)
	n, err := get(c, b, oob, p)
	if err != nil {
		return p, err
	}
	if n != headSize || binary.LittleEndian.Uint32(b) != headMagic {
		return p, fmt.Errorf("%w: a head of %d octets", ErrParcel, n)
	}
	fds, size := int(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint64(b[8:])
	if fds > MaxFDs || size > MaxBytes {
		return p, fmt.Errorf("%w: %d descriptors and %d octets are too many", ErrParcel, fds, size)
	}
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		return p, err
	}
	defer c.SetDeadline(time.Time{}) //nolint:errcheck // the connection is closed, or usable
	if err := confirm(c); err != nil {
		return p, err
	}
	for len(p.FDs) < fds {
		had := len(p.FDs)
		if _, err := get(c, b, oob, p); err != nil {
			return p, err
		}
		if len(p.FDs) == had {
			return p, fmt.Errorf("%w: %d of %d descriptors", ErrParcel, had, fds)
		}
		if err := confirm(c); err != nil {
			return p, err
		}
	}
	for uint64(len(p.Data)) < size {
		n, err := get(c, b, oob, p)
		if err != nil {
			return p, err
		}
		p.Data = append(p.Data, b[:n]...)
		if err := confirm(c); err != nil {
			return p, err
		}
	}
	if len(p.FDs) != fds || uint64(len(p.Data)) != size {
		return p, fmt.Errorf("%w: it has %d descriptors and %d octets, and said %d and %d", ErrParcel, len(p.FDs), len(p.Data), fds, size)
	}
	return p, nil
}

func confirm(c *net.UnixConn) error {
	_, err := c.Write(ack)
	return err
}

// get receives one datagram. What came with it is p's.
func get(c *net.UnixConn, b, oob []byte, p *Parcel) (int, error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, err
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, fmt.Errorf("control message: %w", err)
	}
	for i := range cmsgs {
		m := &cmsgs[i]
		switch m.Header.Type {
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(m)
			if err != nil {
				return 0, fmt.Errorf("descriptors: %w", err)
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
			}
			p.FDs = append(p.FDs, fds...)
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(m)
			if err != nil {
				return 0, fmt.Errorf("credentials: %w", err)
			}
			p.PID = int(cred.Pid)
		}
	}
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		return 0, fmt.Errorf("%w: descriptors were cut off; is the limit of open files (LimitNOFILE, ulimit -n) high enough?", ErrParcel)
	case flags&unix.MSG_TRUNC != 0:
		return 0, fmt.Errorf("%w: a datagram was cut off", ErrParcel)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// ShowSender has Receive tell the sender's pid, or no longer.
func ShowSender(c *net.UnixConn, on bool) error {
	v := 0
	if on {
		v = 1
	}
	return with(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, v) })
}

// Peer returns who connected, seen from the one that accepted.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	var cred *unix.Ucred
	err := with(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	return cred, err
}

// with calls f with the descriptor of c.
func with(c *net.UnixConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// connOf makes a connection of a descriptor, which it takes over.
func connOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return u, nil
}
