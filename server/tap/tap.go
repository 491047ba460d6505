package tap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// QueueLength is how many frames the device keeps until they are read: 100 ms at
// 100,000 frames/s.
const QueueLength = 10_000

// MaxName is the longest name of a device, in octets (IFNAMSIZ without its end).
const MaxName = unix.IFNAMSIZ - 1

// ErrNotTAP is wrapped by the errors of Open where the name is that of another device.
var ErrNotTAP = errors.New("it is a device of another kind")

// Open makes the TAP device with this name, or joins it if it is there and nobody
// else reads it (ip tuntap add mode tap). The descriptor is non-blocking and
// close-on-exec. The device is down until Configure.
func Open(name string) (fd int, err error) {
	fail := func(what string, err error) (int, error) {
		return -1, fmt.Errorf("opening TAP device %s: %s: %w", name, what, err)
	}
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fail("/dev/net/tun", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		unix.Close(fd)
		return fail(fmt.Sprintf("a name has 1 to %d octets", MaxName), err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		switch {
		case errors.Is(err, unix.EINVAL):
			err = errors.Join(err, ErrNotTAP)
		case errors.Is(err, unix.EBUSY):
			err = fmt.Errorf("another process has it: %w", err)
		case errors.Is(err, unix.EPERM):
			err = fmt.Errorf("without CAP_NET_ADMIN: %w", err)
		}
		return fail("TUNSETIFF", err)
	}
	return fd, nil
}

// NameOf returns the name of the device behind fd, as it is now. Its error says that
// fd is no TAP device.
func NameOf(fd int) (string, error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil {
		return "", fmt.Errorf("descriptor %d is no TAP device: %w", fd, err)
	}
	if req.Uint16()&unix.IFF_TAP == 0 {
		return "", fmt.Errorf("descriptor %d: %w", fd, ErrNotTAP)
	}
	return req.Name(), nil
}

// Settings are what the kernel is told about the device.
type Settings struct {
	MAC       [6]byte // zero: as it is
	MTU       int     // octets of an IP packet, at least 68; with IPv6 1280
	Addresses []netip.Prefix
}

// Configure makes the device with this name have these settings, and up. What is so
// already is not touched. before are the settings of an earlier Configure, if there
// was one: addresses that are in before alone are taken away. Others that somebody
// has given the device stay.
func Configure(name string, now, before Settings) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("configuring TAP device %s: %w", name, err)
	}
	fail := func(what string, err error) error {
		return fmt.Errorf("configuring TAP device %s: %s: %w", name, what, err)
	}
	n, err := dialNetlink()
	if err != nil {
		return fail("netlink", err)
	}
	defer n.close()
	if err := n.setLink(link, now.MAC, now.MTU); err != nil {
		return fail(fmt.Sprintf("link address %v, MTU %d, up", net.HardwareAddr(now.MAC[:]), now.MTU), err)
	}
	for _, a := range before.Addresses {
		if !contains(now.Addresses, a) {
			if err := n.address(unix.RTM_DELADDR, link.Index, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fail("taking away address "+a.String(), err)
			}
		}
	}
	for _, a := range now.Addresses {
		if err := n.address(unix.RTM_NEWADDR, link.Index, a); err != nil {
			return fail("address "+a.String(), err)
		}
	}
	return nil
}

func contains(list []netip.Prefix, p netip.Prefix) bool {
	for _, o := range list {
		if o == p {
			return true
		}
	}
	return false
}

// Port is a device's end in one lane. It counts what becomes of frames.
type Port struct {
	FD int

	Received uint64 // frames read
	Sent     uint64 // frames written
	Lost     uint64 // frames that the kernel did not take: the device is down, or it has no memory
}

// Write gives one Ethernet frame, without its checksum, to the kernel, which copies
// it. It never blocks.
func (p *Port) Write(frame []byte) {
	for {
		_, err := unix.Write(p.FD, frame)
		switch {
		case err == nil:
			p.Sent++
		case errors.Is(err, unix.EINTR):
			continue
		default:
			p.Lost++
		}
		return
	}
}

// Read reads one frame of the kernel's into b and returns its length; 0 where there
// is none. A frame that is longer than b is cut. It never blocks.
func (p *Port) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.FD, b)
		switch {
		case err == nil:
			p.Received++
			return n, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return 0, fmt.Errorf("reading a TAP device: %w", err)
		}
	}
}
