package netio

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Steer makes the reuse-port group of the bound UDP socket fd give datagrams to
// its first n sockets only, by the hash of their source: the others can then be
// emptied and closed without a loss. fd is any socket of the group of ap.
//
// The sockets of a group count in the order in which they were bound, as long as
// they are closed last first.
func Steer(fd int, ap netip.AddrPort, n int) error {
	// Offsets of the last word of the source address and of the source port from
	// the start of the IP header. (With IP options the second is something else
	// of the packet, which hashes as well.)
	address, port := uint32(12), uint32(20)
	if a := ap.Addr(); a.Is6() && !a.Is4In6() {
		address, port = 20, 40
	}
	const (
		net    = 0xfff00000 // SKF_NET_OFF: offsets from here count from the IP header
		golden = 0x9e3779b1 // spreads neighbouring ports
	)
	p := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: net + address},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: net + port},
		{Code: unix.BPF_ALU | unix.BPF_XOR | unix.BPF_X},
		{Code: unix.BPF_ALU | unix.BPF_MUL | unix.BPF_K, K: golden},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 16},
		{Code: unix.BPF_ALU | unix.BPF_MOD | unix.BPF_K, K: uint32(n)},
		{Code: unix.BPF_RET | unix.BPF_A},
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &prog); err != nil {
		return fmt.Errorf("steering udp %v to %d sockets: %w", ap, n, err)
	}
	return nil
}

// Unsteer gives the choice back to the kernel's own hash, if it has not got it.
func Unsteer(fd int, ap netip.AddrPort) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("steering udp %v no more: %w", ap, err)
	}
	return nil
}
