//go:build dpdk

package primary

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/huge"
	"github.com/dnsapp/dnsapp/test/proc"
)

// Two secondaries move mbufs over rings, whole and unchanged; the audit adds up while
// they do; and afterwards the pool is what it was.
func TestRings(t *testing.T) {
	b := newBench(t, spec(t, huge.Pages(t, wantedPages)))
	fresh := b.swept().Pool
	l := b.lcores()
	one := b.start(0, 0, "source", l[1])
	two := b.start(1, 0, "bounce", l[0])
	for range 20 {
		two.moves(5000)
		s, err := b.Status(within(t))
		if err != nil {
			t.Fatal(err)
		}
		b.sound(s)
		if s.Pool.Astray != 0 {
			t.Errorf("%d mbufs are astray and nobody has died", s.Pool.Astray)
		}
	}
	if bad := two.tally().Bad; bad > 0 {
		t.Errorf("%d packets were changed on the way", bad)
	}
	one.finish()
	two.finish()
	if s := b.swept(); *s.Pool != *fresh || s.Deaths != 2 {
		t.Errorf("the pool was %+v and is %+v, after %d deaths", fresh, s.Pool, s.Deaths)
	}
}

// lcores are the lcore ids of the first workers of slots 0 and 1.
func (b *bench) lcores() [2]int { return [2]int{1, 1 + b.Spec.MaxWorkers} }

// SIGKILL of either end of rings, in the middle of moving: the other goes on, a new
// process takes the place, no mbuf is ever in two places, and none is lost.
func TestKilledSecondaries(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	b := newBench(t, spec(t, huge.Pages(t, wantedPages)))
	fresh := b.swept().Pool
	l := b.lcores()
	one, two := b.start(0, 0, "source", l[1]), b.start(1, 0, "bounce", l[0])
	mended := 0
	for round := range rounds {
		two.moves(500 + rand.Uint64N(500))
		if round%2 == 0 {
			one.kill()
			one = b.start(0, 0, "source", l[1])
		} else {
			two.kill()
			two = b.start(1, 0, "bounce", l[0])
		}
		two.moves(100)
		s, err := b.Status(within(t))
		if err != nil {
			t.Fatal(err)
		}
		b.sound(s)
		mended = s.Mended
		if bad := two.tally().Bad; bad > 0 {
			t.Fatalf("round %d: %d packets were changed on the way", round, bad)
		}
	}
	one.kill()
	two.kill()
	if s := b.swept(); *s.Pool != *fresh || s.Deaths != rounds+2 {
		t.Errorf("the pool was %+v and is %+v, after %d deaths", fresh, s.Pool, s.Deaths)
	}
	if mended == 0 {
		t.Error("not one of the killed had an mbuf: this test has tested nothing")
	}
	t.Logf("%d kills, %d mbufs given back", rounds+2, mended)
}

// What a process holds is told by process, and is given back when it is killed.
func TestHoarder(t *testing.T) {
	b := newBench(t, spec(t, huge.Pages(t, wantedPages)))
	m := b.start(2, 1, "hoard", 1)
	until(t, "it has 50 mbufs", func() bool { return m.tally().Moved == 50 })
	s, err := b.Status(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if b.sound(s); len(s.Secondaries) != 1 || s.Secondaries[0].Mbufs != 50 || s.Secondaries[0].PID != m.cmd.Process.Pid {
		t.Errorf("secondaries: %+v", s.Secondaries)
	}
	m.kill()
	if s := b.swept(); s.Mended != 50 || s.Pool.Free != s.Pool.Size {
		t.Errorf("given back %d; the pool is %+v", s.Mended, s.Pool)
	}
}

// A virtual device whose queue is a ring: what is sent comes back, and a killed owner
// leaves the queue to the next.
func TestNetRing(t *testing.T) {
	b := newBench(t, spec(t, huge.Pages(t, wantedPages), "net_ring0"))
	for range 3 {
		m := b.start(0, 0, "blast", 0)
		m.moves(10_000)
		if bad := m.tally().Bad; bad > 0 {
			t.Errorf("%d packets were changed", bad)
		}
		m.kill()
		b.swept()
	}
}

// Two primaries joined by net_memif; a secondary of one sends, one of the other sends
// back. Both are killed and replaced, and both pools are whole in the end.
func TestMemif(t *testing.T) {
	huge := huge.Pages(t, wantedPages)
	socket := filepath.Join(t.TempDir(), "memif")
	device := "net_memif0,role=%s,socket=" + socket + ",socket-abstract=no"
	left := newBench(t, spec(t, huge, fmt.Sprintf(device, "server")))
	other := spec(t, huge, fmt.Sprintf(device, "client"))
	other.FilePrefix += "2"
	right := newBench(t, other)
	freshLeft, freshRight := left.swept().Pool, right.swept().Pool
	until(t, "there is a link", func() bool {
		s, err := right.Status(within(t))
		return err == nil && s.Ports[0].Up
	})
	loop := right.start(0, 0, "loop", 0)
	blast := left.start(0, 0, "blast", 0)
	for round := range 6 {
		blast.moves(5000)
		if bad := blast.tally().Bad; bad > 0 {
			t.Errorf("%d packets were changed", bad)
		}
		if round%2 == 0 {
			blast.kill()
			blast = left.start(0, 0, "blast", 0)
		} else {
			loop.kill()
			loop = right.start(0, 0, "loop", 0)
		}
	}
	blast.moves(1000)
	loop.kill()
	blast.kill()
	for _, c := range []struct {
		*bench
		fresh *Pool
	}{{left, freshLeft}, {right, freshRight}} {
		if s := c.swept(); *s.Pool != *c.fresh {
			t.Errorf("the pool was %+v and is %+v", c.fresh, s.Pool)
		}
	}
}

// Frames from the kernel through a TAP, a ring to another process and back. They go
// on when the primary is killed; a new one takes a new prefix.
func TestTapAndKilledPrimary(t *testing.T) {
	huge := huge.Pages(t, wantedPages)
	s := spec(t, huge, "net_tap0,iface=dnsapptap0")
	b := newBench(t, s)
	l := b.lcores()
	wire, mirror := b.start(0, 0, "wire", l[1]), b.start(1, 0, "mirror", l[0])
	w := newWire(t, "dnsapptap0")
	w.echo(t, 500)
	if err := unix.Kill(b.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the primary is gone", func() bool { return !b.Alive() })
	w.echo(t, 500)
	wire.kill()
	mirror.kill()

	again, reused, err := Ensure(within(t), Order{Dir: b.dir, Spec: s}, "primary")
	if err != nil || reused {
		t.Fatalf("after the primary was killed: reused %v, %v", reused, err)
	}
	if again.Prefix == b.Prefix {
		t.Errorf("the new primary has the old prefix %s", again.Prefix)
	}
	if _, err := os.Stat("/var/run/dpdk/" + b.Prefix); err == nil {
		t.Errorf("what the killed primary left in /var/run/dpdk is still there")
	}
	wire, mirror = b.start(0, 0, "wire", l[1]), b.start(1, 0, "mirror", l[0])
	newWire(t, "dnsapptap0").echo(t, 500)
	mirror.kill()
	wire.finish() // killed in the driver's own call, it would take some with it: see docs/dpdk.md
	b.swept()
}

// wireSocket is the kernel's end of a TAP.
type wireSocket struct {
	fd    int
	index int
}

// newWire brings an interface up and opens a socket on it.
func newWire(t *testing.T, name string) *wireSocket {
	t.Helper()
	nic, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	proto := uint16(unix.ETH_P_802_EX1)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto<<8|proto>>8))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: nic.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}
	return &wireSocket{fd, nic.Index}
}

