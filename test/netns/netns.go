package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideEnv tells the second process that it is the second.
const insideEnv = "DNSAPP_NETNS"

// ErrNotRoot is returned by Enter where the user may not make namespaces.
var ErrNotRoot = errors.New("making a network namespace needs root")

// Enter runs this program once more, with the same arguments, in a new network
// namespace. In the first process it returns the exit code of the second, to exit
// with, and inside is false. In the second it makes loopback usable and returns
// with inside set.
func Enter() (code int, inside bool, err error) {
	if os.Getenv(insideEnv) != "" {
		return 0, true, loopbackUp()
	}
	if os.Geteuid() != 0 {
		return 0, false, ErrNotRoot
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	// An interrupt reaches both by the terminal; a request to end is passed on.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGINT)
	// The death of the thread that starts it ends the child, not only the death of
	// this process: keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("entering a network namespace: %w", err)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(done)
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return 0, false, fmt.Errorf("waiting for the process in the network namespace: %w", err)
	}
	if code = cmd.ProcessState.ExitCode(); code < 0 {
		code = 2 // by a signal
	}
	return code, false, nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	return nil
}

// AddLocal makes every address of an IPv6 prefix an address of this host, as
// 127.0.0.0/8 is without asking (`ip -6 route add local PREFIX dev lo`). A socket
// that binds to one, or sends from one, needs IPV6_FREEBIND.
func AddLocal(p netip.Prefix) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("making %v local: %w", p, err)
	}
	// struct rtmsg: family, prefix length, source length, TOS, table, protocol, scope, type, flags
	m := message(unix.RTM_NEWROUTE, []byte{
		unix.AF_INET6, byte(p.Bits()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0,
	})
	m = attribute(m, unix.RTA_DST, p.Masked().Addr().AsSlice())
	m = attribute(m, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(lo.Index)))
	if err := request(m); err != nil {
		return fmt.Errorf("making %v local: %w", p, err)
	}
	return nil
}

// AddAddress gives loopback another IPv6 address
// (`ip -6 address add ADDRESS/128 dev lo`).
func AddAddress(a netip.Addr) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("adding address %v: %w", a, err)
	}
	// struct ifaddrmsg: family, prefix length, flags, scope, index
	m := message(unix.RTM_NEWADDR, binary.NativeEndian.AppendUint32([]byte{
		unix.AF_INET6, 128, unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE,
	}, uint32(lo.Index)))
	m = attribute(m, unix.IFA_LOCAL, a.AsSlice())
	m = attribute(m, unix.IFA_ADDRESS, a.AsSlice())
	if err := request(m); err != nil {
		return fmt.Errorf("adding address %v: %w", a, err)
	}
	return nil
}

// message returns the beginning of an rtnetlink(7) request, up to its attributes.
func message(typ uint16, header []byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, 64)
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	return append(b, header...)
}

// attribute appends an attribute, whose length is a multiple of 4.
func attribute(m []byte, typ uint16, data []byte) []byte {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(data)))
	m = binary.NativeEndian.AppendUint16(m, typ)
	return append(m, data...)
}

// request sends one request to the kernel and returns what it answers.
func request(m []byte) error {
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening rtnetlink: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to rtnetlink: %w", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return fmt.Errorf("receiving from rtnetlink: %w", err)
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("rtnetlink answered %d bytes that are no acknowledgement", n)
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
