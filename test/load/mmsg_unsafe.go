package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is the most datagrams in one system call.
const batchSize = 64

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

var _ [64]byte = [unsafe.Sizeof(mmsghdr{})]byte{}

// sendmmsg sends the messages without blocking and returns how many left.
func sendmmsg(fd int, m []mmsghdr) (int, error) { return mmsg(unix.SYS_SENDMMSG, fd, m) }

// recvmmsg fills the messages without blocking and returns how many came.
func recvmmsg(fd int, m []mmsghdr) (int, error) { return mmsg(unix.SYS_RECVMMSG, fd, m) }

func mmsg(call uintptr, fd int, m []mmsghdr) (int, error) {
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// skMeminfoDrops is SK_MEMINFO_DROPS of linux/sock_diag.h.
const skMeminfoDrops = 8

// socketDrops returns how many datagrams the kernel has dropped on fd for want
// of buffer space.
func socketDrops(fd int) (uint32, error) {
	var info [skMeminfoDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return info[skMeminfoDrops], nil
}
