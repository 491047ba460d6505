package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
)

// reply is what the test server does with a request: the answers to give, each
// sent in order.
type reply func(n int, request []byte) [][]byte

// identifies answers each request once, as generation epoch.
func identifies(epoch int) reply {
	return func(int, []byte) [][]byte {
		return [][]byte{fmt.Appendf(nil, "epoch=%d worker=0 lane=1 pid=77 config=edge 1\n", epoch)}
	}
}

// answers answers a DNS query with its question, and a record-free rcode.
func answers(rcode uint16) reply {
	return func(_ int, q []byte) [][]byte {
		a := append([]byte(nil), q...)
		binary.BigEndian.PutUint16(a[2:], flagQR|rcode)
		return [][]byte{a}
	}
}

// serveUDP runs a server on a free port of address until the test ends.
func serveUDP(t *testing.T, address string, answer reply) netip.AddrPort {
	t.Helper()
	return serveClients(t, address, func(n int, _ netip.AddrPort, request []byte) [][]byte { return answer(n, request) })
}

// serveClients is serveUDP for a server that looks at who asks.
func serveClients(t *testing.T, address string, answer func(n int, client netip.AddrPort, request []byte) [][]byte) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := pc.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for n := 0; ; n++ {
			size, from, err := pc.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, a := range answer(n, from, buf[:size]) {
				if _, err := pc.WriteToUDPAddrPort(a, from); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

// serveTCP runs a DNS server that closes each connection after perConn
// requests, the last of them unanswered where cut is set.
func serveTCP(t *testing.T, perConn int, cut bool, answer reply) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for n := 1; n <= perConn || perConn == 0; n++ {
					var size [2]byte
					if _, err := io.ReadFull(c, size[:]); err != nil {
						return
					}
					q := make([]byte, binary.BigEndian.Uint16(size[:]))
					if _, err := io.ReadFull(c, q); err != nil {
						return
					}
					if n == perConn && cut {
						return
					}
					for _, a := range answer(n, q) {
						if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}
