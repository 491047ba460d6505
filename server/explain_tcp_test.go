package server

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/dnsapp/dnsapp/server/control"
)

// Connections are found as the kernel lists them, with the process that holds
// them, and one that nobody has accepted is told from one that somebody has.
func TestConnections(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		q := control.FlowQuery{Transport: "tcp", Remote: c.LocalAddr().(*net.TCPAddr).AddrPort()}
		local := netip.MustParseAddrPort(l.Addr().String())
		one := func() connection {
			t.Helper()
			found, err := connections(q)
			if err != nil || len(found) != 1 || found[0].local != local || found[0].state != "ESTABLISHED" {
				t.Fatalf("%s: %+v, %v", address, found, err)
			}
			return found[0]
		}
		if waits := one(); unowned(waits) != "in the accept queue: no worker has taken it yet" {
			t.Errorf("before it is accepted: %s", unowned(waits))
		}
		taken, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		held := one()
		if has, err := holds(os.Getpid(), held.inode); !has || err != nil {
			t.Errorf("we hold it: %v, %v", has, err)
		}
		if has, err := holds(os.Getpid(), "1"); has || err != nil {
			t.Errorf("we hold a socket that is not there: %v, %v", has, err)
		}
		if got := unowned(held); got != "no worker holds it any more" {
			t.Error(got)
		}

		q.Local = netip.AddrPortFrom(local.Addr(), local.Port()^1)
		if found, err := connections(q); err != nil || len(found) != 0 {
			t.Errorf("to another port: %+v, %v", found, err)
		}
	}
	if got := unowned(connection{inode: "0", state: "TIME_WAIT"}); got != "over: the kernel keeps it for late packets" {
		t.Error(got)
	}
	if got := unowned(connection{inode: "0", state: "SYN_RECV"}); got != "in its handshake" {
		t.Error(got)
	}
}

// A socket for all addresses takes the connections to each of one family.
func TestListenerSocket(t *testing.T) {
	four, six := &socket{id: 4}, &socket{id: 6}
	served := map[netip.AddrPort]*socket{
		netip.MustParseAddrPort("0.0.0.0:53"): four, netip.MustParseAddrPort("[::1]:53"): six,
	}
	for local, want := range map[string]*socket{"127.0.0.1:53": four, "[::1]:53": six, "[::2]:53": nil, "127.0.0.1:54": nil} {
		if got := listenerSocket(served, netip.MustParseAddrPort(local)); got != want {
			t.Errorf("%s: %+v", local, got)
		}
	}
}
