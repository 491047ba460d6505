package netio

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An address that somebody has bound is refused, with or without SO_REUSEPORT on
// their side, and by a wildcard as well as by itself.
func TestProbeRefusesWhatIsTaken(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "0.0.0.0", "::1", "::"} {
		_, ap := bindUDP(t, addr) // into a reuse-port group, as another instance would
		if err := Probe("udp", ap); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), ap.String()) {
			t.Errorf("udp %v: %v", ap, err)
		}
		fd, ap := bindTCP(t, addr)
		if err := Listen(fd); err != nil {
			t.Fatal(err)
		}
		if err := Probe("tcp", ap); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), ap.String()) {
			t.Errorf("tcp %v: %v", ap, err)
		}
	}
	_, ap := bindUDP(t, "0.0.0.0")
	if err := Probe("udp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), ap.Port())); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("one address beside the wildcard: %v", err)
	}
	if err := Probe("udp", netip.AddrPortFrom(netip.IPv6Unspecified(), ap.Port())); err != nil {
		t.Errorf("IPv6 beside the IPv4 wildcard: %v", err)
	}
	if err := Probe("tcp", ap); err != nil {
		t.Errorf("tcp on a port that is taken for udp: %v", err)
	}
}

// A probe leaves nothing behind, on free and on taken addresses.
func TestProbeLeavesNothing(t *testing.T) {
	held, ap := bindUDP(t, "127.0.0.1")
	before := descriptors(t)
	for range 3 {
		if err := Probe("udp", ap); err == nil {
			t.Fatal("a taken address is free")
		}
	}
	unix.Close(held)
	for range 3 {
		if err := Probe("udp", ap); err != nil {
			t.Fatal(err)
		}
		if err := Probe("tcp", ap); err != nil {
			t.Fatal(err)
		}
	}
	if n := descriptors(t); n != before-1 {
		t.Errorf("%d descriptors, after the probes %d", before-1, n)
	}
}

// Connections in TIME_WAIT do not keep a server from starting again.
func TestProbePassesTimeWait(t *testing.T) {
	fd, ap := bindTCP(t, "127.0.0.1")
	if err := Listen(fd); err != nil {
		t.Fatal(err)
	}
	client, err := net.DialTimeout("tcp", ap.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	await(t, fd)
	conn, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(conn) // the server's FIN is first: the wait is on its side
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Fatal("no FIN")
	}
	client.Close()
	unix.Close(fd)
	if err := Probe("tcp", ap); err != nil {
		t.Error(err)
	}
	fd, err = BindTCP(ap)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

func TestProbeRefusesForeignAddress(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		for _, ap := range []string{"192.0.2.1:5353", "[2001:db8::1]:5353"} {
			if err := Probe(network, netip.MustParseAddrPort(ap)); !errors.Is(err, unix.EADDRNOTAVAIL) {
				t.Errorf("%s %s: %v", network, ap, err)
			}
		}
	}
}

// The sockets of a group share the datagrams of an address, and keep others out.
func TestBindUDPGroup(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		first, ap := bindUDP(t, addr)
		second, _, err := BindUDP(ap)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(second) })
		if _, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(ap)); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("bound beside the group: %v", err)
		}
		var got [2]bool
		for n := 0; !got[0] || !got[1]; n++ {
			if n == 1000 {
				t.Fatalf("1000 flows, and one member had none: %v", got)
			}
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(ap))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			c.Close()
			for i, fd := range []int{first, second} {
				if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT); err == nil {
					got[i] = true
				}
			}
		}
	}
}

func TestBindUDPOptions(t *testing.T) {
	for _, c := range []struct {
		addr     string
		level    int
		discover int
		pktinfo  int
		wildcard int
	}{
		{"127.0.0.1", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PKTINFO, 0},
		{"0.0.0.0", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PKTINFO, 1},
		{"::1", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_RECVPKTINFO, 0},
		{"::", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_RECVPKTINFO, 1},
	} {
		fd, ap := bindUDP(t, c.addr)
		if v := option(t, fd, c.level, c.discover); v != unix.IP_PMTUDISC_OMIT {
			t.Errorf("%v: MTU_DISCOVER is %d", ap, v)
		}
		if v := option(t, fd, c.level, c.pktinfo); v != c.wildcard {
			t.Errorf("%v: PKTINFO is %d", ap, v)
		}
		descriptorFlags(t, fd)
	}
	fd, _ := bindTCP(t, "127.0.0.1")
	descriptorFlags(t, fd)
}

