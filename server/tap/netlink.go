package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// netlink is a rtnetlink(7) socket for requests that are acknowledged.
type netlink struct {
	fd  int
	seq uint32
	buf [4096]byte
}

func dialNetlink() (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening: %w", err)
	}
	return &netlink{fd: fd}, nil
}

func (n *netlink) close() { unix.Close(n.fd) }

// request returns the beginning of a request, up to its attributes.
func request(typ uint16, header []byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, 128)
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	return append(b, header...)
}

// attribute appends an attribute and what fills it up to a multiple of 4.
func attribute(m []byte, typ uint16, data []byte) []byte {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(data)))
	m = binary.NativeEndian.AppendUint16(m, typ)
	m = append(m, data...)
	return append(m, make([]byte, -len(data)&3)...)
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// setLink sets the link address (unless it is zero), the MTU and the length of the
// queue of a device, and brings it up.
func (n *netlink) setLink(link *net.Interface, mac [6]byte, mtu int) error {
	// struct ifinfomsg: family and padding, type, index, flags, change
	h := append([]byte{unix.AF_UNSPEC, 0, 0, 0}, u32(uint32(link.Index))...)
	h = append(h, u32(unix.IFF_UP)...)
	h = append(h, u32(unix.IFF_UP)...)
	m := request(unix.RTM_NEWLINK, h)
	// A change of the link address flushes neighbours, also one to the same.
	if mac != [6]byte{} && string(link.HardwareAddr) != string(mac[:]) {
		m = attribute(m, unix.IFLA_ADDRESS, mac[:])
	}
	m = attribute(m, unix.IFLA_MTU, u32(uint32(mtu)))
	m = attribute(m, unix.IFLA_TXQLEN, u32(QueueLength))
	return n.do(m)
}

// address adds an address to a device, or takes one away. Whether somebody else has
// it is not asked: a generation before may have asked already.
func (n *netlink) address(typ uint16, index int, p netip.Prefix) error {
	family := uint8(unix.AF_INET)
	if p.Addr().Is6() {
		family = unix.AF_INET6
	}
	// struct ifaddrmsg: family, prefix length, flags, scope, index
	m := request(typ, append([]byte{family, uint8(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}, u32(uint32(index))...))
	m = attribute(m, unix.IFA_LOCAL, p.Addr().AsSlice())
	m = attribute(m, unix.IFA_ADDRESS, p.Addr().AsSlice())
	if typ == unix.RTM_NEWADDR {
		binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	}
	return n.do(m)
}

// do sends a request and returns what the kernel says to it.
func (n *netlink) do(m []byte) error {
	n.seq++
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint32(m[8:], n.seq)
	if err := unix.Sendto(n.fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to netlink: %w", err)
	}
	for {
		got, _, err := unix.Recvfrom(n.fd, n.buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving from netlink: %w", err)
		}
		if got < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(n.buf[4:]) != unix.NLMSG_ERROR {
			return fmt.Errorf("netlink answered %d octets that are no acknowledgement", got)
		}
		if errno := -int32(binary.NativeEndian.Uint32(n.buf[unix.SizeofNlMsghdr:])); errno != 0 {
			return unix.Errno(errno)
		}
		return nil
	}
}
