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
	if err := route(localRoute(p, lo.Index)); err != nil {
		return fmt.Errorf("making %v local: %w", p, err)
	}
	return nil
}

// localRoute returns an RTM_NEWROUTE message (rtnetlink(7)).
func localRoute(p netip.Prefix, index int) []byte {
	ne := binary.NativeEndian
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg, 64)
	ne.PutUint16(b[4:], unix.RTM_NEWROUTE)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	rt := b[unix.SizeofNlMsghdr:]
	rt[0], rt[1] = unix.AF_INET6, byte(p.Bits())
	rt[4], rt[5], rt[6], rt[7] = unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL
	attr := func(typ uint16, data []byte) {
		b = ne.AppendUint16(b, uint16(unix.SizeofRtAttr+len(data)))
		b = ne.AppendUint16(b, typ)
		b = append(b, data...)
	}
	attr(unix.RTA_DST, p.Masked().Addr().AsSlice())
	attr(unix.RTA_OIF, ne.AppendUint32(nil, uint32(index)))
	ne.PutUint32(b, uint32(len(b)))
	return b
}

// route sends one request to the kernel and returns what it answers.
func route(request []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening rtnetlink: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
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