// descriptorFlags checks that no child gets fd by accident, and that nobody
// blocks in accept4.
func descriptorFlags(t *testing.T, fd int) {
	t.Helper()
	if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || f&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, error %v", f, err)
	}
	if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || f&unix.O_NONBLOCK == 0 {
		t.Errorf("status flags %#x, error %v", f, err)
	}
}

func option(t *testing.T, fd, level, name int) int {
	t.Helper()
	v, err := unix.GetsockoptInt(fd, level, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// With CAP_NET_ADMIN the buffers are what is asked for, whatever the system's
// limit; without it a shorter one is used, and reported.
func TestBuffers(t *testing.T) {
	type result struct {
		size  int
		short bool
		err   error
	}
	bind := func(drop bool) result {
		done := make(chan result)
		go func() {
			if drop { // of this thread only, which ends with the goroutine
				runtime.LockOSThread()
				if err := dropNetAdmin(); err != nil {
					done <- result{err: err}
					return
				}
			}
			fd, short, err := BindUDP(netip.MustParseAddrPort("127.0.0.1:0"))
			if err != nil {
				done <- result{err: err}
				return
			}
			size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
			unix.Close(fd)
			done <- result{size, short, err}
		}()
		return <-done
	}
	if unix.Geteuid() == 0 {
		if r := bind(false); r.err != nil || r.short || r.size < 2*RecvBuffer {
			t.Errorf("with CAP_NET_ADMIN: %+v", r)
		}
	} else {
		t.Log("SO_RCVBUFFORCE is not tested: not root")
	}
	r := bind(true)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if want := r.size < 2*RecvBuffer; r.short != want {
		t.Errorf("without CAP_NET_ADMIN: %+v", r)
	}
}

func dropNetAdmin() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return err
	}
	d[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	return unix.Capset(&h, &d[0])
}

// A bound TCP socket takes no connection until Listen; then it does.
func TestListen(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		fd, ap := bindTCP(t, addr)
		if c, err := net.DialTimeout("tcp", ap.String(), patience); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connected before Listen: %v, %v", c, err)
		}
		for range 2 { // again is harmless
			if err := Listen(fd); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := Unaccepted(fd); err != nil || n != 0 {
			t.Errorf("%d connections wait before the first, %v", n, err)
		}
		c, err := net.DialTimeout("tcp", ap.String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		await(t, fd)
		if n, err := Unaccepted(fd); err != nil || n != 1 {
			t.Errorf("%d connections wait, %v; there is one", n, err)
		}
		conn, _, err := unix.Accept(fd)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := Unaccepted(fd); err != nil || n != 0 {
			t.Errorf("%d connections wait after the first was taken, %v", n, err)
		}
		unix.Close(conn)
		c.Close()
		if _, err := BindTCP(ap); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("bound beside a listener: %v", err)
		}
		if _, err := BindTCPShared(ap); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("shared beside a listener: %v", err)
		}
	}
	if err := Listen(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("listening on nothing: %v", err)
	}
}

