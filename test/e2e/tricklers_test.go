package e2e

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

const (
	tricklers = 10_000

	// trickleMemory is what one of them may cost in the worker. (The kernel's own
	// part, some 3 KiB a socket, is not in it.)
	trickleMemory = 8 << 10
)

// trickle opens connections and sends each an octet a second of a message that
// never ends. It returns how many octets were sent so far.
func trickle(t *testing.T, n int, target netip.AddrPort) *atomic.Int64 {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < tricklers+500 {
		t.Skipf("%d descriptors are allowed, %d connections are wanted", limit.Cur, tricklers)
	}
	fds := make([]int, n)
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
		t.Cleanup(func() { unix.Close(fd) })
		// Several source addresses, or the ports of one would be tight.
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 1, byte(1 + i%8)}}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: target.Addr().As4(), Port: int(target.Port())}); err != nil {
			t.Fatal(err)
		}
	}
	sent, stop := new(atomic.Int64), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		octet := []byte{1}
		for next := 0; ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for range n / 100 {
				if _, err := unix.Write(fds[next%n], octet); err == nil {
					sent.Add(1)
				}
				next++
			}
		}
	}()
	return sent
}

// Ten thousand connections that send an octet a second cost little memory, and do
// not slow UDP.
func TestTricklers(t *testing.T) {
	const dns = "dns: {tcp_idle: 5m, tcp_connections: 20000, tcp_client_connections: 20000}"
	s := start(t, settings{top: dns}.yaml(), zoneFiles())
	quiet := latency(t)
	pid := s.workers()[0]
	before, err := proc.PSS(pid)
	if err != nil {
		t.Fatal(err)
	}
	sent := trickle(t, tricklers, dns4)
	s.await(30*time.Second, "every connection is taken and has sent some octets", func() bool {
		l := s.status().Ledger
		return l.TCPAccepted-l.TCPClosed >= tricklers && sent.Load() > 4*tricklers
	})
	cpu, err := proc.CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	from := sent.Load()
	began := time.Now()
	busy := latency(t)
	octets, took := sent.Load()-from, time.Since(began)
	after, err := proc.PSS(pid)
	if err != nil {
		t.Fatal(err)
	}
	now, err := proc.CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	each := (after - before) / tricklers
	t.Logf("UDP p50 %v, p99 %v; with %d tricklers p50 %v, p99 %v; %d octets in %v; %d bytes of memory each; CPU %v, the UDP load included",
		quiet.Quantile(0.5), quiet.Quantile(0.99), tricklers, busy.Quantile(0.5), busy.Quantile(0.99), octets, took, each, now-cpu)
	if each > trickleMemory {
		t.Errorf("%d bytes a connection, at most %d are allowed", each, trickleMemory)
	}
	// Twice the median and a little is what a busy machine does by itself.
	if a, b := quiet.Quantile(0.5), busy.Quantile(0.5); b > 2*a+500*time.Microsecond {
		t.Errorf("UDP takes %v instead of %v", b, a)
	}
	if l := s.ledger(); l.TCPQueries != 0 || sum(l.TCPDropped) != 0 || l.KernelDropped != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// latency asks 5,000 queries/s over UDP for two seconds, which must all be
// answered.
func latency(t *testing.T) load.Histogram {
	t.Helper()
	p, err := load.NewDNS(queries(false))
	if err != nil {
		t.Fatal(err)
	}
	g, err := load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{dns4, dns6}, Flows: 16, Rate: 5000, Sources: []netip.Prefix{clients6}, Protocol: p})
	if err != nil {
		t.Fatal(err)
	}
	awaitAnswers(t, g, 10_000)
	r := g.Stop(2 * time.Second)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	return r.Latency
}

// A client that has its share of connections gets no more, while another one does;
// the reason is counted.
func TestClientLimit(t *testing.T) {
	s := start(t, settings{top: "dns: {tcp_client_connections: 3}"}.yaml(), zoneFiles())
	for range 3 {
		if got := connect(t, dns4).serial("example.com."); got != 1 {
			t.Errorf("serial %d", got)
		}
	}
	over := connect(t, dns4)
	if err := over.c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		t.Fatal(err)
	}
	if n, err := over.c.Conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the fourth connection: %d octets, %v", n, err)
	}
	if got := connect(t, dns6).serial("example.com."); got != 1 {
		t.Errorf("another client: serial %d", got)
	}
	if l := s.status().Ledger; l.TCPDropped["client_limit"] != 1 {
		t.Errorf("ledger %+v", l)
	}
}
