package server

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/fdstore"
	"github.com/dnsapp/dnsapp/server/netio"
)

// A socket is known again by its name, whatever its address; and a service manager
// takes the name.
func TestStoredName(t *testing.T) {
	for _, k := range []socketKey{
		{address: netip.MustParseAddrPort("127.0.0.1:53")},
		{address: netip.MustParseAddrPort("127.0.0.1:53"), tcp: true},
		{address: netip.MustParseAddrPort("[2001:db8::1]:65535"), lane: 127},
		{address: netip.MustParseAddrPort("[::]:53"), lane: 1},
		{address: netip.MustParseAddrPort("[fe80::1%eth_0.5]:53")},
	} {
		name := storedName(k)
		if strings.Contains(name, ":") || len(name) > fdstore.MaxName {
			t.Errorf("%q is no name", name)
		}
		if got, ok := parseStoredName(name); !ok || got != k {
			t.Errorf("%+v is kept as %q, which is %+v", k, name, got)
		}
	}
	for _, name := range []string{"", "unknown", storedDirectory, "udp", "udp/0", "udp/x/127.0.0.1/53", "udp/-1/127.0.0.1/53", "sctp/0/127.0.0.1/53", "udp/0/127.0.0.1", "udp/70000/127.0.0.1/53"} {
		if k, ok := parseStoredName(name); ok {
			t.Errorf("%q is %+v", name, k)
		}
	}
}

// Of two descriptors with one name the first counts, and is told again.
func TestStoredTwice(t *testing.T) {
	var files []fdstore.File
	for range 2 {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fdstore.File{Name: "twice", FD: fd})
	}
	k := newStored(files, nil, slog.New(slog.DiscardHandler))
	if _, known := k.has["twice"]; known || len(k.files) != 1 {
		t.Errorf("%+v", k)
	}
	if fd := k.take("twice"); fd != files[0].FD || k.take("twice") != -1 {
		t.Errorf("descriptor %d", fd)
	} else {
		unix.Close(fd)
	}
	if _, err := flagsOf(files[1].FD); err == nil {
		t.Error("the second one is open")
	}
}

// flagsOf returns an error for a descriptor that is closed.
func flagsOf(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0) }

// A group that another supervisor has steered to its first sockets is given to all of
// them once there are no more than lanes.
func TestAdoptedGroupIsSteeredNoMore(t *testing.T) {
	ss := newSockets()
	var fds []int
	at := netip.MustParseAddrPort("127.0.0.1:0")
	for range 2 {
		fd, _, err := netio.BindUDP(at)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if at, err = netio.LocalAddr(fd); err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	if err := netio.Steer(fds[0], at, 1); err != nil {
		t.Fatal(err)
	}
	var uses []use
	for lane, fd := range fds {
		s := &socket{socketKey: socketKey{address: at, lane: lane}, id: uint32(lane), fd: fd, bound: true}
		ss.adopt(s)
		uses = append(uses, use{socket: s})
	}
	for range 2 { // the second time there is nothing to do
		if err := ss.steer(uses, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0); err != unix.ENOENT {
		t.Errorf("it was still steered (%v)", err)
	}
}
