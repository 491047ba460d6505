package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/miekg/dns"
)

// probeTimeout is how long a probe waits for its answer before it is repeated.
const probeTimeout = 100 * time.Millisecond

// zoneVersion asks a DNS server, from a new socket, which version of the zone it
// serves.
func zoneVersion(at netip.AddrPort) (int, error) {
	c := dns.Client{Timeout: probeTimeout}
	answer, _, err := c.Exchange(new(dns.Msg).SetQuestion("now.example.com.", dns.TypeA), at.String())
	if err != nil {
		return 0, err
	}
	if len(answer.Answer) == 1 {
		if a, ok := answer.Answer[0].(*dns.A); ok {
			return int(a.A.To4()[3]), nil
		}
	}
	return 0, fmt.Errorf("no version in %v", answer)
}

// plainVersion asks a server that answers everything with its version.
func plainVersion(at netip.AddrPort) (int, error) {
	c, err := net.DialTimeout("udp", at.String(), probeTimeout)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return 0, err
	}
	if _, err := c.Write([]byte("which\n")); err != nil {
		return 0, err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b[:n]))
}

// echo answers every datagram with an identify tag whose process is the port that
// it came from: a proxy that opens another port for a flow is seen.
type echo struct {
	conn *net.UDPConn
	done chan struct{}
}

func startEcho(at netip.AddrPort) (*echo, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(8 << 20) // what the kernel allows must do
	e := &echo{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		b := make([]byte, 2048)
		for {
			_, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(nil, "epoch=1 worker=0 lane=0 pid=%d config=echo\n", from.Port()), from)
		}
	}()
	return e, nil
}

func (e *echo) close() error {
	err := e.conn.Close()
	<-e.done
	return err
}
