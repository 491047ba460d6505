package dpdk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// elsewhere is a client in a network namespace of its own: the kernel of this one has a
// part in the server's device.
type elsewhere struct{ pid int }

func newElsewhere(t *testing.T) elsewhere {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the end of this thread would end the process
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

func (e elsewhere) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(e.pid), "-n"}, args...)...)
}

// plug gives the client the other end of the server's device.
func (e elsewhere) plug(s *server) {
	s.t.Helper()
	if out, err := exec.Command("ip", "link", "set", s.tap, "netns", strconv.Itoa(e.pid)).CombinedOutput(); err != nil {
		s.t.Fatalf("moving %s: %v\n%s", s.tap, err, out)
	}
	for _, args := range [][]string{
		{"ip", "link", "set", s.tap, "address", "02:00:00:00:00:09"}, // else both ends have the same one
		{"ip", "addr", "add", clients4, "dev", s.tap},
		{"ip", "addr", "add", clients6, "dev", s.tap, "nodad"},
		{"ip", "link", "set", s.tap, "txqueuelen", "10000", "up"},
	} {
		if out, err := e.command(args...).CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	for _, at := range []string{server4.String(), server6.String()} {
		s.until(startTimeout, at+" answers", func() bool { return e.command("ping", "-c", "1", "-W", "1", at).Run() == nil })
	}
}

// kernelReloads is how often the server is reloaded at least under ping and TCP, and
// kernelTime how long they go on.
const (
	kernelReloads = 20
	kernelTime    = 16 * time.Second
)

// The kernel has its part in the device: ping, both ways, and a long TCP session over the
// TAP device lose nothing over twenty reloads, while dnsapp answers its own queries; and
// the TAP device is the same one all the time.
func TestKernelOverReloads(t *testing.T) {
	for _, tool := range []string{"ping", "iperf3", "nsenter", "dig"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("SKIPPED: ", err)
		}
	}
	if suite.skipped != "" {
		t.Skip("SKIPPED: " + suite.skipped)
	}
	client := newElsewhere(t)
	s := startWith(t, 2, ", kernel: {tap: dnsapp0}", "", client.plug)
	before, err := net.InterfaceByName("dnsapp0")
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("iperf3", "-s", "-1", "-B", server4.String(), "-p", "5301", "--forceflush")
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
	results := make(chan result, 5)
	run := func(name string, cmd *exec.Cmd) {
		go func() {
			out, err := cmd.CombinedOutput()
			results <- result{name, out, err}
		}()
	}
	const pings = int(kernelTime / (5 * time.Millisecond))
	ping := func(to string) []string {
		return []string{"ping", "-c", strconv.Itoa(pings), "-i", "0.005", "-W", "5", to}
	}
	run("ping in", client.command(ping(server4.String())...))
	run("ping6 in", client.command(ping(server6.String())...))
	run("ping out", exec.Command("ping", ping("192.0.2.9")[1:]...))
	run("ping6 out", exec.Command("ping", ping("2001:db8::9")[1:]...))
	run("iperf3", client.command("iperf3", "-J", "-c", server4.String(), "-p", "5301", "-t", strconv.Itoa(int(kernelTime.Seconds())), "-b", "20M"))
	began, reloads, within := time.Now(), 0, 0
	for ; reloads < kernelReloads || len(results) < cap(results); reloads++ {
		s.ctl("reload", "--wait", "commit")
		if len(results) == 0 {
			within++
		}
		if out, err := client.command("dig", "@"+server4.String(), "+short", "+tries=1", "+time=2", "www.example.com").Output(); err != nil || string(out) != "192.0.2.80\n" {
			t.Errorf("dig: %v, %s", err, out)
		}
	}
	t.Logf("%d reloads in %v, %d of them before anything had ended", reloads, time.Since(began), within)
	for range cap(results) {
		switch r := <-results; r.name {
		case "iperf3":
			var report struct {
				End struct {
					Sent     struct{ Bytes, Retransmits float64 } `json:"sum_sent"`
					Received struct{ Bytes float64 }              `json:"sum_received"`
				}
			}
			at := bytes.LastIndex(r.out, []byte("\n{"))
			if err := json.Unmarshal(r.out[at+1:], &report); err != nil || r.err != nil || report.End.Received.Bytes < 1e6 {
				t.Errorf("iperf3: %v, %v\n%.600s", r.err, err, r.out)
			}
			// On a busy machine TCP sends again what was only late.
			t.Logf("TCP: %.0f octets sent, %.0f received, %.0f segments sent again", report.End.Sent.Bytes, report.End.Received.Bytes, report.End.Sent.Retransmits)
		default:
			if r.err != nil || !bytes.Contains(r.out, fmt.Appendf(nil, "%d received, 0%% packet loss", pings)) {
				t.Errorf("%s: %v\n%s", r.name, r.err, r.out[max(0, len(r.out)-400):])
			}
		}
	}
	after, err := net.InterfaceByName("dnsapp0")
	if err != nil || after.Index != before.Index || after.Flags&net.FlagRunning == 0 {
		t.Errorf("the TAP device was %+v and is %+v, %v", before, after, err)
	}
	var links []struct {
		Stats struct {
			RX, TX struct{ Errors, Dropped uint64 }
		} `json:"stats64"`
	}
	out, err := exec.Command("ip", "-s", "-j", "link", "show", "dnsapp0").Output()
	if err != nil || json.Unmarshal(out, &links) != nil || len(links) != 1 || links[0].Stats.TX.Errors+links[0].Stats.TX.Dropped+links[0].Stats.RX.Errors > 0 {
		t.Errorf("the TAP device has lost frames: %v, %s", err, out)
	}
}

// A reload changes the kernel's addresses, takes the TAP device away, and gives it back;
// a TAP device that somebody else has refuses it, by its key.
func TestKernelChanges(t *testing.T) {
	if suite.skipped != "" {
		t.Skip("SKIPPED: " + suite.skipped)
	}
	s := startWith(t, 1, ", kernel: {tap: dnsapp0}", "", func(*server) {})
	has := func() string {
		link, err := net.InterfaceByName("dnsapp0")
		if err != nil {
			return "none"
		}
		list, _ := link.Addrs()
		text := ""
		for _, a := range list {
			if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
				text += a.String() + " "
			}
		}
		return text
	}
	if got := has(); got != "192.0.2.1/24 2001:db8::1/64 " {
		t.Errorf("at first the kernel has %s", got)
	}
	config, err := os.ReadFile(s.dir + "/dnsapp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	with := func(kernel string) {
		s.write("dnsapp.yaml", string(bytes.Replace(config, []byte("kernel: {tap: dnsapp0}"), []byte("kernel: {"+kernel+"}"), 1)))
	}
	for _, c := range []struct{ kernel, want string }{
		{`tap: dnsapp0, addresses: ["192.0.2.1/24", "192.0.2.7/24"]`, "192.0.2.1/24 192.0.2.7/24 "},
		{"", "none"},
		{"tap: dnsapp0", "192.0.2.1/24 2001:db8::1/64 "},
	} {
		with(c.kernel)
		s.ctl("reload")
		if got := has(); got != c.want {
			t.Errorf("with {%s} the kernel has %s", c.kernel, got)
		}
	}
	with("tap: lo")
	if _, errs, code := s.tryCtl("reload"); code != 3 || !bytes.Contains(errs, []byte("dpdk.devices[0].kernel.tap")) {
		t.Errorf("code %d: %s", code, errs)
	}
	if got := has(); got != "192.0.2.1/24 2001:db8::1/64 " {
		t.Errorf("after a reload that was refused the kernel has %s", got)
	}
}
