package server

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// TestMain is the children of these tests, too.
func TestMain(m *testing.M) {
	if os.Args[0] == "dnsapp" && len(os.Args) > 1 {
		os.Exit(child(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// child does what a test asks for, says when it has, and ends with its standard
// input.
func child(args []string) int {
	switch args[0] {
	case "sleep":
	case "spin":
		go func() {
			for { //nolint:staticcheck // that is what it is for
			}
		}()
	case "hold": // NETWORK ADDRESS, under the name NAME
		ap := netip.MustParseAddrPort(args[2])
		if err := os.WriteFile("/proc/self/comm", []byte(args[3]), 0); err != nil {
			return 2
		}
		switch args[1] {
		case "tcp":
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(ap))
			if err != nil {
				return 2
			}
			fmt.Println(l.Addr())
		case "udp":
			fd, _, err := netio.BindUDP(ap)
			if err != nil {
				return 2
			}
			sa, err := unix.Getsockname(fd)
			if err != nil {
				return 2
			}
			if in4, ok := sa.(*unix.SockaddrInet4); ok {
				fmt.Println(netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), uint16(in4.Port)))
			} else if in6, ok := sa.(*unix.SockaddrInet6); ok {
				fmt.Println(netip.AddrPortFrom(netip.AddrFrom16(in6.Addr), uint16(in6.Port)))
			}
		}
	default:
		return 2
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// timeLimit bounds every wait of these tests: it only ends a test that fails.
const timeLimit = 10 * time.Second

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(timeLimit)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not after %v: %s", timeLimit, what)
		}
	}
}

// start starts a child and waits until it is ready; said is what it printed
// before. The child ends with the test at the latest.
func start(t *testing.T, args ...string) (p *spawn.Process, said string) {
	t.Helper()
	in, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err = spawn.Start(spawn.Command{Args: args, Files: []int{int(in.Fd()), int(to.Fd()), 2}, Env: []string{"GOMAXPROCS=2"}})
	in.Close()
	to.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Signal(unix.SIGKILL)
		_, _ = p.Wait() // an error says that the test has waited
		end.Close()
		from.Close()
	})
	buf := make([]byte, 1000)
	for n := 0; ; {
		m, err := from.Read(buf[n:])
		if err != nil {
			t.Fatalf("the child ended, having said %q: %v", buf[:n], err)
		}
		n += m
		if text, ok := strings.CutSuffix(string(buf[:n]), "ready\n"); ok {
			return p, strings.TrimSpace(text)
		}
	}
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
