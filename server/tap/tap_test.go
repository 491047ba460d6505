package tap

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/netns"
)

var entering error

func TestMain(m *testing.M) {
	code, inside, err := netns.Enter()
	entering = err
	if !inside && err == nil {
		os.Exit(code)
	}
	if err != nil && !errors.Is(err, netns.ErrNotRoot) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// needTAP skips a test where there cannot be a TAP device.
func needTAP(t *testing.T) {
	t.Helper()
	if entering != nil {
		t.Skip("SKIPPED: ", entering)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("SKIPPED: ", err)
	}
}

func open(t *testing.T, name string) int {
	t.Helper()
	fd, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// addresses returns the addresses of a device, without link-local ones.
func addresses(t *testing.T, name string) string {
	t.Helper()
	link, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := link.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, a := range list {
		if !strings.HasPrefix(a.String(), "fe80:") {
			text = append(text, a.String())
		}
	}
	return strings.Join(text, " ")
}

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// A device has what it was told, twice is as once, addresses that are no longer
// wanted go, and those of others stay.
func TestConfigure(t *testing.T) {
	needTAP(t)
	fd := open(t, "tapconf0")
	defer unix.Close(fd)
	if name, err := NameOf(fd); err != nil || name != "tapconf0" {
		t.Errorf("%q, %v", name, err)
	}
	mac := [6]byte{2, 0, 0x5e, 0, 0x53, 1}
	first := Settings{MAC: mac, MTU: 1400, Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")}
	for range 2 {
		if err := Configure("tapconf0", first, Settings{}); err != nil {
			t.Fatal(err)
		}
	}
	link, err := net.InterfaceByName("tapconf0")
	if err != nil {
		t.Fatal(err)
	}
	if link.MTU != 1400 || !bytes.Equal(link.HardwareAddr, mac[:]) || link.Flags&(net.FlagUp|net.FlagRunning) != net.FlagUp|net.FlagRunning {
		t.Errorf("%+v", link)
	}
	if got := addresses(t, "tapconf0"); got != "192.0.2.1/24 2001:db8::1/64" {
		t.Errorf("addresses %s", got)
	}
	others := Settings{MTU: 1500, Addresses: prefixes("198.51.100.7/32")}
	next := Settings{MTU: 1500, Addresses: prefixes("192.0.2.2/24", "2001:db8::1/64")}
	for _, c := range []struct{ now, before Settings }{{others, Settings{}}, {next, first}, {next, first}} {
		if err := Configure("tapconf0", c.now, c.before); err != nil {
			t.Fatal(err)
		}
	}
	if got := addresses(t, "tapconf0"); got != "198.51.100.7/32 192.0.2.2/24 2001:db8::1/64" {
		t.Errorf("addresses %s", got)
	}
	if err := Configure("tapnone0", next, Settings{}); err == nil || !strings.Contains(err.Error(), "TAP device tapnone0") {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := Configure("tapconf0", Settings{MTU: 1}, Settings{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an MTU of 1: %v", err)
	}
}

// What cannot be a TAP device of ours is refused, by name and reason.
func TestOpenRefused(t *testing.T) {
	needTAP(t)
	fd := open(t, "tapbusy0")
	defer unix.Close(fd)
	for name, want := range map[string]string{"lo": "it is a device of another kind", "tapbusy0": "another process has it", strings.Repeat("x", 16): "1 to 15 octets"} {
		if _, err := Open(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	if _, err := NameOf(null); err == nil {
		t.Error("/dev/null is a TAP device")
	}
}

// Frames pass both ways, reading without any returns at once, and a device that is
// down takes none.
func TestFrames(t *testing.T) {
	needTAP(t)
	fd := open(t, "tapframe0")
	defer unix.Close(fd)
	p := &Port{FD: fd}
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5}, make([]byte, 46)...)
	p.Write(frame)
	if p.Sent != 0 || p.Lost != 1 {
		t.Errorf("a device that is down: %+v", p)
	}
	if err := Configure("tapframe0", Settings{MTU: 1500, Addresses: prefixes("192.0.2.1/24")}, Settings{}); err != nil {
		t.Fatal(err)
	}
	p.Write(frame)
	if p.Sent != 1 || p.Lost != 1 {
		t.Errorf("%+v", p)
	}
	b := make([]byte, 2000)
	for { // what the kernel has to say of its own accord
		n, err := p.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	c, err := net.Dial("udp", "192.0.2.9:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		n, err := p.Read(b)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no ARP request came: %v", err)
		}
		if n >= 42 && b[12] == 8 && b[13] == 6 && bytes.Equal(b[38:42], []byte{192, 0, 2, 9}) {
			break
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		p.Write(frame)
		_, _ = p.Read(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// elsewhere is another network namespace, of a process that does nothing.
type elsewhere struct{ pid int }

func newElsewhere(t *testing.T) elsewhere {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the end of this thread is what ends the process
		started <- cmd.Start()
		<-ended
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		close(ended)
	})
	return elsewhere{cmd.Process.Pid}
}

// do calls f on a thread that is there.
func (e elsewhere) do(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := unix.Open("/proc/"+strconv.Itoa(e.pid)+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			if err = unix.Setns(ns, unix.CLONE_NEWNET); err == nil {
				err = f()
			}
			unix.Close(ns)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func (e elsewhere) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(e.pid), "-n", name}, args...)...)
}

// generation moves frames between two devices until it is told to go, as the lane of
// one generation does.
type generation struct {
	a, b      Port
	quit, end chan struct{}
}

func startGeneration(a, b int) *generation {
	g := &generation{a: Port{FD: a}, b: Port{FD: b}, quit: make(chan struct{}), end: make(chan struct{})}
	go func() {
		defer close(g.end)
		buf := make([]byte, 2048)
		move := func(from, to *Port) {
			for range 64 {
				n, err := from.Read(buf)
				if n == 0 || err != nil {
					return
				}
				to.Write(buf[:n])
			}
		}
		for {
			select {
			case <-g.quit:
				return
			default:
			}
			fds := []unix.PollFd{{Fd: int32(a), Events: unix.POLLIN}, {Fd: int32(b), Events: unix.POLLIN}}
			if n, _ := unix.Poll(fds, 1); n > 0 {
				move(&g.a, &g.b)
				move(&g.b, &g.a)
			}
		}
	}()
	return g
}

// noDrops fails the test for what the kernel says that a device has lost. show prints
// it.
func noDrops(t *testing.T, show *exec.Cmd) {
	t.Helper()
	out, err := show.Output()
	type half struct{ Packets, Errors, Dropped uint64 }
	var links []struct {
		Stats struct{ RX, TX half } `json:"stats64"`
	}
	if err != nil || json.Unmarshal(out, &links) != nil || len(links) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, h := range []half{links[0].Stats.RX, links[0].Stats.TX} {
		if h.Errors+h.Dropped > 0 || h.Packets < 2000 {
			t.Errorf("%s", out)
		}
	}
}

// Real ping and a TCP transfer lose nothing while the descriptors go from one
// generation to the next, twenty times: no generation has those of the first.
func TestHandOver(t *testing.T) {
	needTAP(t)
	for _, tool := range []string{"ping", "iperf3", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("SKIPPED: ", err)
		}
	}
	client := newElsewhere(t)
	ours := open(t, "taphand0")
	if err := Configure("taphand0", Settings{MTU: 1500, Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")}, Settings{}); err != nil {
		t.Fatal(err)
	}
	before, err := net.InterfaceByName("taphand0")
	if err != nil {
		t.Fatal(err)
	}
	var theirs int
	client.do(t, func() (err error) {
		if theirs, err = Open("taphand1"); err != nil {
			return err
		}
		// net.InterfaceByName asks the namespace of the thread that calls it.
		return Configure("taphand1", Settings{MTU: 1500, Addresses: prefixes("192.0.2.2/24", "2001:db8::2/64")}, Settings{})
	})
	g := startGeneration(ours, theirs)
	server := exec.Command("iperf3", "-s", "-1", "-B", "192.0.2.1", "-p", "5301", "--forceflush")
	said, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening") {
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	type result struct {
		name string
		out  []byte
		err  error
	}
	results := make(chan result)
	run := func(name string, args ...string) {
		go func() {
			out, err := client.command(args[0], args[1:]...).CombinedOutput()
			results <- result{name, out, err}
		}()
	}
	const pings = 1000
	run("ping", "ping", "-c", strconv.Itoa(pings), "-i", "0.003", "-W", "2", "192.0.2.1")
	run("ping6", "ping", "-c", strconv.Itoa(pings), "-i", "0.003", "-W", "2", "2001:db8::1")
	run("iperf3", "iperf3", "-J", "-c", "192.0.2.1", "-p", "5301", "-t", "3", "-b", "40M")
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		<-tick.C
		a, err1 := unix.FcntlInt(uintptr(ours), unix.F_DUPFD_CLOEXEC, 3)
		b, err2 := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD_CLOEXEC, 3)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		close(g.quit)
		<-g.end
		if g.a.Lost+g.b.Lost > 0 {
			t.Errorf("%d and %d frames were not taken", g.a.Lost, g.b.Lost)
		}
		unix.Close(ours)
		unix.Close(theirs)
		ours, theirs = a, b
		<-time.After(2 * time.Millisecond) // nobody reads
		g = startGeneration(ours, theirs)
	}
	for range 3 {
		switch r := <-results; r.name {
		case "iperf3":
			var report struct {
				End struct {
					Sent struct {
						Bytes       float64
						Retransmits int
					} `json:"sum_sent"`
				}
			}
			at := bytes.LastIndex(r.out, []byte("\n{"))
			if err := json.Unmarshal(r.out[at+1:], &report); err != nil || r.err != nil || report.End.Sent.Bytes < 1e6 {
				t.Errorf("iperf3: %v, %v, %+v\n%.500s", r.err, err, report, r.out)
			}
			// On a busy machine TCP sends again what was only late.
			t.Logf("TCP: %.0f octets, %d retransmits", report.End.Sent.Bytes, report.End.Sent.Retransmits)
		default:
			if r.err != nil || !bytes.Contains(r.out, fmt.Appendf(nil, "%d received, 0%% packet loss", pings)) {
				t.Errorf("%s: %v\n%s", r.name, r.err, r.out[max(0, len(r.out)-400):])
			}
		}
	}
	close(g.quit)
	<-g.end
	after, err := net.InterfaceByName("taphand0")
	if err != nil || after.Index != before.Index || after.Flags&net.FlagRunning == 0 {
		t.Errorf("the device was %+v and is %+v, %v", before, after, err)
	}
	noDrops(t, exec.Command("ip", "-s", "-j", "link", "show", "taphand0"))
	noDrops(t, client.command("ip", "-s", "-j", "link", "show", "taphand1"))
	unix.Close(ours)
	unix.Close(theirs)
	if _, err := net.InterfaceByName("taphand0"); err == nil {
		t.Error("the device is left")
	}
}