func TestBindTCPShared(t *testing.T) {
	first, err := BindTCPShared(netip.MustParseAddrPort("[::1]:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(first)
	ap := name(t, first)
	second, err := BindTCPShared(ap)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(second)
	for _, fd := range []int{first, second} {
		if err := Listen(fd); err != nil {
			t.Error(err)
		}
	}
	if err := Probe("tcp", ap); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("the probe passes a listening group: %v", err)
	}
}

// Nothing stays open when a bind fails.
func TestFailedBindsCloseTheirSocket(t *testing.T) {
	plain, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	holder, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	before := descriptors(t)
	if _, _, err := BindUDP(plain.LocalAddr().(*net.UDPAddr).AddrPort()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("BindUDP: %v", err)
	}
	listener := holder.Addr().(*net.TCPAddr).AddrPort()
	if _, err := BindTCP(listener); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("BindTCP: %v", err)
	}
	if _, err := BindTCPShared(listener); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("BindTCPShared: %v", err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

// An IPv4-mapped address is the IPv4 address.
func TestSockaddr(t *testing.T) {
	for in, family := range map[string]int{
		"127.0.0.1:53": unix.AF_INET, "[::ffff:127.0.0.1]:53": unix.AF_INET, "[::1]:53": unix.AF_INET6, "[::]:53": unix.AF_INET6,
	} {
		ap := netip.MustParseAddrPort(in)
		sa, f := Sockaddr(ap)
		if f != family {
			t.Errorf("%s: family %d", in, f)
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			if netip.AddrFrom4(sa.Addr) != ap.Addr().Unmap() || sa.Port != 53 {
				t.Errorf("%s: %+v", in, sa)
			}
		case *unix.SockaddrInet6:
			if netip.AddrFrom16(sa.Addr) != ap.Addr() || sa.Port != 53 {
				t.Errorf("%s: %+v", in, sa)
			}
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

// A steered group gives everything to its first sockets, each flow always to the
// same one; a group that is steered no more uses all of them again.
func TestSteer(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1", "0.0.0.0", "::"} {
		first, ap := bindUDP(t, addr)
		group := []int{first}
		for range 3 {
			fd, _, err := OpenUDP(ap)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := Bind(fd, ap); err != nil {
				t.Fatal(err)
			}
			group = append(group, fd)
		}
		to := ap
		switch addr {
		case "0.0.0.0":
			to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), ap.Port())
		case "::":
			to = netip.AddrPortFrom(netip.IPv6Loopback(), ap.Port())
		}
		var flows []*net.UDPConn
		for range 200 {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			flows = append(flows, c)
		}
		readers := func() (of []int) { // by flow
			for _, c := range flows {
				if _, err := c.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				by := -1
				for i, fd := range group {
					if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT); err == nil {
						by = i
					}
				}
				of = append(of, by)
			}
			return of
		}
		check := func(what string, sockets int) {
			t.Helper()
			of := readers()
			counts := make([]int, len(group)+1)
			for _, i := range of {
				counts[i+1]++
			}
			for i, n := range counts {
				if want := i > 0 && i <= sockets; (n > 0) != want || want && n < len(flows)/sockets/3 {
					t.Errorf("%s, %s: of %d flows %d came to nobody, %v to the sockets", addr, what, len(flows), counts[0], counts[1:])
					break
				}
			}
			if again := readers(); !slices.Equal(of, again) {
				t.Errorf("%s, %s: a flow has changed its socket", addr, what)
			}
		}
		check("not steered", 4)
		for _, n := range []int{1, 3, 2} {
			if err := Steer(group[n-1], ap, n); err != nil {
				t.Fatal(err)
			}
			check("steered to "+strconv.Itoa(n), n)
		}
		if err := Unsteer(first, ap); err != nil {
			t.Fatal(err)
		}
		check("not steered any more", 4)
		if err := Unsteer(first, ap); err != nil {
			t.Errorf("%s: one that is not steered: %v", addr, err)
		}
	}
}

// A socket that is not bound gets nothing, and Bind puts it into the group.
func TestOpenAndBind(t *testing.T) {
	fd, ap := bindUDP(t, "127.0.0.1")
	late, _, err := OpenUDP(ap)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(late)
	if at := name(t, late); at.Port() != 0 {
		t.Errorf("open is bound to %v", at)
	}
	if err := Bind(late, ap); err != nil {
		t.Fatal(err)
	}
	if at := name(t, late); at != ap {
		t.Errorf("bound to %v, want %v", at, ap)
	}
	if err := Bind(fd, ap); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), ap.String()) {
		t.Errorf("bound twice: %v", err)
	}
	if err := Steer(-1, ap, 1); !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), ap.String()) {
		t.Errorf("steered nothing: %v", err)
	}
}
