package worker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
)

func manifest() *Manifest {
	return &Manifest{
		Protocol: Protocol, Epoch: 7, Slot: 2, Index: 1,
		Config: &config.Config{
			Name: "edge", Workers: 2, Lanes: 1, Zones: []config.Zone{{Name: "example.com.", File: "/etc/zone"}},
			Reload: config.Reload{UDPIdle: 10 * time.Second},
			Listeners: []config.Listener{
				{Name: "dns", Address: []netip.AddrPort{netip.MustParseAddrPort("[::1]:53")}, UDP: true, Service: config.ServiceDNS},
			},
		},
		Directory: 5, Counters: 6, Tables: [4]int{0, 0, 7, 0}, Wakes: [4][]int{2: {8, 9}},
		Rings:   []RingRef{{Producer: 2, Consumer: 1, FD: 10}},
		Sockets: []SocketRef{{ID: 3, FD: 11, Address: netip.MustParseAddrPort("[::1]:53"), Lane: 1}},
	}
}

// A manifest is read as it was written, by every worker that gets the descriptor,
// and nobody can change it.
func TestManifest(t *testing.T) {
	want := manifest()
	fd, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 2 { // descriptors of one file share its offset
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readManifest(other)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
		if _, err := unix.FcntlInt(uintptr(other), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("the descriptor was not closed: %v", err)
		}
	}
	if _, err := unix.Pwrite(fd, []byte("x"), 0); err != unix.EPERM {
		t.Errorf("written to: %v", err)
	}
	if err := unix.Ftruncate(fd, 1); err != unix.EPERM {
		t.Errorf("cut: %v", err)
	}
}

func TestManifestRefused(t *testing.T) {
	encoded := func(change func(m *Manifest)) int {
		m := manifest()
		change(m)
		fd, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	good := encoded(func(*Manifest) {})
	text := make([]byte, 1<<16)
	n, err := unix.Pread(good, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(good)
	take := func(fd int) int { // for readManifest, which closes it
		fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for name, c := range map[string]struct {
		fd   int
		want string
	}{
		"empty":            {take(memfd(t, "m", "")), "end of JSON"},
		"cut":              {take(memfd(t, "m", string(text[:n-1]))), "end of JSON"},
		"longer":           {take(memfd(t, "m", string(text[:n])+"x")), "after top-level value"},
		"other types":      {take(memfd(t, "m", `{"protocol":"one"}`)), "cannot unmarshal"},
		"no config":        {encoded(func(m *Manifest) { m.Config = nil }), "out of range"},
		"another protocol": {encoded(func(m *Manifest) { m.Protocol++ }), fmt.Sprintf("this binary speaks %d", Protocol)},
		"slot too small":   {encoded(func(m *Manifest) { m.Slot = -1 }), "out of range"},
		"slot too large":   {encoded(func(m *Manifest) { m.Slot = 4 }), "out of range"},
		"worker too small": {encoded(func(m *Manifest) { m.Index = -1 }), "out of range"},
		"worker too large": {encoded(func(m *Manifest) { m.Index = 2 }), "out of range"},
		"not open":         {1 << 20, "started by dnsapp serve only"},
	} {
		before := descriptors(t)
		if _, err := readManifest(c.fd); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "reading the manifest") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if n := descriptors(t); n != before-1 && name != "not open" {
			t.Errorf("%s: %d descriptors before, %d after", name, before, n)
		}
	}
}