// echo sends n frames, one after the other, and wants each back with its addresses
// exchanged.
func (w *wireSocket) echo(t *testing.T, n int) {
	t.Helper()
	me, you := []byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 2}
	buf := make([]byte, 2048)
	for i := range n {
		payload := "\x88\xb5" + fmt.Sprintf("%060d", i) // ETH_P_802_EX1
		if err := unix.Sendto(w.fd, append(append(append([]byte{}, you...), me...), payload...), 0, &unix.SockaddrLinklayer{Ifindex: w.index}); err != nil {
			t.Fatal(err)
		}
		want := string(me) + string(you) + payload
		for {
			got, _, err := unix.Recvfrom(w.fd, buf, 0)
			if errors.Is(err, unix.EINTR) { // the runtime's own signals
				continue
			}
			if err != nil {
				t.Fatalf("frame %d does not come back: %v", i, err)
			}
			if string(buf[:got]) == want {
				break
			}
		}
	}
}

// A primary that nobody needs uses no CPU, with leases and a device.
func TestIdle(t *testing.T) {
	b := newBench(t, spec(t, huge.Pages(t, wantedPages), "net_tap0,iface=dnsapptap1"))
	b.start(0, 0, "sleep", 0)
	before, err := proc.CPU(b.PID)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * time.Second)
	after, err := proc.CPU(b.PID)
	if err != nil {
		t.Fatal(err)
	}
	if used := after - before; used > 10*time.Millisecond {
		t.Errorf("in 2 s it used %v of CPU", used)
	}
}

// An lcore id is one process's at a time.
func TestLease(t *testing.T) {
	b := newBench(t, spec(t, huge.Pages(t, wantedPages)))
	b.start(0, 0, "sleep", 0)
	other := b.spawn()
	for want, r := range map[string]LeaseRequest{
		"which lives":                     {PID: other.cmd.Process.Pid},
		"no worker 2 of slot 0":           {PID: other.cmd.Process.Pid, Worker: 2},
		"no worker 0 of slot 4":           {PID: other.cmd.Process.Pid, Slot: 4},
		"watching process 999999999: no ": {PID: 999999999, Worker: 1},
	} {
		_, err := b.Lease(within(t), r)
		wantError(t, err, want)
	}
	wantError(t, b.Stop(within(t), StopRequest{}), "1 secondaries live: stop dnsapp first")
}

// The same Spec finds the primary again; another is refused by its keys; a second
// primary in one folder is refused, too.
func TestEnsure(t *testing.T) {
	s := spec(t, huge.Pages(t, wantedPages), "net_null0")
	b := newBench(t, s)
	again, reused, err := Ensure(within(t), Order{Dir: b.dir, Spec: s}, "primary")
	if err != nil || !reused || again.Identity != b.Identity {
		t.Errorf("reused %v: %+v, %v", reused, again, err)
	}
	other := s
	other.Devices = append([]Device{}, s.Devices...)
	other.Devices[0].Queues = 2
	other.Mbufs = 1023
	_, _, err = Ensure(within(t), Order{Dir: b.dir, Spec: other}, "primary")
	wantError(t, err, "dpdk.devices[d0].queues: 1 -> 2; dpdk.mbufs: 4095 -> 1023")
	wantError(t, start(within(t), Order{Dir: b.dir, Spec: s}, []string{"primary"}), "it ended before it was ready")
	if now, err := ReadState(b.dir); err != nil || now.Identity != b.Identity {
		t.Errorf("the first is no longer known: %+v, %v", now, err)
	}
}
